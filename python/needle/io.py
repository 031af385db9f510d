"""Checkpoints: named arrays in a safetensors file, and all that a training run needs to continue.

``save``/``load`` are for weights; ``save_checkpoint``/``load_checkpoint`` add optimiser, schedule,
NumPy's random state and the loader's position. No pickle anywhere: arrays and JSON. A file appears
whole or not at all; what it replaces stays until then. Called by users and by apps/train.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray as NumpyArray

from .array_namespace import is_array, to_numpy
from .autograd import Tensor
from .errors import CheckpointError, DTypeError

PathLike = str | os.PathLike[str]
Arrays = dict[str, NumpyArray[Any]]
Metadata = dict[str, str]

FORMAT = "needle checkpoint 1"
DAMAGE = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError),
    *(TypeError, ValueError),  # a loader's refusal is a ValueError, and so is every CheckpointError
)
"""What reading a checkpoint raises where its parts are not of the form that was saved."""


class HasState(Protocol):
    """What a checkpoint can hold: a model, an optimiser, a schedule, a loader."""

    def state_dict(self) -> dict[str, Any]:
        """A copy of the state."""

    def load_state_dict(self, state: Mapping[str, Any], /) -> Any:
        """Takes a state over; CheckpointError, and nothing changed, if it does not fit."""


# ---- named arrays --------------------------------------------------------------------------------


def save(path: PathLike, tensors: Mapping[str, Any], metadata: Metadata | None = None) -> None:
    """Writes named Tensors or arrays (any shapes and dtypes) to a safetensors file, atomically.

    ``metadata`` maps strings to strings. A checksum goes with it. CheckpointError if the file
    cannot be written (no space, no permission): an older file of that name is then untouched.
    """
    library = _safetensors()
    arrays = {name: _as_numpy(value) for name, value in tensors.items()}
    about = dict(metadata or {})
    about["crc32"] = _checksum(arrays, about)
    _write_whole(Path(path), library.numpy.save(arrays, metadata=about))


def load(path: PathLike) -> Arrays:
    """The named arrays of a safetensors file; CheckpointError if it is cut short or corrupt."""
    return load_with_metadata(path)[0]


def load_with_metadata(path: PathLike) -> tuple[Arrays, Metadata]:
    """As ``load``, and the file's string metadata."""
    library = _safetensors()
    if not os.path.isfile(path):
        raise CheckpointError(f"load: no file at {path}; check the path")
    try:
        with library.safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            arrays = {name: _of_numbers(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except (library.SafetensorError, OSError, *DAMAGE) as error:
        raise CheckpointError(
            f"load: {path} is cut short, corrupt or no safetensors file "
            f"({Path(path).stat().st_size} bytes; {error}); take another copy or save again"
        ) from error
    expected = metadata.pop("crc32", None)
    if expected is not None and expected != _checksum(arrays, metadata):
        raise CheckpointError(
            f"load: the arrays in {path} do not match their checksum: the file was damaged after "
            "it was written; take another copy or save again"
        )
    return arrays, metadata


# ---- a training run ------------------------------------------------------------------------------


def save_checkpoint(
    path: PathLike,
    *,
    model: HasState,
    optimizer: HasState | None = None,
    schedule: HasState | None = None,
    loader: HasState | None = None,
    average: HasState | None = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Writes everything that continues a run bit for bit, NumPy's global random state included.

    ``average`` is an ``optim.ExponentialAverage``. ``extra`` is anything JSON can hold;
    ``load_checkpoint`` returns it.
    """
    arrays: Arrays = {
        f"model.{name}": _as_numpy(value) for name, value in model.state_dict().items()
    }
    about: dict[str, Any] = {"model": type(model).__name__, "extra": dict(extra or {})}
    if optimizer is not None:
        state = optimizer.state_dict()
        for position, own in state.pop("state").items():
            arrays.update({f"optimizer.{position}.{name}": a for name, a in own.items()})
        about["optimizer"] = {"class": type(optimizer).__name__, **state}
    if schedule is not None:
        about["schedule"] = {"class": type(schedule).__name__, **schedule.state_dict()}
    if loader is not None:
        about["loader"] = loader.state_dict()
    if average is not None:
        state = average.state_dict()
        arrays.update({f"average.{name}": array for name, array in state.pop("arrays").items()})
        about["average"] = {"class": type(average).__name__, **state}
    random = dict(np.random.get_state(legacy=False))
    generator = dict(random["state"])
    arrays["random.key"] = np.asarray(generator.pop("key"))
    about["random"] = {**random, "state": generator}
    text = json.dumps(about, default=_plain_number)
    save(path, arrays, {"format": FORMAT, "checkpoint": text})


def load_checkpoint(
    path: PathLike,
    *,
    model: HasState | None = None,
    optimizer: HasState | None = None,
    schedule: HasState | None = None,
    loader: HasState | None = None,
    average: HasState | None = None,
    random: bool = True,
) -> dict[str, Any]:
    """Puts a checkpoint's state into what is given; returns its ``extra``.

    CheckpointError if the file is damaged, lacks a part that is asked for, or belongs to another
    model or optimiser; all is then as it was. ``random=False`` leaves NumPy's state alone.
    """
    arrays, metadata = load_with_metadata(path)
    about = _description(path, metadata)
    given = (model, optimizer, schedule, loader, average)
    before = [(owner, owner.state_dict()) for owner in given if owner is not None]
    numbers = np.random.get_state(legacy=False)
    try:
        for owner, state in _states(about, arrays, *given):
            owner.load_state_dict(state)
        if random:
            _set_random(about["random"], arrays["random.key"])
    except DAMAGE as error:
        for owner, state in before:
            owner.load_state_dict(state)
        np.random.set_state(numbers)
        why = error if isinstance(error, ValueError) else f"its description is damaged ({error!r})"
        raise CheckpointError(f"load_checkpoint: {path} (of a {about['model']}): {why}") from error
    extra: dict[str, Any] = about["extra"]
    return extra


def _set_random(state: dict[str, Any], key: NumpyArray[Any]) -> None:
    """NumPy's global stream goes to where it was saved."""
    np.random.set_state({**state, "state": {**state["state"], "key": key}})


def checkpoint_extra(path: PathLike) -> dict[str, Any]:
    """The ``extra`` of a checkpoint, its state left alone."""
    extra: dict[str, Any] = _description(path, load_with_metadata(path)[1])["extra"]
    return extra


def _description(path: PathLike, metadata: Metadata) -> dict[str, Any]:
    """What a checkpoint says of itself in its metadata."""
    if metadata.get("format") != FORMAT or "checkpoint" not in metadata:
        raise CheckpointError(
            f"load_checkpoint: {path} is a safetensors file but no '{FORMAT}'; read weights alone "
            "with needle.io.load"
        )
    try:
        about: dict[str, Any] = json.loads(metadata["checkpoint"])
        whole = isinstance(about["model"], str) and isinstance(about["extra"], dict)
    except DAMAGE:
        whole = False
    if not whole:
        raise CheckpointError(
            f"load_checkpoint: the description in {path} is damaged; take another copy of it"
        )
    return about


def _states(
    about: dict[str, Any],
    arrays: Arrays,
    model: HasState | None,
    optimizer: HasState | None,
    schedule: HasState | None,
    loader: HasState | None,
    average: HasState | None,
) -> list[tuple[HasState, Mapping[str, Any]]]:
    """Who takes which state over; the schedule after the optimiser whose rates it sets."""
    states: list[tuple[HasState, Mapping[str, Any]]] = []
    if model is not None:
        states.append((model, _with_prefix(arrays, "model.")))
    if optimizer is not None:
        states.append((optimizer, _optimizer_state(about, optimizer, arrays)))
    if schedule is not None:
        states.append((schedule, _part(about, "schedule", schedule)))
    if loader is not None:
        states.append((loader, _part(about, "loader")))
    if average is not None:
        own = {**_part(about, "average", average), "arrays": _with_prefix(arrays, "average.")}
        states.append((average, own))
    return states


def _optimizer_state(about: dict[str, Any], optimizer: HasState, arrays: Arrays) -> dict[str, Any]:
    state: dict[str, Any] = {"state": {}, **_part(about, "optimizer", optimizer)}
    for name, array in _with_prefix(arrays, "optimizer.").items():
        position, _, own = name.partition(".")
        state["state"].setdefault(int(position), {})[own] = array
    return state


def _part(about: dict[str, Any], name: str, owner: HasState | None = None) -> dict[str, Any]:
    """One part of the description, without its class name, which must be the owner's."""
    if name not in about:
        raise CheckpointError(f"it holds no {name}; save one with save_checkpoint({name}=...)")
    part = dict(about[name])
    saved = part.pop("class", None)
    if owner is not None and saved != type(owner).__name__:
        raise CheckpointError(
            f"its {name} is {saved}, got {type(owner).__name__}; build the one it was saved from"
        )
    return part


def _with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


# ---- bytes ---------------------------------------------------------------------------------------


def _safetensors() -> Any:
    """The safetensors package, asked for only when a file is read or written."""
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise ModuleNotFoundError(
            "needle.io: checkpoints need the package safetensors; pip install 'needle[train]'"
        ) from error
    return safetensors


def _of_numbers(array: NumpyArray[Any]) -> NumpyArray[Any]:
    """The array; TypeError for a dtype that NumPy has from another package, such as bfloat16."""
    if array.dtype.kind not in "biuf":
        raise TypeError(f"arrays must hold numbers or bools, got dtype {array.dtype}")
    return array


def _as_numpy(value: Any) -> NumpyArray[Any]:
    """A host array of a Tensor, an array of either mode, or anything NumPy takes."""
    if isinstance(value, Tensor):
        value = value.detach().numpy()
    array = np.asarray(to_numpy(value) if is_array(value) else value)
    if array.dtype.kind not in "biuf":
        raise DTypeError(f"save: arrays must hold numbers or bools, got dtype {array.dtype}")
    return array.copy(order="C")


def _plain_number(value: Any) -> Any:
    """JSON for NumPy's scalars, which options such as a learning rate may be."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(
        f"save_checkpoint: JSON has no form for {type(value).__name__} {value!r}; use numbers, "
        "strings, lists and dicts in extra"
    )


def _checksum(arrays: Arrays, metadata: Metadata) -> str:
    """CRC-32 over the metadata and each array's name, dtype, shape and bytes, sorted by name."""
    crc = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        crc = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), crc)
        crc = zlib.crc32(array.tobytes(), crc)
    return f"{crc:08x}"


def _write_whole(path: Path, content: bytes) -> None:
    """Writes to a new file beside ``path``, forces it to disk, then renames it into place."""
    target = Path(os.path.realpath(path))
    writer = f"{os.getpid()}-{threading.get_ident()}"  # two may save under one name at once
    partial = target.with_name(f".{target.name}.{writer}.partial")
    try:
        if target.exists() and not target.is_file():
            raise CheckpointError(
                f"save: {path} must be a file or new, got a folder or device; choose another name"
            )
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
        _sync_folder(target.parent)
    except OSError as error:
        _remove(partial)
        raise CheckpointError(
            f"save: could not write {len(content)} bytes to {path}: {error.strerror or error}; "
            "free some space or choose another folder. What was saved there before is untouched"
        ) from error
    except BaseException:
        _remove(partial)
        raise


def _remove(partial: Path) -> None:
    """Removes what was begun, if it was; the error that stopped it is the one to report."""
    with contextlib.suppress(OSError):
        partial.unlink()


def _sync_folder(folder: Path) -> None:
    """Makes the rename itself survive a power cut, where the system lets folders be opened."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
