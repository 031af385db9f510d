"""Fingerprints of data sets, equal only if the samples are, as far as the contents can tell.

A server gets its data set pickled. The fingerprint therefore covers the contents of the pickle
(arrays, options, transforms), the code of classes that are not installed, and the size and times of
every file and folder named in it. client/joining.py and serving/ call it.
"""

from __future__ import annotations

import copyreg
import hashlib
import os
import resource
import stat
import sys
import types
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from ...config import reading_environment

MOST_FILES = 2_000_000
"""Number of files in a folder from which a data set counts as different from all others."""
LONGEST_PATH = 4096
INSTALLED = tuple(
    os.path.realpath(path) + os.sep
    for path in (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
)
"""Folders of code identified by name alone: Python, installed packages, needle."""
_ATOMS = (int, float, complex, bool, str, type(None), type(Ellipsis))
_OF_PYTHON = ("__doc__", "__firstlineno__", "__annotations__", "_abc_impl")
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
"""Attributes of a class that Python adds."""


def fingerprint(dataset: Any) -> str:
    """Return a digest that changes whenever the samples of the data set may.

    A class with a method ``fingerprint()`` is represented by its result. A data set that cannot be
    pickled equals no other, not even itself. If code that is not installed changes a file when the
    first sample is read, the file is taken for a log.
    """
    contents = _Contents()
    try:
        contents.add(dataset)
    except Exception:  # unpicklable, so equal to no other data set
        contents.digest.update(os.urandom(16))
    if contents.own_code:
        contents.note("folder", os.path.realpath(os.curdir))  # its code may open relative paths
        if contents.files:
            with suppress(BaseException):  # reading a sample may write a log file
                dataset[0]
    unchanged = [row for row in contents.files.items() if _times_of(row[0]) == row[1]]
    contents.note("files", sorted(unchanged, key=repr))
    return contents.digest.hexdigest()


def surroundings() -> str:
    """Return a digest of what a server inherits from the process that starts it.

    It covers the hard resource limits, the priority, the environment variables that needle and
    object stores read, and the installed Python.
    """
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    limits = [(name, resource.getrlimit(getattr(resource, name))[1]) for name in names]
    values = (limits, os.getpriority(os.PRIO_PROCESS, 0), sys.version, INSTALLED)
    contents = _Contents()
    contents.add([repr(values), reading_environment()])
    return contents.digest.hexdigest()[:12]


class _Contents:
    """A digest of values, each hashed with its type, so that no two are confused."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=12)
        self._open: dict[int, int] = {}  # ids of values being added, to detect cycles
        self._code: dict[int, int] = {}  # functions and classes that have been added
        self._modules: set[str] = set()
        self.files: dict[str | bytes, tuple[int, ...]] = {}  # files with their times

    @property
    def own_code(self) -> bool:
        """True if a class or function is not installed."""
        return bool(self._modules or self._code)

    def add(self, value: Any) -> None:
        """Add a value and, recursively, everything in it."""
        kind = type(value)
        if kind in _ATOMS:
            self.note(kind.__name__, value)
            if kind is str:
                self._add_path(value)
        elif kind in (np.ndarray, np.memmap):
            self._add_array(value)
        elif id(value) in self._open:
            self.note("cycle", len(self._open) - self._open[id(value)])
        else:
            self._open[id(value)] = len(self._open)
            try:
                self._add_parts(value, kind)
            finally:
                del self._open[id(value)]

    def note(self, what: str, value: Any) -> None:
        """Add the text of a value."""
        text = repr(value).encode("utf-8", "surrogatepass")
        self.digest.update(b"%s %d:" % (what.encode(), len(text)))
        self.digest.update(text)

    def _add_parts(self, value: Any, kind: type) -> None:
        if kind in (tuple, list):
            self.note(kind.__name__, len(value))
            if all(type(each) in _ATOMS for each in value):  # there may be a million names
                self.note("values", value)
                for each in value:
                    if type(each) is str:
                        self._add_path(each)
            else:
                self._add_all(value)
        elif kind in (bytes, bytearray):
            self.note(kind.__name__, len(value))
            self.digest.update(value)
            self._add_path(value)
        elif kind in (set, frozenset):
            self.note(kind.__name__, sorted(map(_digest_of, value)))
        elif kind is dict:
            self.note("dict", len(value))
            self._add_all(chain.from_iterable(value.items()))
        elif isinstance(value, PurePath):
            name = os.path.realpath(value)
            self.note("path", name if self._add_path(name, folders=True) else str(value))
        elif isinstance(value, types.ModuleType):
            self._add_module(value.__name__)
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, types.CodeType):
            self._add_code(value)
        elif isinstance(value, (staticmethod, classmethod)):
            self.add(value.__func__)
        elif isinstance(value, property):
            self._add_all((value.fget, value.fset))
        elif isinstance(value, type):
            self._add_class(value)
        elif callable(getattr(kind, "fingerprint", None)):
            self.note("fingerprint", kind.__qualname__)
            self.add(value.fingerprint())
        else:
            self._add_object(value, kind)

    def _add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def _add_array(self, array: npt.NDArray[Any]) -> None:
        self.note("array", (str(array.dtype), array.shape))
        file = _mapped_file(array)
        if file is not None:
            self.note("mapped", (file, array.strides))
            self._add_path(file[0])
        elif array.dtype.hasobject:
            self._add_all(array.ravel().tolist())
        else:  # memory order needs no copy
            order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
            dense = np.ascontiguousarray(array.transpose(order))
            self.note("order", order)
            self.digest.update(dense.reshape(-1).view(np.uint8).data)

    def _add_object(self, value: Any, kind: type) -> None:
        """Add the state that pickling an object would keep."""
        reduce = copyreg.dispatch_table.get(kind)
        reduced = value.__reduce_ex__(5) if reduce is None else reduce(value)
        if isinstance(reduced, str):  # a global name, such as a cached function
            self.note("global", (getattr(value, "__module__", None), reduced))
            self._add_module(str(getattr(value, "__module__", None)))
            self.add(getattr(value, "__wrapped__", None))
            return
        function, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        self.note("object", kind.__qualname__)
        self._add_all((function, arguments))
        if isinstance(state, dict):
            for each in state.values():
                if isinstance(each, str):  # an attribute that holds a folder
                    self._add_path(each, folders=True)
        self._add_all((state, list(items or ()), list(pairs or ())))

    # ---- code

    def _add_class(self, kind: type) -> None:
        self.note("class", (kind.__module__, kind.__qualname__))
        if _is_imported(kind):
            self._add_module(kind.__module__)
        elif self._is_new(kind):
            self._add_all(kind.__bases__)
            for name, value in sorted(vars(kind).items()):
                if name not in _OF_PYTHON and type(value) not in _DESCRIPTORS:
                    self.note("member", name)
                    self.add(value)

    def _add_function(self, function: types.FunctionType) -> None:
        self.note("function", (function.__module__, function.__qualname__))
        if _is_imported(function):
            self._add_module(function.__module__)
        elif self._is_new(function):  # pickled by value
            self._add_code(function.__code__)
            self._add_all((function.__defaults__, function.__kwdefaults__))
            self._add_all(cell.cell_contents for cell in function.__closure__ or ())
            for name in sorted(_names(function.__code__) & function.__globals__.keys()):
                self.note("global", name)
                try:
                    self.add(function.__globals__[name])
                except Exception:  # unpicklable, so no sample on the server depends on it
                    self.note("unreadable", name)

    def _is_new(self, value: Any) -> bool:
        new = id(value) not in self._code
        self.note("number", self._code.setdefault(id(value), len(self._code)))
        return new

    def _add_code(self, code: types.CodeType) -> None:
        self.note("code", (code.co_code, code.co_names, code.co_varnames, code.co_freevars))
        for constant in code.co_consts:
            self.add(constant)

    def _add_module(self, name: str) -> None:
        """Add the files of a module and of those it uses, except for installed ones."""
        for file in sorted(self._files_of(name)):
            self._add_path(file)

    def _files_of(self, name: str) -> set[str]:
        module, found = sys.modules.get(name), set[str]()
        file = getattr(module, "__file__", None)
        if name in self._modules or not file:
            return found
        file = os.path.realpath(file)
        if file.startswith(INSTALLED):
            return found
        self._modules.add(name)
        found.add(file)
        for value in list(vars(module).values()):
            name_of = "__name__" if isinstance(value, types.ModuleType) else "__module__"
            with suppress(Exception):  # an object with dynamic attributes
                found |= self._files_of(str(getattr(value, name_of, None)))
        return found

    # ---- files

    def _add_path(self, path: Any, folders: bool = False) -> bool:
        """Add size and times of a file or of a folder's files; return False if it is missing."""
        try:
            name = os.fspath(path)
            if len(name) > LONGEST_PATH:
                return False
            status = os.stat(name)
        except (OSError, ValueError):
            return False
        if not stat.S_ISDIR(status.st_mode):
            self.files[name] = _times(status)
        elif folders and os.path.realpath(path) != os.sep:
            self._add_folder(os.path.realpath(path))
        return True

    def _add_folder(self, folder: str) -> None:
        rows: list[tuple[Any, ...]] = []
        seen: set[tuple[int, int]] = set()
        for path, below, names in os.walk(folder, followlinks=True):
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in seen:  # a link that closes a cycle
                below.clear()
                continue
            seen.add((status.st_dev, status.st_ino))
            rows += [(path, name, _times_of(os.path.join(path, name))) for name in names]
            if len(rows) > MOST_FILES:
                rows.append((os.urandom(16),))
                break
        self.note("folder", (folder, sorted(rows, key=repr)))


def _times_of(path: str | bytes) -> tuple[int, ...] | None:
    try:
        return _times(os.stat(path))
    except OSError:
        return None


def _times(status: os.stat_result) -> tuple[int, ...]:
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_dev, status.st_ino, status.st_size, *times)


def _digest_of(value: Any) -> str:
    contents = _Contents()
    contents.add(value)
    return contents.digest.hexdigest()


def _is_imported(value: Any) -> bool:
    """Return True for a class or function that another process can import by name."""
    return value.__module__ not in (None, "__main__") and "<" not in value.__qualname__


def _names(code: types.CodeType) -> set[str]:
    """Return the names that a function and its inner functions may look up as globals.

    Attribute names are among them. A global with the same name may make equal data sets count as
    different, but never different ones as equal.
    """
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _mapped_file(array: npt.NDArray[Any]) -> tuple[str, int] | None:
    """Return the path and offset of an array that is a read-only map of a file."""
    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.mode != "r" or root.filename is None:
        return None
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return os.path.abspath(root.filename), root.offset + start
