"""Checkpoints: named arrays in a safetensors file, and the full state of a training run.

``save``/``load`` are for weights. ``save_checkpoint``/``load_checkpoint`` add optimiser, schedule,
NumPy's random state and the loader's position. The files contain arrays and JSON, no pickle. A file
is written completely or not at all; until then an older file stays as it is. Called by users and by
apps/train.py.
"""

from __future__ import annotations

import contextlib
import json
import operator
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
    *(TypeError, ValueError),  # CheckpointError and the errors of loaders are ValueErrors
)
"""Exceptions that reading a damaged checkpoint can raise."""


class HasState(Protocol):
    """An object that a checkpoint can store: a model, an optimiser, a schedule, a loader."""

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state."""

    def load_state_dict(self, state: Mapping[str, Any], /) -> Any:
        """Restore a state; CheckpointError, without any change, if it does not fit."""


# ---- named arrays --------------------------------------------------------------------------------


def save(path: PathLike, tensors: Mapping[str, Any], metadata: Metadata | None = None) -> None:
    """Write named Tensors or arrays (any shapes and dtypes) to a safetensors file, atomically.

    ``metadata`` maps strings to strings; a checksum is added to it. CheckpointError if the file
    cannot be written (no space, no permission); an older file of that name then stays untouched.
    TypeError if ``tensors`` is not a mapping, DTypeError for arrays of anything but numbers or
    bools.
    """
    if not isinstance(tensors, Mapping) or not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            "save: the arguments must be a path and a dict of named arrays, got "
            f"{type(path).__name__} and {type(tensors).__name__}; call save(path, state)"
        )
    library = _safetensors()
    arrays = {name: _as_numpy(value) for name, value in tensors.items()}
    about = dict(metadata or {})
    about["crc32"] = _checksum(arrays, about)
    _write_whole(Path(path), library.numpy.save(arrays, metadata=about))


def load(path: PathLike) -> Arrays:
    """Return the named arrays of a safetensors file.

    CheckpointError if it is cut short or corrupt.
    """
    return load_with_metadata(path)[0]


def load_with_metadata(path: PathLike) -> tuple[Arrays, Metadata]:
    """Return the named arrays of a safetensors file and its string metadata; errors as ``load``."""
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
            f"({Path(path).stat().st_size} bytes; {error}); use another copy or save again"
        ) from error
    if not _is_whole(arrays, metadata):
        raise CheckpointError(
            f"load: the arrays in {path} do not match their checksum: the file was damaged after "
            "it was written; use another copy or save again"
        )
    metadata.pop("crc32", None)
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
    """Write everything that a bit-identical continuation of a run needs.

    This includes NumPy's global random state. ``average`` is an ``optim.ExponentialAverage``.
    ``extra`` is anything that JSON can hold; ``load_checkpoint`` returns it. Errors as ``save``.
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
    """Restore a checkpoint into the given objects and return its ``extra``.

    CheckpointError if the file is damaged, lacks a requested part, or belongs to another model or
    optimiser; all objects then have their previous state. ``random=False`` does not restore NumPy's
    random state.
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
        raise CheckpointError(
            f"load_checkpoint: {path} (saved from a {about['model']}): {why}"
        ) from error
    extra: dict[str, Any] = about["extra"]
    return extra


def _set_random(state: dict[str, Any], key: NumpyArray[Any]) -> None:
    """Restore the state of NumPy's global random stream."""
    np.random.set_state({**state, "state": {**state["state"], "key": key}})


def checkpoint_extra(path: PathLike) -> dict[str, Any]:
    """Return the ``extra`` of a checkpoint without loading its state."""
    extra: dict[str, Any] = _description(path, load_with_metadata(path)[1])["extra"]
    return extra


def _description(path: PathLike, metadata: Metadata) -> dict[str, Any]:
    """Return the description in a checkpoint's metadata."""
    if metadata.get("format") != FORMAT or "checkpoint" not in metadata:
        raise CheckpointError(
            f"load_checkpoint: {path} is a safetensors file but not a '{FORMAT}'; read plain "
            "weights with needle.io.load"
        )
    try:
        about: dict[str, Any] = json.loads(metadata["checkpoint"])
        whole = isinstance(about["model"], str) and isinstance(about["extra"], dict)
    except DAMAGE:
        whole = False
    if not whole:
        raise CheckpointError(
            f"load_checkpoint: the description in {path} is damaged; use another copy of the file"
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
    """Return (object, state) pairs; the schedule after the optimiser whose rates it sets."""
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
    """Return one part of the description without its class name, which must match the object's."""
    if name not in about:
        raise CheckpointError(f"it contains no {name}; save one with save_checkpoint({name}=...)")
    part = dict(about[name])
    saved = part.pop("class", None)
    if owner is not None and saved != type(owner).__name__:
        raise CheckpointError(
            f"its {name} was saved from {saved}, got {type(owner).__name__}; create a {saved}"
        )
    return part


def _with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


# ---- bytes ---------------------------------------------------------------------------------------


def _safetensors() -> Any:
    """Return the safetensors package, imported only when a file is read or written."""
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise ModuleNotFoundError(
            "needle.io: checkpoints need the package safetensors; pip install 'needle[train]'"
        ) from error
    return safetensors


def _of_numbers(array: NumpyArray[Any]) -> NumpyArray[Any]:
    """Return the array; TypeError for a dtype from another package, such as bfloat16."""
    if array.dtype.kind not in "biuf":
        raise TypeError(f"arrays must hold numbers or bools, got dtype {array.dtype}")
    return array


def _as_numpy(value: Any) -> NumpyArray[Any]:
    """Return a host array of a Tensor, an array of either mode, or anything that NumPy converts."""
    if isinstance(value, Tensor):
        value = value.detach().numpy()
    array = np.asarray(to_numpy(value) if is_array(value) else value)
    if array.dtype.kind not in "biuf":
        raise DTypeError(f"save: arrays must hold numbers or bools, got dtype {array.dtype}")
    return array.copy(order="C")


def _plain_number(value: Any) -> Any:
    """Convert NumPy scalars for JSON; options such as a learning rate may be such scalars."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(
        f"save_checkpoint: JSON cannot represent {type(value).__name__} {value!r}; use numbers, "
        "strings, lists and dicts in extra"
    )


def _checksum(arrays: Arrays, metadata: Metadata) -> str:
    """Return the CRC-32 of the metadata and of name, dtype, shape and bytes of each array."""
    crc = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        crc = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), crc)
        crc = zlib.crc32(array.tobytes(), crc)
    return f"{crc:08x}"


def _is_whole(arrays: Arrays, metadata: Metadata) -> bool:
    """Return False for a wrong checksum, or for one whose own name is damaged."""
    if "crc32" not in metadata:  # a file of another program, unless a name is nearly that
        alike = (name for name in metadata if len(name) == len("crc32"))
        return not any(sum(map(operator.eq, name, "crc32")) >= 3 for name in alike)
    rest = {name: value for name, value in metadata.items() if name != "crc32"}
    return metadata["crc32"] == _checksum(arrays, rest)


def _write_whole(path: Path, content: bytes) -> None:
    """Write to a new file beside ``path``, flush it to disk, then rename it to ``path``."""
    target = Path(os.path.realpath(path))
    writer = f"{os.getpid()}-{threading.get_ident()}"  # two writers may save to one path
    partial = target.with_name(f".{target.name}.{writer}.partial")
    try:
        if target.exists() and not target.is_file():
            raise CheckpointError(
                f"save: {path} must be a regular file or new, got a folder or device; choose "
                "another name"
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
            "free some space or choose another folder. A file saved there before is untouched"
        ) from error
    except BaseException:
        _remove(partial)
        raise


def _remove(partial: Path) -> None:
    """Remove the partial file, if any; errors are ignored in favour of the original one."""
    with contextlib.suppress(OSError):
        partial.unlink()


def _sync_folder(folder: Path) -> None:
    """Flush the folder, so that the rename survives a power failure, where the system allows it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
