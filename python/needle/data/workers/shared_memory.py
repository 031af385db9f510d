"""Shared memory without a name in a file system, so that nothing is left behind after a crash.

All pages are allocated on creation, so that a lack of memory raises an exception there and never
causes a bus error later. work_queue.py, shared_ring.py and pickling.py define the contents.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import tempfile
from pathlib import Path

from ...errors import WorkerError
from .limits import described_limit, limit_error

PAGE = mmap.PAGESIZE
_PIECE = 64 << 20  # bytes allocated at a time; signals are handled in between


class Memory:
    """A block of ``size`` bytes, initially zero, mapped once in each process that attaches to it.

    fd: the descriptor to send to another process. buffer: the mapping. Views of the mapping stay
    valid after ``close``; the memory is unmapped once the last view is gone.
    """

    def __init__(self, size: int, purpose: str, folder: str | None = None) -> None:
        """Allocate memory; error messages name its ``purpose``.

        folder: the folder of an unlinked file; None for a memfd where the system has it. Raises
        WorkerError with the needed bytes, the available bytes and a remedy if there is not enough
        memory.
        """
        self.size = max(PAGE, -(-size // PAGE) * PAGE)
        self.purpose = purpose
        _check_room(self.size, purpose)
        self.fd = _anonymous_file(folder, purpose)
        try:
            os.ftruncate(self.fd, self.size)
            _allocate(self.fd, self.size)
            self.buffer = _map(self.fd, self.size, mmap.ACCESS_WRITE)
        except (OSError, OverflowError, ValueError) as error:
            os.close(self.fd)
            raise _no_room(self.size, purpose, None, error) from error
        except BaseException:
            os.close(self.fd)
            raise

    @classmethod
    def attach(cls, fd: int, size: int, *, writable: bool, private: bool = False) -> Memory:
        """Map memory from a descriptor that another process sent, and take over the descriptor.

        private: map copy-on-write, as after a fork; the mapping is read-only if the system cannot
        reserve memory for copies of all pages.
        """
        memory = cls.__new__(cls)
        memory.size, memory.purpose, memory.fd = size, "attached", fd
        if private:
            with contextlib.suppress(OSError, OverflowError, ValueError):
                memory.buffer = _map(fd, size, mmap.ACCESS_COPY)
                return memory
        memory.buffer = _map(fd, size, mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        return memory

    def close(self) -> None:
        """Close the descriptor, and unmap the memory unless views of it exist."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
        with contextlib.suppress(BufferError):  # views still exist; the last one unmaps the memory
            self.buffer.close()


def available() -> int | None:
    """Return the bytes available in the machine and the control groups; None if unknown."""
    found = [_machine_available(), *_group_available()]
    known = [value for value in found if value is not None]
    return min(known) if known else None


def readable_bytes(count: int) -> str:
    """Return ``count`` bytes as text, such as "1.5 MiB"."""
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


def _check_room(size: int, purpose: str) -> None:
    have = available()
    if have is not None and size > have:
        raise _no_room(size, purpose, have, None)


def _no_room(size: int, purpose: str, have: int | None, error: BaseException | None) -> WorkerError:
    need = f"DataLoader: shared memory for {purpose} needs {readable_bytes(size)}"
    if error is not None:
        return WorkerError(f"{need}; {described_limit(error)}; engine='threads' shares nothing")
    return WorkerError(
        f"{need}, have {readable_bytes(have or 0)}; use a smaller batch_size or prefetch, or "
        f"engine='threads', which shares nothing"
    )


def _anonymous_file(folder: str | None, purpose: str) -> int:
    try:
        if folder is None and hasattr(os, "memfd_create"):
            return os.memfd_create("needle", os.MFD_CLOEXEC)
        if folder is None:
            folder = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=folder) as file:  # the file has no name after this block
            return os.dup(file.fileno())
    except OSError as error:
        raise limit_error(f"making shared memory for {purpose}", error, folder) from error


def _allocate(fd: int, size: int) -> None:
    for start in range(0, size, _PIECE):
        length = min(_PIECE, size - start)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, start, length)
        else:
            zeros = bytes(1 << 20)
            for offset in range(start, start + length, len(zeros)):
                os.pwrite(fd, zeros[: start + length - offset], offset)


def _map(fd: int, size: int, access: int) -> mmap.mmap:
    if sys.version_info >= (3, 13) and os.name == "posix":
        return mmap.mmap(fd, size, access=access, trackfd=False)
    return mmap.mmap(fd, size, access=access)


def _machine_available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _group_available() -> list[int]:
    """Return the bytes available in each control group (v2); file cache counts as available."""
    found: list[int] = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        path = next(line[3:] for line in lines if line.startswith("0::")).strip("/")
    except (OSError, StopIteration):
        return found
    root = Path("/sys/fs/cgroup")
    here = root / path
    for group in (here, *here.parents):
        with contextlib.suppress(OSError, ValueError, KeyError):
            limit = (group / "memory.max").read_text().strip()
            if limit != "max":
                found.append(int(limit) - _group_used(group))
        if group == root:
            break
    return found


def _group_used(group: Path) -> int:
    fields = (line.split() for line in (group / "memory.stat").read_text().splitlines())
    counts = {field[0]: int(field[1]) for field in fields if len(field) == 2}
    cache = counts["inactive_file"] + counts["active_file"]
    return int((group / "memory.current").read_text()) - cache
