"""The supervisor process of this program, which starts the workers of all its loaders.

It is started with the first loader that has workers and stays, so that the workers of further
loaders are forked from a process that has imported everything. launch.py asks it for workers.

The fork server of ``multiprocessing`` would not do: its children run the main program again (which
needs a ``__main__`` guard), they outlive a parent that is killed, and they have the environment,
folder and limits of the first use.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import spawn as multiprocessing_spawn
from typing import Any

from ...config import one_thread_environment
from .framing import send
from .limits import limit_error

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]
_PRELOADED = ("PIL.Image", "simplejpeg")  # if this program has them
_START = (
    "import gc, json, sys; gc.disable(); settings = json.loads(sys.argv[1]); "  # imports make no
    "sys.path[:] = settings['path']; "  # garbage that is worth the search
    "from needle.data.workers import supervisor; supervisor.run(settings)"
)
_SUPERVISORS: dict[int, list[SupervisorProcess]] = {}  # by the process that started them
_LOCKS: dict[int, threading.Lock] = {}


class SupervisorProcess:
    """The process that starts the workers of every loader of this program.

    inherited: what it has of this process, and gives to the workers; see ``_inherited``.
    """

    def __init__(self, inherited: dict[str, Any]) -> None:
        self.inherited = inherited
        self._loaders, self._retired = 0, False
        command = inherited["command"]
        settings = {"path": sys.path, "parent": os.getpid(), "command": command}
        try:
            self._control, theirs = socket.socketpair()
            try:
                with theirs, interrupts_blocked():
                    self.process = subprocess.Popen(
                        [*command, "-c", _START, json.dumps({**settings, "fd": theirs.fileno()})],
                        stdin=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                        env=inherited["environment"],
                    )
            except BaseException:
                self._control.close()
                raise
        except OSError as error:
            raise limit_error(f"starting {command[0]}", error) from error
        weakref.finalize(self, _at_exit, os.getpid(), self._control, self.process)

    def connect(self, method: str) -> socket.socket:
        """Return the channel of a new loader, whose workers start by ``method``."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise limit_error(
                "making a socket to the process that starts workers", error
            ) from error
        modules = [name for name in _PRELOADED if name in sys.modules]
        with theirs, suppress(OSError):  # the first start reports that it is dead
            send(self._control, {"method": method, "modules": modules}, (theirs.fileno(),))
        self._loaders += 1
        return ours

    def disconnect(self, channel: socket.socket) -> None:
        """Close the channel of a loader, whose workers are killed if they still run."""
        hang_up(channel)
        self._loaders -= 1
        self._reap()

    def serves(self, inherited: dict[str, Any]) -> bool:
        """Return True if new workers may come from it; otherwise it ends with its last loader."""
        if not self._retired and inherited == self.inherited and self.process.poll() is None:
            return True
        self.retire()
        return False

    def retire(self) -> None:
        """Let it serve the loaders that it has, and end with the last of them."""
        self._retired = True
        hang_up(self._control)
        self._reap()

    def _reap(self) -> None:
        if self._retired and not self._loaders:
            with suppress(subprocess.TimeoutExpired):  # it is reaped later
                self.process.wait(0.2)

    def kill(self) -> None:
        """Kill it, since it does not answer."""
        self.process.kill()

    def exit_code(self) -> int | None:
        """Return its exit code, or None if it still runs after a second."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(1.0)
        return None

    def disown(self) -> None:
        """Forget it in a forked copy of this process, to which it does not belong."""
        self._control.close()
        self.process.returncode = 0


def shared_supervisor() -> SupervisorProcess:
    """Return the supervisor of this program; start one if none has what workers inherit now."""
    pid = os.getpid()
    forget_inherited()
    with _LOCKS.setdefault(pid, threading.Lock()):
        known, inherited = _SUPERVISORS.setdefault(pid, []), _inherited()
        serving = [each for each in known if each.serves(inherited)]
        known[:] = [each for each in known if each.process.poll() is None]
        if not serving:
            serving = [SupervisorProcess(inherited)]
            known += serving
        return serving[0]


def forget_inherited() -> None:
    """Close, in a forked copy of a program, the descriptors of the program's supervisors."""
    for pid in [pid for pid in _SUPERVISORS if pid != os.getpid()]:
        for each in _SUPERVISORS.pop(pid):
            each.disown()


def _inherited() -> dict[str, Any]:
    """Return what a new process has of this one: a change of it must reach new workers."""
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
    """Return when a loaded file of needle was edited last: notebooks reload edited modules."""
    package = __name__.partition(".")[0]
    newest = 0
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package and (file := getattr(module, "__file__", None)):
            with suppress(OSError):  # in an archive, or removed
                newest = max(newest, os.stat(file).st_mtime_ns)
    return newest


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _file_of(descriptor: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(descriptor)
    except OSError:  # it is closed
        return None
    return found.st_dev, found.st_ino


def hang_up(channel: socket.socket) -> None:
    """Close a channel; a forked copy of this process may hold it, so that closing is not enough."""
    with suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)
    channel.close()


def _at_exit(parent: int, control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """End a supervisor at the end of the program, or when nothing refers to it any more."""
    if parent != os.getpid():
        return
    hang_up(control)
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT inside the block, also in processes that are started there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def executable() -> str:
    """Return the path of the interpreter that processes are started with."""
    found: Any = multiprocessing_spawn.get_executable()
    return os.fsdecode(found) if found else sys.executable


def interpreter_flags() -> list[str]:
    """Return the options of this interpreter, for the processes that it starts."""
    return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]
