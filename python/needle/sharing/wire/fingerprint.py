"""Fingerprints of data sets, which are equal only if the contents imply equal samples.

A server gets its data set pickled. The fingerprint therefore covers the contents of the pickle
(arrays, options, transforms), the code of classes that are not installed, and the size and times of
every file and folder named in it. client/joining.py and serving/ call it.
"""

from __future__ import annotations

import copyreg
import hashlib
import os
import pickle
import resource
import stat
import sys
import types
from contextlib import suppress
from pathlib import Path, PurePath
from types import SimpleNamespace
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
_OF_PYTHON = (
    *("__doc__", "__firstlineno__", "__static_attributes__", "_abc_impl"),
    *("__annotations__", "__annotate_func__", "__annotations_cache__"),  # the last two since 3.14
)
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)
"""Attributes of a class that Python adds."""


def fingerprint(dataset: Any) -> str:
    """Return a digest that changes whenever the samples of the data set may.

    An object with a method ``fingerprint()`` is represented by its result. A data set that cannot
    be pickled is equal to no other, not even to itself. If code that is not installed changes a
    file when the first sample is read, the file is assumed to be a log.
    """
    contents = _Contents()
    try:
        contents.dump(dataset)
    except Exception:  # unpicklable, so equal to no other data set
        contents.digest.update(os.urandom(16))
    if contents.own_code:
        contents.digest.update(os.fsencode(os.path.realpath(os.curdir)))  # for relative names
        if contents.files:
            with suppress(BaseException):  # reading a sample may write a log file
                dataset[0]
    unchanged = [row for row in contents.files.items() if _times_of(row[0]) == row[1]]
    contents.digest.update(repr(sorted(unchanged, key=repr)).encode(errors="surrogatepass"))
    return contents.digest.hexdigest()


def surroundings() -> str:
    """Return a digest of what a server inherits from the process that starts it.

    It covers the hard resource limits, the priority, the environment variables that needle and
    object stores read, and the installed Python.
    """
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    limits = [(name, resource.getrlimit(getattr(resource, name))[1]) for name in names]
    values = (limits, os.getpriority(os.PRIO_PROCESS, 0), sys.version, INSTALLED)
    return _digest_of([repr(values), reading_environment()])[:12]


class _Contents(pickle.Pickler):
    """A digest of pickled values, with arrays, sets, paths and code replaced by descriptions."""

    def __init__(self, outer: _Contents | None = None) -> None:
        self.digest = hashlib.blake2b(digest_size=12)
        super().__init__(SimpleNamespace(write=self.digest.update), protocol=5)
        # the functions and classes added so far, modules, and files with their times
        self.code: dict[int, int] = {} if outer is None else outer.code
        self.modules: set[str] = set() if outer is None else outer.modules
        self.files: dict[str | bytes, tuple[int, ...]] = {} if outer is None else outer.files

    @property
    def own_code(self) -> bool:
        """True if a class or function is not installed."""
        return bool(self.modules or self.code)

    def persistent_id(self, value: Any) -> Any:
        """Add the file that a string names; return what replaces a string or a set."""
        kind = type(value)
        if kind in (set, frozenset):
            return kind.__name__, sorted(map(_digest_of, value))
        if kind in (str, bytes, bytearray):
            self._add_path(value)
        # a new object for each string, so that the digest does not depend on shared objects
        return f"text {value}" if kind is str else None

    def reducer_override(self, value: Any) -> Any:
        """Return the parts that replace an object; called by the pickler."""
        kind = type(value)
        if value is _parts:
            return NotImplemented
        if kind in (np.ndarray, np.memmap):
            return _parts, self._array(value)
        if isinstance(value, PurePath):
            name = os.path.realpath(value)
            return _parts, ("path", name if self._add_path(name, folders=True) else str(value))
        if isinstance(value, types.ModuleType):
            self._add_module(value.__name__)
            return _parts, ("module", value.__name__)
        if isinstance(value, (type, types.FunctionType)):
            return _parts, self._named(value)
        if isinstance(value, types.CodeType):
            return _parts, self._instructions(value)
        if isinstance(value, (staticmethod, classmethod)):
            return _parts, (kind, value.__func__)
        if isinstance(value, property):
            return _parts, (kind, value.fget, value.fset)
        # each field of a dataclass has a mapping as metadata
        if isinstance(value, types.MappingProxyType):
            return _parts, ("mapping", dict(value))
        if callable(getattr(kind, "fingerprint", None)):
            return _parts, (kind.__qualname__, value.fingerprint())
        return self._object(value, kind)

    def _array(self, array: npt.NDArray[Any]) -> tuple[Any, ...]:
        known = ("array", str(array.dtype), array.shape)
        file = _mapped_file(array)
        if file is not None:
            self._add_path(file[0])
            return (*known, file, array.strides)
        if array.dtype.hasobject:
            return (*known, array.ravel().tolist())
        # in memory order, which needs no copy
        order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        dense = np.ascontiguousarray(array.transpose(order)).reshape(-1).view(np.uint8)
        return (*known, order, hashlib.blake2b(dense.data).digest())

    def _object(self, value: Any, kind: type) -> Any:
        """Return what pickling an object would keep."""
        reduce = copyreg.dispatch_table.get(kind)
        reduced: Any = value.__reduce_ex__(5) if reduce is None else reduce(value)
        if isinstance(reduced, str):  # a global name, such as a cached function
            module = str(getattr(value, "__module__", None))
            self._add_module(module)
            return _parts, (module, reduced, getattr(value, "__wrapped__", None))
        state = reduced[2] if len(reduced) > 2 else None
        for each in state.values() if isinstance(state, dict) else ():
            if isinstance(each, str):  # an attribute that holds a folder
                self._add_path(each, folders=True)
        return reduced

    # ---- code

    def _named(self, value: Any) -> tuple[Any, ...]:
        """Return the parts of a class or function, including its code if it cannot be imported."""
        name = (value.__module__, value.__qualname__)
        if _is_imported(value):
            self._add_module(value.__module__)
            return name
        new = id(value) not in self.code
        number = self.code.setdefault(id(value), len(self.code))
        if not new:
            return *name, number
        if isinstance(value, type):
            members = sorted(vars(value).items())
            kept = [m for m in members if m[0] not in _OF_PYTHON and type(m[1]) not in _DESCRIPTORS]
            return *name, number, value.__bases__, kept
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        found = value.__globals__
        names = sorted(_names(value.__code__) & found.keys())
        given = (value.__defaults__, value.__kwdefaults__, cells)
        used = [(name, self._of_global(found[name])) for name in names]
        return *name, number, value.__code__, given, used

    def _of_global(self, value: Any) -> str:
        """Return the digest of a global that a function may look up."""
        part = _Contents(self)
        try:
            part.dump(value)
        except Exception:  # unpicklable, so no sample on the server depends on it
            return "unreadable"
        return part.digest.hexdigest()

    def _instructions(self, code: types.CodeType) -> tuple[Any, ...]:
        names = (code.co_names, code.co_varnames, code.co_freevars)
        return code.co_code, names, code.co_consts

    def _add_module(self, name: str) -> None:
        """Add the files of a module and of the modules that it uses, except installed ones."""
        for file in sorted(self._files_of(name)):
            self._add_path(file)

    def _files_of(self, name: str) -> set[str]:
        module, found = sys.modules.get(name), set[str]()
        file = getattr(module, "__file__", None)
        if name in self.modules or not file:
            return found
        file = os.path.realpath(file)
        if file.startswith(INSTALLED):
            return found
        self.modules.add(name)
        found.add(file)
        for value in list(vars(module).values()):
            name_of = "__name__" if isinstance(value, types.ModuleType) else "__module__"
            with suppress(Exception):  # an object with dynamic attributes
                found |= self._files_of(str(getattr(value, name_of, None)))
        return found

    # ---- files

    def _add_path(self, path: Any, folders: bool = False) -> bool:
        """Add size and times of a file or a folder's files; return False if it is missing."""
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
        self.digest.update(repr((folder, sorted(rows, key=repr))).encode(errors="surrogatepass"))


def _parts(*parts: Any) -> None:
    """Represent an object in a pickle that is never loaded."""


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
    contents.dump(value)
    return contents.digest.hexdigest()


def _is_imported(value: Any) -> bool:
    """Return True for a class or function that another process can import by name."""
    return value.__module__ not in (None, "__main__") and "<" not in value.__qualname__


def _names(code: types.CodeType) -> set[str]:
    """Return the names that a function and its inner functions may look up as globals.

    They include attribute names. A global with such a name may make equal data sets look different,
    but never different ones equal.
    """
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _mapped_file(array: npt.NDArray[Any]) -> tuple[str, int] | None:
    """Return the path and offset of a read-only memory-mapped array, else None."""
    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.mode != "r" or root.filename is None:
        return None
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return os.path.abspath(root.filename), root.offset + start
