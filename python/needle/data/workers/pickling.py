"""Pickle a data set and its pipeline, once, into memory that all workers share.

Workers read the arrays without copying them; pages that a worker writes are copied on write, as
after a fork. Memory-mapped arrays are mapped again from their files. If cloudpickle is installed,
classes and functions of the main program and of notebooks are pickled by value.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import pickle
import struct
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..samples.checksum import checksum
from .shared_memory import Memory

try:
    import cloudpickle
except ImportError:  # then only importable objects can be pickled
    cloudpickle = None

_ALIGN = 64
_LARGE = 1 << 14  # bytes of an array above which a checksum dominates the time
_Base: Any = pickle.Pickler if cloudpickle is None else cloudpickle.Pickler


@dataclass(frozen=True)
class Stamp:
    """The state of a value, to be compared with its state at another time; see ``stamp_of``.

    kept: the arrays that are identified by address, kept alive so that no other array gets it.
    """

    parts: tuple[Any, ...]
    kept: tuple[Any, ...] = field(default=(), compare=False)


def stamp_of(value: Any) -> Stamp:
    """Return a value's state: a digest of its pickle, and a checksum for each array.

    Large read-only arrays are identified by their address. The state of a value that cannot be
    pickled is the error.
    """
    buffers: list[pickle.PickleBuffer] = []
    try:
        digest = hashlib.blake2b()
        into = types.SimpleNamespace(
            write=digest.update
        )  # the pickle of a list of files may be large
        _Pickler(into, protocol=5, buffer_callback=buffers.append).dump(value)
    except Exception as error:
        return Stamp((repr(error),))
    parts: list[Any] = [digest.digest()]
    kept = []
    for raw in (buffer.raw() for buffer in buffers):
        source: Any = raw.obj
        if raw.nbytes >= _LARGE and _is_frozen(source):
            kept.append(source)
            parts.append((source.__array_interface__["data"][0], raw.nbytes))
        else:
            parts.append(checksum(raw))
    return Stamp(tuple(parts), tuple(kept))


def _is_frozen(array: Any) -> bool:
    """Return True if an array, and every array of which it is a view, is read-only."""
    if not isinstance(array, np.ndarray):
        return False
    while isinstance(array, np.ndarray) and not array.flags.writeable:
        array = array.base
    return not isinstance(array, np.ndarray)


class _Pickler(_Base):  # type: ignore[misc]
    """A pickler that stores a mapped array as file and offset, a permuted one in memory order."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and (place := _place_in_file(value)) is not None:
            return _mapped, place
        if type(value) is np.ndarray:
            if value.flags.forc or value.dtype.hasobject:
                return value.__reduce_ex__(5)
            order = sorted(range(value.ndim), key=lambda axis: -abs(value.strides[axis]))
            inverse = tuple(int(axis) for axis in np.argsort(order))
            return np.transpose, (np.ascontiguousarray(value.transpose(order)), inverse)
        return NotImplemented if cloudpickle is None else super().reducer_override(value)


def dumps(value: Any, buffers: list[pickle.PickleBuffer] | None = None) -> bytes:
    """Return ``value`` pickled; large arrays are appended to ``buffers`` instead, if given."""
    file = io.BytesIO()
    callback = None if buffers is None else buffers.append
    _Pickler(file, protocol=5, buffer_callback=callback).dump(value)
    return file.getvalue()


def quick_dumps(value: Any, buffers: list[pickle.PickleBuffer]) -> bytes:
    """Return ``value`` pickled by plain ``pickle``, which is faster, or else by ``dumps``."""
    try:
        return pickle.dumps(value, 5, buffer_callback=buffers.append)
    except Exception:
        buffers.clear()
        return dumps(value, buffers)


def pack(value: Any, purpose: str) -> Memory:
    """Return new shared memory with ``value`` for ``unpack``; arrays are copied only once."""
    parts = pack_value(value)
    memory = Memory(sum(memoryview(part).nbytes for part in parts), purpose)
    at = 0
    for part in parts:
        end = at + memoryview(part).nbytes
        memory.buffer[at:end] = part
        at = end
    return memory


def pack_value(value: Any, dump: Callable[..., bytes] = dumps) -> list[Any]:
    """Return ``value`` as consecutive buffers, without copying its arrays.

    The first buffer holds the lengths; the pickle and the arrays follow, each aligned to
    ``_ALIGN``.
    """
    buffers: list[pickle.PickleBuffer] = []
    body = dump(value, buffers)
    raw: list[Any] = [body, *(buffer.raw() for buffer in buffers)]
    lengths = [memoryview(part).nbytes for part in raw]
    head = struct.pack(f"<{1 + len(raw)}Q", len(raw), *lengths)
    parts: list[Any] = []
    for part, length in zip((head, *raw), (len(head), *lengths)):
        parts += [part, bytes(-length % _ALIGN)]
    return parts


def unpack(payload: bytearray | mmap.mmap) -> Any:
    """Return the value that ``pack_value`` serialised; its arrays are views of ``payload``."""
    view = memoryview(payload)
    (count,) = struct.unpack_from("<Q", view)
    lengths = struct.unpack_from(f"<{count}Q", view, 8)
    at, parts = 8 + 8 * count, []
    for length in lengths:
        at += -at % _ALIGN
        parts.append(view[at : at + length])
        at += length
    return pickle.loads(parts[0], buffers=parts[1:])


def explain_failure(value: Any, name: str, error: BaseException) -> TypeError:
    """Return an error that names the part of ``value`` that cannot be pickled."""
    path, part, cause = _culprit(value, name, error)
    remedy = "make it in the worker (when first used), or use engine='threads'"
    if cloudpickle is None:
        remedy += "; functions of the main program can be pickled after pip install cloudpickle"
    return TypeError(
        f"DataLoader: worker processes get a pickled copy of the data set, and {path} -> "
        f"{_described(part)} cannot be pickled ({type(cause).__name__}: {cause}); {remedy}"
    )


def _culprit(value: Any, path: str, error: BaseException) -> tuple[str, Any, BaseException]:
    """Return the deepest part of ``value`` that cannot be pickled, at most 20 levels down."""
    seen: set[int] = set()
    for _ in range(20):
        seen.add(id(value))
        for step, part in _parts(value):
            cause = None if id(part) in seen else _failure(part)
            if cause is not None:
                path, value, error = path + step, part, cause
                break
        else:
            break
    return path, value, error


def _failure(value: Any) -> BaseException | None:
    try:
        dumps(value, [])
    except Exception as error:
        return error
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, (tuple, list, set, frozenset)):
        yield from ((f"[{i}]", part) for i, part in enumerate(value))
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, types.FunctionType):
        yield from _function_parts(value)
    elif not isinstance(value, type):
        yield from ((f".{name}", part) for name, part in _attributes(value).items())


def _function_parts(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        yield f" (its variable {name})", cell.cell_contents
    for default in function.__defaults__ or ():
        yield " (a default value)", default
    for name in code.co_names:
        if name in function.__globals__:
            yield f" (the global {name})", function.__globals__[name]


def _attributes(value: Any) -> dict[str, Any]:
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                found[name] = getattr(value, name)
    return found


def _described(value: Any) -> str:
    code = getattr(value, "__code__", None)
    if code is not None:
        return f"{value.__name__} at {code.co_filename}:{code.co_firstlineno}"
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _place_in_file(array: npt.NDArray[Any]) -> tuple[Any, ...] | None:
    """Return the arguments of ``_mapped`` if the array is a view of a ``np.memmap``, else None."""
    root: Any = array
    while isinstance(root, np.ndarray) and not isinstance(root.base, mmap.mmap):
        root = root.base
    if not isinstance(root, np.memmap) or root.mode == "c" or root.filename is None:
        return None  # in mode "c", copy-on-write, the file lacks the changes of this process
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    path = os.path.abspath(root.filename)
    mode = "c" if array.flags.writeable else "r"
    return path, mode, array.shape, array.dtype, root.offset + start, array.strides


def _mapped(path: str, mode: Any, shape: Any, dtype: Any, *place: Any) -> npt.NDArray[Any]:
    return np.ndarray(shape, dtype, np.memmap(path, np.uint8, mode), *place)
