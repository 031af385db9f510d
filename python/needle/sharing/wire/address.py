"""Addresses of servers: sockets in a private folder, each locked by its server while it runs.

The folder belongs to the user and has mode 0700. Both sides also check that their peer is a
process of the same user. serving/event_loop.py listens, client/joining.py and __main__.py connect.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import tempfile
from contextlib import suppress
from pathlib import Path

from ...config import RUNTIME_DIR
from ...errors import DataError, WorkerError

_PEER = struct.Struct("3i")  # process, user and group id
_SOCKET, _LOCK = ".sock", ".lock"
LONGEST = 100  # maximum bytes of a socket path; systems allow 104 to 108


def folder() -> Path:
    """Return the user's folder for sockets, creating it if it is missing.

    It is in XDG_RUNTIME_DIR, or in the folder for temporary files if that variable is unset or does
    not name a folder. Raises WorkerError if it cannot be created, or if another user could access
    it.
    """
    runtime = RUNTIME_DIR.read()
    if not os.path.isdir(runtime):
        runtime = ""
    name = "needle" if runtime else f"needle-{os.getuid()}"
    try:
        found = Path(runtime or tempfile.gettempdir()) / name
        with suppress(FileExistsError):
            found.mkdir(mode=0o700)
        check_private(found)
    except OSError as error:
        raise WorkerError(
            f"server: cannot make a folder for sockets ({error}); set {RUNTIME_DIR.name} to a "
            "folder that you own and can write to"
        ) from error
    return found


def check_private(path: Path) -> None:
    """Raise WorkerError unless ``path`` is a folder that only this user can access."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise WorkerError(
            f"server: {path} must be a folder of user {os.getuid()} with mode 0700, got mode "
            f"{stat.S_IMODE(status.st_mode):o} of user {status.st_uid}; set {RUNTIME_DIR.name} to "
            "another folder"
        )


def socket_path(address: str | os.PathLike[str]) -> Path:
    """Return the socket path of a server; a name stands for a socket in ``folder()``.

    Raises DataError for a path that is too long for a socket.
    """
    text = os.fspath(address)
    path = Path(text) if os.sep in text else folder() / f"{text}{_SOCKET}"
    if len(os.fsencode(path)) > LONGEST:
        raise DataError(
            f"server: a socket's path may have at most {LONGEST} bytes, got {path}; use a shorter "
            f"name, or set {RUNTIME_DIR.name}"
        )
    return path


def servers() -> list[Path]:
    """Return the sockets in ``folder()``, including those of dead servers."""
    return sorted(folder().glob(f"*{_SOCKET}"))


class ListeningSocket:
    """A socket that this process listens on, with its path protected by a lock file."""

    def __init__(self, path: Path) -> None:
        """Take the lock, remove the socket of a dead server, and listen.

        Raises WorkerError if another server listens there.
        """
        try:
            check_private(path.parent)
        except FileNotFoundError as error:
            raise WorkerError(
                f"server: the folder of {path} does not exist; make it with mode 0700"
            ) from error
        self.path, self._lock_path = path, path.with_suffix(_LOCK)
        self._lock = _locked(self._lock_path)
        try:
            if self._lock < 0:
                raise WorkerError(
                    f"server: another server listens at {path}; use that one, or another name"
                )
            with suppress(FileNotFoundError):
                path.unlink()  # the server that held the lock before has died
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.listener.setblocking(False)
            self.listener.bind(str(path))
            path.chmod(0o600)
            self.listener.listen(64)
        except BaseException:
            if self._lock >= 0:
                os.close(self._lock)
            raise

    def close(self) -> None:
        """Stop listening and remove the socket and the lock file."""
        if self._lock < 0:
            return
        with suppress(FileNotFoundError):
            self.path.unlink()
        with suppress(FileNotFoundError):
            # still locked: a server that waits for the lock notices the removal
            self._lock_path.unlink()
        self.listener.close()
        os.close(self._lock)
        self._lock = -1


def connect(path: Path) -> socket.socket | None:
    """Return a connection to the server at ``path``; None if no server listens there.

    Raises WorkerError if the socket belongs to another user.
    """
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.connect(os.fspath(path))
    except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
        channel.close()
        return None
    except OSError as error:
        channel.close()
        raise WorkerError(f"GlobalDataLoader: cannot connect to {path} ({error})") from error
    if peer_of(channel)[1] != os.getuid():
        channel.close()
        raise WorkerError(
            f"GlobalDataLoader: the server at {path} belongs to another user; use your own"
        )
    return channel


def peer_of(channel: socket.socket) -> tuple[int, int]:
    """Return the peer's process and user ids, or 0 and this user's id where they are unknown."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0, os.getuid()  # the folder's mode already excludes other users
    process, user, _ = _PEER.unpack(channel.getsockopt(socket.SOL_SOCKET, option, _PEER.size))
    return process, user


def _locked(path: Path) -> int:
    """Return a descriptor of the locked file; -1 if another process holds the lock."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return -1
        with suppress(FileNotFoundError):
            there, here = os.stat(path), os.fstat(fd)
            if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
                return fd
        os.close(fd)  # the previous holder has just removed the file
