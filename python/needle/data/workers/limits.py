"""Errors for exhausted system limits: descriptors, processes, memory, disk space.

The engines call ``limit_error`` when a system call fails.
"""

from __future__ import annotations

import errno

from ...errors import WorkerError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_LIMITS = {
    errno.EMFILE: ("RLIMIT_NOFILE", "open files of this process (ulimit -n)"),
    errno.ENFILE: ("", "open files of the machine (fs.file-max)"),
    errno.EAGAIN: (
        "RLIMIT_NPROC",
        "processes and threads (ulimit -u and -v, pids.max)",
    ),
    errno.ENOMEM: ("RLIMIT_AS", "memory (ulimit -v, or the memory of the machine)"),
    errno.ENOSPC: ("", "space in {folder} (df)"),
    errno.EDQUOT: ("", "space in {folder} (quota)"),
    errno.EFBIG: ("RLIMIT_FSIZE", "size of a file (ulimit -f)"),
}
_UNUSABLE = (errno.ENOENT, errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EPERM)


def limit_error(what: str, error: BaseException, folder: str | None = None) -> WorkerError:
    """Return an error that says which system limit stopped ``what``, and gives the remedy.

    folder: the folder to which the call wrote, if any.
    """
    return WorkerError(f"DataLoader: {what} failed: {described_limit(error, folder)}")


def described_limit(error: BaseException, folder: str | None = None) -> str:
    """Describe the limit that stopped a system call, and the remedy."""
    number = getattr(error, "errno", None)
    if isinstance(error, MemoryError):
        number = errno.ENOMEM
    elif isinstance(error, RuntimeError):  # raised by threading.Thread.start
        number = errno.EAGAIN
    if number in _UNUSABLE and folder is not None:
        return f"{folder} cannot be written ({error}); make it writable, or set another folder"
    if number not in _LIMITS:
        return f"the system says: {error}"
    name, limit = _LIMITS[number]
    where = limit.format(folder=folder or "memory files")
    return (
        f"the limit on {where} is reached{_current(name)} ({error}); raise it, close what is not "
        f"needed, or use fewer workers"
    )


def _current(name: str) -> str:
    if resource is None or not name:
        return ""
    soft = resource.getrlimit(getattr(resource, name))[0]
    return "" if soft == resource.RLIM_INFINITY else f", {soft}"
