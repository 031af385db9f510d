"""Checkpoints: named arrays in a safetensors file, and the full state of a training run.

``save``/``load`` are for weights. ``save_checkpoint``/``load_checkpoint`` add optimiser, schedule,
NumPy's random state and the loader's position. The files contain arrays and JSON, no pickle. A file
is written completely or not at all; until then an older file stays as it is. Called by users and by
apps/train.py.
"""

from __future__ import annotations

import contextlib
import json
import math
import operator
import os
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray as NumpyArray

from .array_namespace import is_array, to_numpy
from .autograd import Tensor
from .dtypes import unmasked
from .errors import CheckpointError, DTypeError

PathLike = str | os.PathLike[str]
Arrays = dict[str, NumpyArray[Any]]
Metadata = dict[str, str]

FORMAT = "needle checkpoint 1"
ABOUT = "__metadata__"
"""The entry of a file's header that is no array."""
HEADER_BYTES = 64 << 20
DTYPES = {
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (8, 4, 2)},
    **{f"I{8 * size}": np.dtype(f"<i{size}") for size in (8, 4, 2, 1)},
    **{f"U{8 * size}": np.dtype(f"<u{size}") for size in (8, 4, 2, 1)},
    "BOOL": np.dtype(bool),
}
"""The dtypes of safetensors that NumPy has."""
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

    ``metadata`` maps strings to strings; a checksum is added to it. Equal arguments give equal
    bytes. CheckpointError if the file cannot be written (no space, no permission); an older file of
    that name is then left untouched. TypeError if ``tensors`` is not a mapping or a name is not a
    string, ValueError for a name that the format reserves, DTypeError for arrays of anything but
    numbers or bools.
    """
    if not isinstance(tensors, Mapping) or not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            "save: the arguments must be a path and a dict of named arrays, got "
            f"{type(path).__name__} and {type(tensors).__name__}; call save(path, state)"
        )
    about = dict(metadata or {})
    for text in (*tensors, *about, *about.values()):
        if not isinstance(text, str):
            raise TypeError(
                f"save: names and metadata must be strings, got {text!r}; write {str(text)!r}"
            )
        _check_text("save", text)
    if ABOUT in tensors or "crc32" in about:
        raise ValueError(
            f"save: an array named {ABOUT} and metadata named crc32 are reserved by the format; "
            "choose another name"
        )
    arrays = {name: _as_numpy(tensors[name]) for name in sorted(tensors)}
    # in decreasing order of item size, so that all are aligned
    arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].itemsize))
    about["crc32"] = _checksum(arrays, about)
    content: list[Any] = [_header(arrays, about), *arrays.values()]
    _write_whole(Path(path), b"".join(content))


def load(path: PathLike) -> Arrays:
    """Return the named arrays of a safetensors file; those stored as BF16 become float32.

    CheckpointError if it is truncated or corrupt, or has a dtype that NumPy lacks.
    """
    return load_with_metadata(path)[0]


def load_with_metadata(path: PathLike) -> tuple[Arrays, Metadata]:
    """Return the named arrays and string metadata of a safetensors file. Raises as ``load``."""
    if not os.path.isfile(path):
        raise CheckpointError(f"load: no file at {path}; check the path")
    try:
        with open(path, "rb") as file:
            arrays, metadata = _read(file)
    except DTypeError as error:
        raise CheckpointError(f"load: in {path} {error}") from None
    except (OSError, *DAMAGE) as error:
        raise CheckpointError(
            f"load: {path} is truncated, corrupt or not a safetensors file "
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
    ``extra`` is a dict of JSON values, which ``load_checkpoint`` returns. TypeError for tuples,
    enumerations and other values or keys that JSON would change. Other errors are those of
    ``save``.
    """
    arrays: Arrays = {
        f"model.{name}": _as_numpy(value) for name, value in model.state_dict().items()
    }
    if extra is not None and not isinstance(extra, Mapping):
        raise TypeError(
            f"save_checkpoint: extra must be a dict, got {type(extra).__name__}; give it a name: "
            "extra={'name': ...}"
        )
    about: dict[str, Any] = {"model": type(model).__name__, "extra": _plain(extra or {})}
    given = {"optimizer": optimizer, "schedule": schedule, "loader": loader, "average": average}
    for part, owner in given.items():
        if owner is not None:
            kind = {} if part == "loader" else {"class": type(owner).__name__}
            about[part] = {**kind, **owner.state_dict()}
    if optimizer is not None:
        for position, own in about["optimizer"].pop("state").items():
            arrays.update({f"optimizer.{position}.{name}": a for name, a in own.items()})
    if average is not None:
        own = about["average"].pop("arrays")
        arrays.update({f"average.{name}": array for name, array in own.items()})
    random = dict(np.random.get_state(legacy=False))
    generator = dict(random["state"])
    arrays["random.key"] = np.asarray(generator.pop("key"))
    about["random"] = {**random, "state": generator}
    text = json.dumps(about, default=_plain)
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
    optimiser; all objects then keep their previous state. ``random=False`` does not restore NumPy's
    random state.
    """
    arrays, metadata = load_with_metadata(path)
    about = _description(path, metadata)
    given = {
        "model": model,
        "optimizer": optimizer,
        # it sets the optimiser's rates, so it is restored after the optimiser
        "schedule": schedule,
        "loader": loader,
        "average": average,
    }
    owners = {name: owner for name, owner in given.items() if owner is not None}
    before = [(owner, owner.state_dict()) for owner in owners.values()]
    numbers = np.random.get_state(legacy=False)
    try:
        states = [(owner, _state(about, arrays, name, owner)) for name, owner in owners.items()]
        for owner, state in states:
            owner.load_state_dict(state)
        if random:
            state = about["random"]
            key = {"key": arrays["random.key"]}
            np.random.set_state({**state, "state": {**state["state"], **key}})
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


def _state(about: dict[str, Any], arrays: Arrays, name: str, owner: HasState) -> dict[str, Any]:
    """Return the saved state of one part; CheckpointError if ``owner`` is of another class."""
    own = {k.removeprefix(f"{name}."): a for k, a in arrays.items() if k.startswith(f"{name}.")}
    if name == "model":
        return own
    if name not in about:
        raise CheckpointError(f"it contains no {name}; save one with save_checkpoint({name}=...)")
    part = dict(about[name])
    kind = type(owner).__name__
    if name != "loader" and (saved := part.pop("class", None)) != kind:
        raise CheckpointError(f"its {name} was saved from {saved}, got {kind}; create a {saved}")
    if name == "average":
        part["arrays"] = own
    if name == "optimizer":
        part["state"] = {}
        for key, array in own.items():
            position, _, label = key.partition(".")
            part["state"].setdefault(int(position), {})[label] = array
    return part


# ---- bytes ---------------------------------------------------------------------------------------


def _header(arrays: Arrays, about: Metadata) -> bytes:
    """Return the header of a safetensors file: its length and JSON, padded to 8 bytes."""
    entries: dict[str, Any] = {ABOUT: dict(sorted(about.items()))}
    names, end = {dtype: name for name, dtype in DTYPES.items()}, 0
    for name, array in arrays.items():
        places = [end, end := end + array.nbytes]
        entry = {"dtype": names[array.dtype], "shape": array.shape, "data_offsets": places}
        entries[name] = entry
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_BYTES:
        raise CheckpointError(
            f"save: names and metadata must fit in {HEADER_BYTES} bytes, got {len(text)}; save the "
            "largest of them as arrays"
        )
    return len(text).to_bytes(8, "little") + text


def _read(file: IO[bytes]) -> tuple[Arrays, Metadata]:
    """Read a safetensors file; ValueError or the like if malformed, DTypeError for its dtypes."""
    length = int.from_bytes(file.read(8), "little")
    if length > HEADER_BYTES:
        raise ValueError(f"its header claims {length} bytes")
    text = file.read(length)
    if len(text) < length:
        raise ValueError(f"its header claims {length} bytes")
    header = json.loads(text)
    about = header.pop(ABOUT, {})
    if not all(isinstance(text, str) for text in about.values()):
        raise TypeError("its metadata are not all strings")
    arrays: Arrays = {}
    place, size = 0, os.fstat(file.fileno()).st_size - file.tell()
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        kind, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        if kind not in DTYPES and kind != "BF16":
            raise DTypeError(
                f"{name!r} has dtype {kind}, which NumPy lacks; convert it to F32 or BF16 with the "
                "program that wrote it"
            )
        dtype, count = DTYPES.get(kind, DTYPES["U16"]), math.prod(shape)
        if not place == begin <= end <= size or end - begin != count * dtype.itemsize:
            raise ValueError(f"{name!r} is not where its header says")
        array = np.fromfile(file, dtype, count).reshape(shape)
        if kind == "BF16":  # the upper half of a float32
            array = (array.astype("<u4") << 16).view(DTYPES["F32"])
        if kind == "BOOL" and (array.view(np.uint8) > 1).any():
            raise ValueError(f"{name!r} has bools that are neither 0 nor 1")
        arrays[name], place = array, end
    if place != size:
        raise ValueError(f"{size - place} bytes belong to no array")
    return dict(sorted(arrays.items())), about


def _as_numpy(value: Any) -> NumpyArray[Any]:
    """Return a host copy of a Tensor, an array of either mode, or anything that NumPy converts."""
    if isinstance(value, Tensor):
        value = value.detach().numpy()
    array = unmasked("save", to_numpy(value) if is_array(value) else value)
    dtype = array.dtype.newbyteorder("<")
    if dtype not in DTYPES.values():
        raise DTypeError(
            f"save: arrays must hold numbers or bools, got dtype {array.dtype}; convert to float32"
        )
    return array.astype(dtype, order="C")


def _plain(value: Any) -> Any:
    """Return a value as JSON reads it back; TypeError if JSON would change it."""
    if isinstance(value, Mapping) and all(type(key) is str for key in value):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is str:
        _check_text("save_checkpoint", value)
    if value is None or type(value) in (str, int, float, bool):
        return value
    raise TypeError(
        f"save_checkpoint: JSON cannot represent {type(value).__name__} {value!r}; use numbers, "
        "strings, lists, and dicts with strings as keys in extra"
    )


def _check_text(name: str, text: str) -> None:
    """Raise ValueError for a lone surrogate, which would not be read back unchanged."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{name}: text must be valid Unicode, got {text!r}; decode file names with "
            "errors='replace'"
        ) from None


def _checksum(arrays: Arrays, metadata: Metadata) -> str:
    """Return the CRC-32 of the metadata and of each array's name, dtype, shape and bytes."""
    crc = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        crc = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), crc)
        crc = zlib.crc32(array.tobytes(), crc)
    return f"{crc:08x}"


def _is_whole(arrays: Arrays, metadata: Metadata) -> bool:
    """Return False if the checksum is wrong, or if its key in the metadata is damaged."""
    # no checksum: written by another program, unless a key resembles "crc32"
    if "crc32" not in metadata:
        alike = (name for name in metadata if len(name) == len("crc32"))
        return not any(sum(map(operator.eq, name, "crc32")) >= 3 for name in alike)
    rest = {name: value for name, value in metadata.items() if name != "crc32"}
    return metadata["crc32"] == _checksum(arrays, rest)


def _write_whole(path: Path, content: bytes) -> None:
    """Write to a new file next to ``path``, flush it to disk, then rename it to ``path``."""
    target = Path(os.path.realpath(path))
    writer = f"{os.getpid()}-{threading.get_ident()}"  # two writers may save to one path
    partial = target.with_name(f".{target.name}.{writer}.partial")
    try:
        if target.exists() and not target.is_file():
            raise CheckpointError(
                f"save: {path} must be a regular file or not exist, got a folder or device; choose "
                "another name"
            )
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise CheckpointError(
            f"save: could not write {len(content)} bytes to {path}: {error.strerror or error}; "
            "free some space or choose another folder. A file saved there before is untouched"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # the rename has removed it
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
