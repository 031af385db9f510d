"""Pickling of a data set and its pipeline, once, into memory that all workers share.

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
import zlib
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from .shared_memory import Memory

try:
    import cloudpickle
except ImportError:  # then only importable objects can be pickled
    cloudpickle = None

_ALIGN = 64
_Base: Any = pickle.Pickler if cloudpickle is None else cloudpickle.Pickler


class Stamp(pickle.Pickler):
    """The state of a value as a ``digest``, which costs less than pickling; see ``unchanged``.

    Arrays count by a checksum. Imported code, read-only arrays and what cannot be pickled count by
    identity, and ``kept`` keeps them alive so that no other object gets their ids.
    """

    def __init__(self, value: Any) -> None:
        self._found = hashlib.blake2b()
        super().__init__(SimpleNamespace(write=self._found.update), protocol=5)
        self._seen: set[int] = set()
        self.kept: list[Any] = []
        self.digest: bytes | None = None  # None if the value cannot be digested
        with suppress(Exception):
            self.dump(value)
            self.digest = self._found.digest()
        self.clear_memo()  # the memo references every object it has seen

    def unchanged(self, before: Stamp) -> bool:
        """Return True if the value has the state that it had before."""
        return self.digest is not None and self.digest == before.digest

    def reducer_override(self, value: Any) -> Any:
        """Return the parts that stand for an object; the pickler calls this."""
        if value is _parts_of:
            return NotImplemented
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return self._array(value)
        if isinstance(value, (type, types.FunctionType)):
            return self._code(value)
        try:
            return value.__reduce_ex__(5)
        except Exception:
            return self._identity(value)

    def _identity(self, value: Any, *parts: Any) -> Any:
        self.kept.append(value)
        return _parts_of, (id(value), *parts)

    def _array(self, value: npt.NDArray[Any]) -> Any:
        place = _place_in_file(value)
        if place is not None:
            return _parts_of, place
        if _is_frozen(value):
            return self._identity(value)
        if value.nbytes > _SMALL:
            content: Any = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        else:
            content = value.tobytes()  # views of many small arrays would take longer
        return _parts_of, (value.shape, value.dtype.str, zlib.crc32(content))

    def _code(self, value: Any) -> Any:
        """Return the parts of a class or function that workers get by value."""
        imported = value.__module__ != "__main__" and "<" not in value.__qualname__
        if imported or id(value) in self._seen:
            return self._identity(value)
        self._seen.add(id(value))
        state = {name: each for name, each in vars(value).items() if name not in _OF_CLASSES}
        parts = () if isinstance(value, type) else tuple(_function_parts(value))
        return self._identity(value, state, parts)


def _is_frozen(array: Any) -> bool:
    """Return True if the array and every array that it is a view of are read-only."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return True


_SMALL = 1 << 14
_OF_CLASSES = ("__dict__", "__weakref__", "__doc__", "_abc_impl")
"""Attributes of a class that Python adds."""


def _parts_of(*parts: Any) -> None:
    """Stand for an object in the output of ``Stamp``, which is never unpickled."""


class _Pickler(_Base):  # type: ignore[misc]
    """A pickler that stores a mapped array as file and offset, a permuted one in memory order."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and (place := _place_in_file(value)) is not None:
            return _mapped, place
        if type(value) is np.ndarray and not value.dtype.hasobject and not value.flags.forc:
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


def pack(value: Any, purpose: str) -> Memory:
    """Return new shared memory with ``value``, whose arrays are copied once. See ``unpack``."""
    parts = pack_value(value)
    memory = Memory(sum(memoryview(part).nbytes for part in parts), purpose)
    at = 0
    for part in parts:
        end = at + memoryview(part).nbytes
        memory.buffer[at:end] = part
        at = end
    return memory


def holds_the_same(memory: Memory, other: Memory) -> bool:
    """Return True if both hold the same bytes."""
    mine, theirs = (np.frombuffer(each.buffer, np.uint8) for each in (memory, other))
    return np.array_equal(mine, theirs)


def unpack(memory: Memory) -> Any:
    """Return the value that ``pack`` wrote; its arrays are views of the memory."""
    return unpack_value(memory.buffer)


def pack_value(value: Any) -> list[Any]:
    """Return ``value`` as buffers to be written one after another, without copying its arrays.

    The first buffer holds the lengths; the pickle and the arrays follow, each aligned to
    ``_ALIGN``.
    """
    buffers: list[pickle.PickleBuffer] = []
    body = dumps(value, buffers)
    raw: list[Any] = [body, *(buffer.raw() for buffer in buffers)]
    lengths = [memoryview(part).nbytes for part in raw]
    head = struct.pack(f"<{1 + len(raw)}Q", len(raw), *lengths)
    parts: list[Any] = []
    for part, length in zip((head, *raw), (len(head), *lengths)):
        parts += [part, bytes(-length % _ALIGN)]
    return parts


def unpack_value(payload: bytearray | mmap.mmap) -> Any:
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
    """Return an error that gives the path to the part of ``value`` that cannot be pickled."""
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
        return None  # mode "c" is copy-on-write: the file lacks the changes of this process
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    path = os.path.abspath(root.filename)
    mode = "c" if array.flags.writeable else "r"
    return path, mode, root.offset + start, array.shape, array.strides, array.dtype


def _mapped(
    path: str,
    mode: Any,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
) -> npt.NDArray[Any]:
    return np.ndarray(shape, dtype, np.memmap(path, np.uint8, mode), offset, strides)
