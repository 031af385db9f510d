"""A restricted unpickler for data sets that are published as pickles.

A pickle can call any function. This unpickler allows only stand-ins for the globals that a byte
array needs (under NumPy's old and new module names). The stand-ins run no NumPy code and allocate
memory only for bytes that are in the file. Every other global is refused. Called by
datasets/cifar10.py.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from .files import read_file


class _DType:
    """Stand-in for ``numpy.dtype`` that accepts only unsigned bytes."""

    def __init__(self, kind: Any, *_: Any) -> None:
        text = kind.decode("latin1") if isinstance(kind, bytes) else kind
        if text not in ("u1", "|u1", "uint8"):
            raise ValueError(f"an array must have dtype uint8, got {kind!r}")

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and alignment, which do not apply to single bytes."""


class _Array:
    """Stand-in for ``numpy.ndarray``; its ``__setstate__`` sets the data as NumPy's does."""

    value: npt.NDArray[np.uint8] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _DType):
            raise ValueError("an array must have dtype uint8")
        raw = data.encode("latin1") if isinstance(data, str) else data
        flat = np.frombuffer(raw, dtype=np.uint8)
        self.value = np.ascontiguousarray(flat.reshape(shape, order="F" if fortran else "C"))


def _reconstruct(kind: Any, shape: Any, typecode: Any) -> _Array:
    """Return an empty array; stand-in for NumPy's function of the same name."""
    if kind is not _Array:
        raise ValueError("only a plain ndarray can be reconstructed")
    return _Array()


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> _Array:
    """Return an array; stand-in for the function that pickle protocol 5 calls."""
    array = _Array()
    array.__setstate__((1, shape, dtype, order == "F", bytes(data)))
    return array


def _encode(text: Any, encoding: Any) -> bytes:
    """Return bytes; stand-in for ``_codecs.encode``, by which protocol 2 represents bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError(f"bytes must be written as latin1 text, got {encoding!r}")
    return text.encode("latin1")


ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _encode,
    **{
        (module, name): stand_in
        for core in ("numpy.core", "numpy._core")
        for module, name, stand_in in (
            (f"{core}.multiarray", "_reconstruct", _reconstruct),
            (f"{core}.numeric", "_frombuffer", _frombuffer),
        )
    },
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
}


class _Unpickler(pickle._Unpickler):
    """A pure-Python unpickler, which allocates no memory for lengths that exceed the data.

    Its memo is a dict, and it cannot read beyond the data. Dict keys must be numbers, text or
    bytes, since hashing a deeply nested tuple crashes Python. room: the total bytes that stand-ins
    may allocate, since a pickle may call them any number of times for one value.
    """

    def __init__(self, stream: io.BytesIO, room: int) -> None:
        super().__init__(stream, encoding="bytes")
        self.room = room

    def find_class(self, module: str, name: str) -> Any:
        try:
            found = ADMITTED[module, name]
        except KeyError:
            raise DataError(
                f"the pickle asks for {module}.{name}, which a data set does not need"
            ) from None
        if found not in (_encode, _frombuffer):
            return found
        return lambda data, *arguments: found(self._take(data), *arguments)

    def _take(self, data: Any) -> Any:
        self.room -= len(data)
        if self.room < 0:
            raise ValueError("its values are larger than the file")
        return data

    def _load_build(self: Any) -> None:
        if isinstance(self.stack[-2], _Array):
            self._take(self.stack[-1][-1])
        pickle._Unpickler.dispatch[pickle.BUILD[0]](self)

    def _load_items(self: Any, items: list[Any] | None = None) -> None:
        items = self.pop_mark() if items is None else items
        if not all(isinstance(key, (str, bytes, int, float)) for key in items[::2]):
            raise ValueError("a key of a dict must be a number, text or bytes")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def _load_item(self: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._load_items([key, value])

    def _load_dict(self: Any) -> None:
        items = self.pop_mark()
        self.append({})
        self._load_items(items)

    def _load_bytearray(self: Any) -> None:
        """Read a bytearray without first allocating the stated length, as the parent class does."""
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(size)))

    dispatch = {  # noqa: RUF012
        **pickle._Unpickler.dispatch,
        pickle.BYTEARRAY8[0]: _load_bytearray,
        pickle.SETITEMS[0]: _load_items,
        pickle.SETITEM[0]: _load_item,
        pickle.DICT[0]: _load_dict,
        pickle.BUILD[0]: _load_build,
    }
    for _set in (pickle.EMPTY_SET, pickle.FROZENSET, pickle.ADDITEMS):
        del dispatch[_set[0]]


def read_pickle(path: str | os.PathLike[str], limit: int = 1 << 28) -> Any:
    """Return the content of a pickle: numbers, bytes, lists, uint8 arrays, or a dict of these.

    Byte strings of Python 2 are returned as bytes; arrays may be read-only. limit: the maximum
    size of the file in bytes. Raises DataError, which names the file, if the pickle uses a refused
    global or the file is truncated, damaged or too large; raises OSError if it cannot be opened.
    """
    content = read_file(path, limit)
    size, stream = len(content), io.BytesIO(content)
    try:
        return _plain(_Unpickler(stream, 3 * size).load())
    except DataError as error:
        raise DataError(f"{path}: {error}; refused, use a file from its official source") from None
    except Exception as error:
        raise DataError(
            f"{path}: not a whole data set pickle, reading stopped at byte {stream.tell()} of "
            f"{size} ({type(error).__name__}: {error!s:.300}); fetch it again"
        ) from error


def _plain(value: Any) -> Any:
    """Return ``value`` with stand-ins, also in a dict's values, replaced by their arrays."""
    if isinstance(value, dict):
        return {key: _unwrapped(item) for key, item in value.items()}
    return _unwrapped(value)


def _unwrapped(value: Any) -> Any:
    if not isinstance(value, _Array):
        return value
    if value.value is None:
        raise ValueError("an array must have data")
    return value.value
