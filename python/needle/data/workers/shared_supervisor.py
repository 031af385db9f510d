"""The program's handle of its supervisor process, which starts the workers of all loaders.

The supervisor starts with the first loader that has workers and keeps running, so that the workers
of further loaders are forked from a process that has already imported everything. launch.py asks
it for workers.

The fork server of ``multiprocessing`` is unsuitable: its children run the main program again
(which needs a ``__main__`` guard), they outlive a parent that is killed, and they keep the
environment, working directory and limits of the first use.
"""

from __future__ import annotations

import json
import os
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
from .framing import send
from .limits import limit_error

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]
_PRELOADED = ("PIL.Image", "simplejpeg")  # the supervisor imports these if the program has
_START = (
    # imports create too little garbage to be worth collecting
    "import gc, json, sys; gc.disable(); settings = json.loads(sys.argv[1]); "
    "sys.path[:] = settings['path']; "
    "from needle.data.workers import supervisor; supervisor.run(settings)"
)
# keyed by the id of the process that started them
_SUPERVISORS: dict[int, list[SupervisorProcess]] = {}
_LOCKS: dict[int, threading.Lock] = {}


class SupervisorProcess:
    """A handle of the process that starts the workers of every loader of this program.

    inherited: what the supervisor inherits and passes on to the workers; see ``_inherited``.
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
        finalize(self, _at_exit, os.getpid(), self._control, self.process)

    def connect(self, method: str) -> socket.socket:
        """Return a channel for a new loader, whose workers start by ``method``."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise limit_error(
                "making a socket to the process that starts workers", error
            ) from error
        modules = [name for name in _PRELOADED if name in sys.modules]
        with theirs, suppress(OSError):  # if the supervisor is dead, the first start reports it
            send(self._control, {"method": method, "modules": modules}, (theirs.fileno(),))
        self._loaders += 1
        return ours

    def disconnect(self, channel: socket.socket) -> None:
        """Close the channel of a loader; the supervisor kills its remaining workers."""
        hang_up(channel)
        self._loaders -= 1
        self._reap()

    def serves(self, inherited: dict[str, Any]) -> bool:
        """Return True if this supervisor can start new workers; retire it otherwise."""
        if not self._retired and inherited == self.inherited and self.process.poll() is None:
            return True
        self.retire()
        return False

    def retire(self) -> None:
        """Have the supervisor exit once its last loader disconnects, and accept no new loaders."""
        self._retired = True
        hang_up(self._control)
        self._reap()

    def _reap(self) -> None:
        if self._retired and not self._loaders:
            with suppress(subprocess.TimeoutExpired):  # reaped later
                self.process.wait(0.2)

    def kill(self) -> None:
        """Kill the supervisor, which does not answer."""
        self.process.kill()

    def exit_code(self) -> int | None:
        """Return the supervisor's exit code, or None if it is still running after a second."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(1.0)
        return None

    def disown(self) -> None:
        """Drop the handle in a forked copy of this process, which does not own the supervisor."""
        self._control.close()
        self.process.returncode = 0


def shared_supervisor() -> SupervisorProcess:
    """Return the program's supervisor; start one if none matches what workers inherit now."""
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
    """Close the descriptors of the parent's supervisors in a forked copy of a program."""
    for pid in [pid for pid in _SUPERVISORS if pid != os.getpid()]:
        for each in _SUPERVISORS.pop(pid):
            each.disown()


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
    """Return the latest modification time of needle's loaded files, as notebooks reload modules."""
    package = __name__.partition(".")[0]
    newest = 0
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package and (file := getattr(module, "__file__", None)):
            with suppress(OSError):  # inside an archive, or removed
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


def hang_up(channel: socket.socket) -> None:
    """Shut a channel down and close it; closing is not enough if a forked copy also holds it."""
    with suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)
    channel.close()


def _at_exit(parent: int, control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """Stop a supervisor at the end of the program, or once its handle is collected."""
    if parent != os.getpid():
        return
    hang_up(control)
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@context
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT inside the block, also for processes started there."""
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
