"""ObjectCache: a cache of objects from stores in a local folder, up to a limit in bytes.

Any number of processes can share a cache. Entries are published by an atomic rename, so they are
always complete. The file ``bytes`` holds their total size. It is increased before an entry is
published, so after a crash it can only be too high; it is recomputed when room is needed. The least
recently used entries are evicted first. Called by remote_images.py and remote_packed.py. The caches
of fsspec (2026.9: simplecache, filecache) have neither a limit nor digests, so a full disk or a
corrupt entry would be an error. Files are private (mode 0600, folders 0700, whatever the umask),
and no symbolic link in the folder is followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from .. import config
from ..errors import DataError

ROOM_LEFT = 0.9
"""Fraction of the limit kept by an eviction, so that not every new entry causes one."""
STALE_SECONDS = 3600.0
"""Seconds after which an unfinished file is considered left behind by a crash."""
DIGEST = 16


@dataclass(frozen=True)
class ObjectCache:
    """A cache of ``limit`` bytes (None: NEEDLE_CACHE_BYTES) in ``folder`` (None: NEEDLE_CACHE_DIR).

    A limit of 0 turns the cache off. An unusable folder causes a warning, not an error.
    """

    folder: Path | None = None
    limit: int | None = None
    root: Path = field(init=False)
    """The folder of the entries, an absolute path."""

    def __post_init__(self) -> None:
        folder = Path(self.folder or config.CACHE_DIR.read()).expanduser()
        object.__setattr__(self, "root", folder.absolute())

    @property
    def capacity(self) -> int:
        """The limit in bytes. Raises DataError if the environment variable is not a number."""
        if self.limit is not None:
            return self.limit
        text = config.CACHE_BYTES.read()
        try:
            return int(float(text))
        except (ValueError, OverflowError):
            raise DataError(
                f"{config.CACHE_BYTES.name}: must be a number of bytes such as 10e9, got {text!r}"
            ) from None

    def fingerprint(self) -> str:
        """Return "", since the cache does not change the samples of a data set."""
        return ""

    # ---- small objects, read whole -----------------------------------------------------------

    def read(self, key: str) -> bytes | None:
        """Return the content of an entry; None if it is missing or its digest is wrong."""
        if not self.capacity:
            return None
        file = self._opened(key)
        if file is None:
            return None
        with file:
            found = file.read() if os.fstat(file.fileno()).st_size <= self.capacity else b""
        if _digest(key, found[DIGEST:]) == found[:DIGEST]:
            return found[DIGEST:]
        self.remove(key)
        return None

    def write(self, key: str, content: bytes) -> None:
        """Write an entry, unless it exceeds the limit."""
        size = DIGEST + len(content)
        if size > self.capacity:
            return
        path = self._path(key)
        partial = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
        try:
            _make_private(path.parent)
            try:
                with _private_file(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
                    file.write(_digest(key, content) + content)
                self._rename(partial, path, size)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            self._warn(error)

    # ---- large objects, mapped ---------------------------------------------------------------

    def open(self, key: str, size: int) -> IO[bytes] | None:
        """Return an entry's file, which has ``size`` bytes and a digest of its key, or None."""
        file = self._opened(key)
        if file is None:
            return None
        whole = os.fstat(file.fileno()).st_size == size + DIGEST
        if whole and os.pread(file.fileno(), DIGEST, size) == _digest(key):
            return file
        file.close()
        self.remove(key)
        return None

    @contextlib.contextmanager
    def claim(self, key: str, size: int, wait: bool) -> Iterator[IO[bytes] | None]:
        """Yield an empty file to fill and ``commit``; None if another process or thread has it.

        wait: wait until the other process or thread commits or dies. If the folder is unusable, the
        file is an unnamed temporary one. Raises DataError for a size that exceeds the limit.
        """
        if size + DIGEST > self.capacity:
            raise DataError(
                f"the cache {self.root} must have room for an object of {size + DIGEST} bytes, got "
                f"a limit of {self.capacity}; raise ObjectCache(limit=) or "
                f"{config.CACHE_BYTES.name}"
            )
        partial = self._partial(key)
        try:
            _make_private(partial.parent)
            file = _locked(partial, wait)
            if file is not None:
                _reserve(file, size + DIGEST)
        except OSError as error:
            self._warn(error)
            file = _temporary(size)
        if file is None:
            yield None
            return
        with file:
            try:
                yield file
            finally:
                if _is_at(file, partial):  # the entry was not committed
                    partial.unlink(missing_ok=True)
                fcntl.flock(file, fcntl.LOCK_UN)  # a memory map of the file would keep the lock

    def commit(self, key: str, file: IO[bytes]) -> None:
        """Publish a complete file from ``claim`` as the entry."""
        partial, path = self._partial(key), self._path(key)
        try:
            file.write(_digest(key))
            file.flush()
            if _is_at(file, partial):
                os.fsync(file.fileno())
                self._rename(partial, path, os.fstat(file.fileno()).st_size)
        except OSError as error:
            self._warn(error)

    def remove(self, key: str) -> None:
        """Remove a corrupt entry."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    # ---- the limit ----------------------------------------------------------------------------

    def _rename(self, partial: Path, path: Path, size: int) -> None:
        """Rename the file to the entry's path, evicting other entries if it needs room."""
        with _private_file(self.root / "bytes", os.O_RDWR | os.O_CREAT) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            text = file.read(32)
            used = int(text) if text.isdigit() else self._make_room(self.capacity - size)
            if used + size > self.capacity:
                used = self._make_room(min(self.capacity - size, int(self.capacity * ROOM_LEFT)))
            file.seek(0)
            file.truncate(0)
            file.write(b"%d" % (used + size))
            file.flush()
            os.replace(partial, path)

    def _make_room(self, keep: int) -> int:
        """Evict the least recently used entries until at most ``keep`` bytes are left."""
        entries, used, now = [], 0, time.time()
        for folder in self.root.glob("??"):
            for entry in os.scandir(folder) if not folder.is_symlink() else ():
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if not entry.name.endswith(".part"):
                        entries.append((status.st_mtime_ns, status.st_size, entry.path))
                        used += status.st_size
                    elif now - status.st_mtime > STALE_SECONDS:
                        os.unlink(entry.path)
        for _, size, name in sorted(entries):
            if used <= keep:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            used -= size
        return used

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:40]
        return self.root / name[:2] / name

    def _partial(self, key: str) -> Path:
        path = self._path(key)
        return path.with_name(path.name + ".part")

    def _opened(self, key: str) -> IO[bytes] | None:
        """Open the entry and mark it as most recently used; return None if it is missing."""
        path = self._path(key)
        try:
            _check_folder(path.parent)
            file = _private_file(path, os.O_RDONLY)
            os.utime(file.fileno())
        except OSError:
            return None
        return file

    def _warn(self, error: OSError) -> None:
        warnings.warn(
            f"needle's cache {self.root} cannot be written to ({error}); objects are fetched from "
            f"the store again in every epoch",
            RuntimeWarning,
            stacklevel=3,
        )


# ---- private files -------------------------------------------------------------------------------


def _make_private(folder: Path) -> None:
    """Create the folder and its parents with mode 0700; raise OSError for a symbolic link."""
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            with contextlib.suppress(FileExistsError):
                each.mkdir(mode=0o700)
    _check_folder(folder)


def _check_folder(folder: Path) -> None:
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise NotADirectoryError(f"{folder} is a symbolic link or not a folder")


def _private_file(path: Path, flags: int) -> IO[bytes]:
    """Open or create a file with mode 0600; raise OSError unless it is a regular file."""
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(handle)
        raise FileExistsError(f"{path} is a symbolic link or not a regular file")
    modes = {os.O_RDONLY: "rb", os.O_WRONLY: "wb", os.O_RDWR: "r+b"}
    return os.fdopen(handle, modes[flags & os.O_ACCMODE])


def _temporary(size: int) -> IO[bytes]:
    """Return an unnamed temporary file; raise DataError if there is no room for it."""
    try:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by claim
        _reserve(file, size + DIGEST)
    except OSError as error:
        raise DataError(
            f"{tempfile.gettempdir()}: there is no room for an object of {size} bytes, neither "
            f"here nor in the cache ({error}); free some space, or choose another folder with "
            f"ObjectCache(folder=) or {config.CACHE_DIR.name}"
        ) from error
    return file


def _reserve(file: IO[bytes], size: int) -> None:
    """Truncate the file and reserve its bytes, so that a full disk raises an error here."""
    file.truncate(0)
    file.seek(0)
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # unsupported here
                raise


def _digest(key: str, content: bytes = b"") -> bytes:
    digest = hashlib.md5(key.encode("utf-8", "surrogateescape") + b"\0", usedforsecurity=False)
    digest.update(content)
    return digest.digest()


def _locked(path: Path, wait: bool) -> IO[bytes] | None:
    """Return the locked file, or None if another process has it; retry if it was renamed."""
    while True:
        file = _private_file(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        if _is_at(file, path):
            return file
        file.close()
        if not wait:
            return None


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Return True if the open file is the one at ``path``."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(path))
    except OSError:
        return False
