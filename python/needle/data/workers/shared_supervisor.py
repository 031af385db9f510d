"""The program's handle on its supervisor process, which starts the workers of all loaders.

The supervisor is started by the first loader that has workers and keeps running, so that the
workers of later loaders are forked from a process that has already imported everything. launch.py
asks it for workers.

The fork server of ``multiprocessing`` is unsuitable: its children run the main program again
(which needs a ``__main__`` guard), they outlive a parent that is killed, and they keep the
environment, working directory and limits of the first use.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import spawn as multiprocessing_spawn
from typing import Any

from ...config import one_thread_environment
from ...contexts import context, finalize
from . import supervisor
from .framing import send
from .limits import limit_error

_LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]
# the supervisor imports these if the program has imported them
_PRELOADED = ("PIL.Image", "simplejpeg")
# keyed by the id of the process that started it
_SUPERVISORS: dict[int, SupervisorProcess] = {}
_LOCKS: dict[int, threading.Lock] = {}


class SupervisorProcess:
    """A handle on the process that starts the workers of every loader of this program.

    The process exits when this object is collected, so launchers keep a reference as long as they
    need it. inherited: what the supervisor inherits and passes on to the workers; see
    ``_inherited``.
    """

    def __init__(self, inherited: dict[str, Any]) -> None:
        self.inherited = inherited
        settings = {"path": inherited["path"], "command": inherited["command"]}
        self._control, theirs = _socket_pair()
        try:
            with theirs, interrupts_blocked():
                self.process = supervisor.start_interpreter(
                    supervisor.__name__, settings, theirs.fileno(), inherited["environment"]
                )
        except BaseException as error:
            self._control.close()
            if isinstance(error, OSError):
                raise limit_error(f"starting {settings['command'][0]}", error) from error
            raise
        finalize(self, _end, os.getpid(), self._control, self.process)

    def connect(self, method: str) -> socket.socket:
        """Return a channel for a new loader that starts its workers by ``method``."""
        ours, theirs = _socket_pair()
        modules = [name for name in _PRELOADED if name in sys.modules]
        with theirs, suppress(OSError):  # if the supervisor is dead, the first start reports it
            send(self._control, (method, modules), (theirs.fileno(),))
        return ours

    def exit_code(self) -> int | None:
        """Return the supervisor's exit code, or None if it is still running after a second."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(1.0)
        return None

    def disown(self) -> None:
        """Drop the handle in a forked copy of this process, as it does not own the supervisor."""
        self._control.close()
        self.process.returncode = 0


def shared_supervisor() -> SupervisorProcess:
    """Return the program's supervisor; start one if none has what workers must now inherit."""
    pid = os.getpid()
    forget_inherited()
    with _LOCKS.setdefault(pid, threading.Lock()):
        found, inherited = _SUPERVISORS.get(pid), _inherited()
        if found is None or found.inherited != inherited or found.process.poll() is not None:
            found = _SUPERVISORS[pid] = SupervisorProcess(inherited)
        return found


def forget_inherited() -> None:
    """Close the descriptors of the parent's supervisor in a forked copy of a program."""
    for pid in [pid for pid in _SUPERVISORS if pid != os.getpid()]:
        _SUPERVISORS.pop(pid).disown()


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    try:
        return socket.socketpair()
    except OSError as error:
        raise limit_error("making a socket to the process that starts workers", error) from error


def _inherited() -> dict[str, Any]:
    """Return what new processes inherit from this one; any change requires a new supervisor."""
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "command": [executable(), *interpreter_flags()],
        "environment": one_thread_environment(),
        "path": list(sys.path),
        "edited": _last_edit(),
        "folder": _folder(),
        "output": [_file_of(descriptor) for descriptor in (1, 2)],
        "limits": [resource.getrlimit(getattr(resource, name)) for name in _LIMITS],
        "cores": os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
        "user": (os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.nice(0), umask),
    }


def _last_edit() -> int:
    """Return the latest modification time of needle's loaded files, since notebooks reload them."""
    package = __name__.partition(".")[0]
    newest = 0
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package and (file := getattr(module, "__file__", None)):
            with suppress(OSError):  # the file is inside an archive, or has been removed
                newest = max(newest, os.stat(file).st_mtime_ns)
    return newest


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # the folder was removed
        return None


def _file_of(descriptor: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(descriptor)
    except OSError:  # the descriptor is closed
        return None
    return found.st_dev, found.st_ino


def _end(parent: int, control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Stop a supervisor at the end of the program, or when its handle is collected.

    The control channel is shut down, since closing is not enough if a forked copy also holds it.
    """
    if parent != os.getpid():
        return
    with suppress(OSError):
        control.shutdown(socket.SHUT_RDWR)
    control.close()
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@context
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this context, including for processes started in it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def executable() -> str:
    """Return the path of the interpreter that new processes run."""
    found: Any = multiprocessing_spawn.get_executable()
    return os.fsdecode(found) if found else sys.executable


def interpreter_flags() -> list[str]:
    """Return the command-line flags of this interpreter, to pass on to new processes."""
    return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]
