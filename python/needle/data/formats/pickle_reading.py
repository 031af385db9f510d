"""Restricted reading of the pickles that data sets are published as.

A pickle can call any function. Here the only globals are stand-ins for those that an array of
bytes needs (under NumPy's old and new module names). They run no NumPy code and allocate memory
only for bytes in the file. Every other global is refused. Called by datasets/cifar10.py.
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
    """Stand-in for ``numpy.dtype``; only unsigned bytes pass."""

    def __init__(self, kind: Any, *_: Any) -> None:
        text = kind.decode("latin1") if isinstance(kind, bytes) else kind
        if text not in ("u1", "|u1", "uint8"):
            raise ValueError(f"an array must have dtype uint8, got {kind!r}")

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and alignment, which single bytes do not have."""


class _Array:
    """Stand-in for ``numpy.ndarray``, filled by ``__setstate__`` like NumPy's."""

    value: npt.NDArray[np.uint8] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _DType):
            raise ValueError("an array must have dtype uint8")
        raw = data.encode("latin1") if isinstance(data, str) else data
        flat = np.frombuffer(raw, dtype=np.uint8)
        self.value = np.ascontiguousarray(flat.reshape(shape, order="F" if fortran else "C"))


def _reconstruct(kind: Any, shape: Any, typecode: Any) -> _Array:
    """Return an empty array to fill; stand-in for NumPy's function of this name."""
    if kind is not _Array:
        raise ValueError("only a plain ndarray can be reconstructed")
    return _Array()


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> _Array:
    """Return an array; stand-in for the function used by pickle protocol 5."""
    array = _Array()
    array.__setstate__((1, shape, dtype, order == "F", bytes(data)))
    return array


def _encode(text: Any, encoding: Any) -> bytes:
    """Return bytes; stand-in for ``_codecs.encode``, by which protocol 2 stores bytes."""
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
    """The unpickler in Python: a false length cannot make it allocate memory.

    Its memo is a dict, and its reads end with the data. Keys are numbers, text or bytes, since
    Python's hash of a deeply nested tuple ends the process. room: the bytes that stand-ins may
    make, since they may be called for one value any number of times.
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
        """Read a bytearray; the parent class would allocate the stated length first."""
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
    """Return the content of a pickle: a dict of lists, numbers, bytes and uint8 arrays, or one.

    Byte strings of Python 2 are returned as bytes; arrays may be read-only. limit: the maximum
    size of the file in bytes. Raises DataError, which names the file, for a refused global, a
    truncated, damaged or too large file; OSError if it cannot be opened.
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
    """Return ``value``, or a dict's values, with stand-ins replaced by their arrays."""
    if isinstance(value, dict):
        return {key: _unwrapped(item) for key, item in value.items()}
    return _unwrapped(value)


def _unwrapped(value: Any) -> Any:
    if not isinstance(value, _Array):
        return value
    if value.value is None:
        raise ValueError("an array without its data")
    return value.value
