"""ObjectCache: objects of stores in a folder of this machine, up to a limit of bytes.

Any number of processes share a cache. Entries appear whole, by renaming. The file ``bytes`` has
their total size; it is raised before an entry appears, so after a crash it is too high at most, and
it is counted again when room is needed. The least recently used entries are removed first. Called
by remote_images.py and remote_packed.py. The caches of fsspec (2026.9: simplecache, filecache)
have neither a limit nor digests, so a full disk or a damaged entry would end in an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ... import config
from ...errors import DataError

ROOM_LEFT = 0.9
"""Part of the limit that is kept when room is made, so that it is not made for every entry."""
STALE_SECONDS = 3600.0
"""Age at which an unfinished file is considered left by a crash."""
DIGEST = 16


@dataclass(frozen=True)
class ObjectCache:
    """A cache in ``folder`` (None: NEEDLE_CACHE_DIR) of ``limit`` bytes (None: NEEDLE_CACHE_BYTES).

    limit 0 keeps nothing. A folder that cannot be written to causes a warning, not an error.
    """

    folder: Path | None = None
    limit: int | None = None

    @property
    def root(self) -> Path:
        """Folder of the entries."""
        return Path(self.folder or config.CACHE_DIR.read()).expanduser()

    @property
    def capacity(self) -> int:
        """Limit in bytes; DataError if the environment variable is no number."""
        if self.limit is not None:
            return self.limit
        text = config.CACHE_BYTES.read()
        try:
            return int(float(text))
        except (ValueError, OverflowError):
            raise DataError(
                f"{config.CACHE_BYTES.name}: must be a number of bytes as 10e9, got {text!r}"
            ) from None

    # ---- small objects, read whole -----------------------------------------------------------

    def read(self, key: str) -> bytes | None:
        """Return the entry; None if there is none or its digest is wrong."""
        if not self.capacity:
            return None
        path = self._path(key)
        try:
            with open(path, "rb", buffering=0) as file:
                found = file.read()
                os.utime(file.fileno())
        except OSError:
            return None
        if _digest(memoryview(found)[DIGEST:]) != found[:DIGEST]:
            path.unlink(missing_ok=True)
            return None
        return found[DIGEST:]

    def write(self, key: str, content: bytes) -> None:
        """Write an entry if it fits into the limit."""
        size = DIGEST + len(content)
        if size > self.capacity:
            return
        path = self._path(key)
        partial = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                with open(partial, "wb", buffering=0) as file:
                    file.write(_digest(content) + content)
                self._rename(partial, path, size)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            warnings.warn(
                f"needle's cache {self.root} cannot be written to ({error}); objects are fetched "
                f"from the store again in every epoch",
                RuntimeWarning,
                stacklevel=2,
            )

    # ---- large objects, mapped ---------------------------------------------------------------

    def file(self, key: str, size: int) -> Path | None:
        """Return the file of the entry; None if there is none of this size."""
        path = self._path(key)
        try:
            if path.stat().st_size != size:
                return None
            os.utime(path)
        except OSError:
            return None
        return path

    @contextlib.contextmanager
    def claim(self, key: str, wait: bool) -> Iterator[IO[bytes] | None]:
        """Give an empty file to fill and ``commit``; None if another process or thread has it.

        wait: wait for the other one, until it commits or dies.
        """
        path = self._path(key)
        partial = path.with_name(path.name + ".part")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = _locked(partial, wait)
        if file is None:
            yield None
            return
        with file:
            file.truncate(0)
            try:
                yield file
            finally:
                if _is_at(file, partial):  # not committed
                    partial.unlink(missing_ok=True)

    def commit(self, key: str, file: IO[bytes]) -> Path:
        """Make the complete file of ``claim`` the entry; return its path."""
        file.flush()
        os.fsync(file.fileno())
        path, size = self._path(key), os.fstat(file.fileno()).st_size
        if size > self.capacity:
            raise DataError(
                f"the cache {self.root} must have room for an object of {size} bytes, got a limit "
                f"of {self.capacity}; give ObjectCache(limit=) or {config.CACHE_BYTES.name} more"
            )
        self._rename(path.with_name(path.name + ".part"), path, size)
        return path

    def remove(self, key: str) -> None:
        """Remove a damaged entry."""
        self._path(key).unlink(missing_ok=True)

    # ---- the limit ----------------------------------------------------------------------------

    def _rename(self, partial: Path, path: Path, size: int) -> None:
        """Rename to the entry, after removing others if there is no room for it."""
        with open(self.root / "bytes", "a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read(32)
            used = int(text) if text.isdigit() else self._make_room(self.capacity - size)
            if used + size > self.capacity:
                used = self._make_room(min(self.capacity - size, int(self.capacity * ROOM_LEFT)))
            file.truncate(0)
            file.write(b"%d" % (used + size))
            os.replace(partial, path)

    def _make_room(self, keep: int) -> int:
        """Remove the least recently used entries until at most ``keep`` bytes are left."""
        entries, used, now = [], 0, time.time()
        for folder in self.root.glob("??"):
            for entry in os.scandir(folder):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat()
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


def _digest(content: bytes | memoryview) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()


def _locked(path: Path, wait: bool) -> IO[bytes] | None:
    """Return the file locked, None if another has it; retry if it was renamed meanwhile."""
    while True:
        file = open(path, "a+b")  # noqa: SIM115 - handed on, or closed here
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
    """Return True if the open file is the one of that name."""
    try:
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False
