"""Where servers are found: a socket in a private folder, with a lock that says whether one lives.

The folder is the user's own, 0700; a peer is asked who it is besides. What is said over the socket
is protocol.py's.
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

from ....config import RUNTIME_DIR
from ....errors import DataError, WorkerError

_PEER = struct.Struct("3i")  # process, user, group
_SOCKET, _LOCK = ".sock", ".lock"
LONGEST = 100  # bytes of a socket's path, of which systems allow 104 to 108


def folder() -> Path:
    """The user's folder for sockets, made if it is not there.

    Below XDG_RUNTIME_DIR, else the folder for temporary files. Raises WorkerError where somebody
    else could look into it.
    """
    runtime = RUNTIME_DIR.read()
    name = "needle" if runtime else f"needle-{os.getuid()}"
    found = Path(runtime or tempfile.gettempdir()) / name
    with suppress(FileExistsError):
        found.mkdir(mode=0o700)
    check_private(found)
    return found


def check_private(path: Path) -> None:
    """Raises WorkerError unless ``path`` is this user's folder, open to nobody else."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise WorkerError(
            f"server: {path} must be a folder of user {os.getuid()} with mode 0700, got mode "
            f"{stat.S_IMODE(status.st_mode):o} of user {status.st_uid}; set {RUNTIME_DIR.name} to "
            "another folder"
        )


def socket_path(address: str | os.PathLike[str]) -> Path:
    """The socket of a server: a name is in ``folder()``, a path is itself.

    Raises DataError for a path that is too long for a socket.
    """
    text = os.fspath(address)
    path = Path(text) if os.sep in text else folder() / f"{text}{_SOCKET}"
    if len(os.fsencode(path)) > LONGEST:
        raise DataError(
            f"server: the path of a socket has at most {LONGEST} bytes, got {path}; give a shorter "
            f"name, or set {RUNTIME_DIR.name}"
        )
    return path


def servers() -> list[Path]:
    """The sockets in ``folder()``, also those whose server is gone."""
    return sorted(folder().glob(f"*{_SOCKET}"))


class Place:
    """A socket path that this process holds: no second server can have it meanwhile."""

    def __init__(self, path: Path) -> None:
        """Takes the lock, removes what a dead server left, and listens.

        Raises WorkerError where another server has it.
        """
        check_private(path.parent)
        self.path, self._lock_path = path, path.with_suffix(_LOCK)
        self._lock = _locked(self._lock_path)
        try:
            if self._lock < 0:
                raise WorkerError(
                    f"server: another server listens at {path}; use that one, or another name"
                )
            with suppress(FileNotFoundError):
                path.unlink()  # whoever held the lock before has died
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
        """Nothing is left of it on disk."""
        if self._lock < 0:
            return
        with suppress(FileNotFoundError):
            self.path.unlink()
        with suppress(FileNotFoundError):
            self._lock_path.unlink()  # still locked: who waits for it finds that it has gone
        self.listener.close()
        os.close(self._lock)
        self._lock = -1


def connect(path: Path) -> socket.socket | None:
    """A connection to the server at ``path``; None where none lives there.

    Raises WorkerError where it is another user's.
    """
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
        channel.close()
        return None
    except OSError as error:
        channel.close()
        raise WorkerError(f"GlobalDataLoader: cannot connect to {path} ({error})") from error
    if not same_user(channel):
        channel.close()
        raise WorkerError(f"GlobalDataLoader: the server at {path} is another user's; use your own")
    return channel


def same_user(channel: socket.socket) -> bool:
    """Whether the other side is a process of this user, as far as the system tells."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True  # the folder has been checked
    data = channel.getsockopt(socket.SOL_SOCKET, option, _PEER.size)
    return bool(_PEER.unpack(data)[1] == os.getuid())


def _locked(path: Path) -> int:
    """A descriptor of the locked file; -1 where another process has it."""
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
        os.close(fd)  # its last holder has removed it just now
