"""The parent's side of starting worker processes and learning how they ended.

"forkserver" and "spawn" start workers through a supervisor (supervisor.py), which reaps them and
ends with the parent; "fork" copies this process, where that is safe.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import process as multiprocessing_process
from multiprocessing import spawn as multiprocessing_spawn
from pathlib import Path
from typing import Any, NoReturn

from ...config import one_thread_environment
from ...errors import WorkerError
from . import supervisor
from .limits import limit_error

_START_SECONDS = 120.0  # includes a first import from a slow disk
_ANSWER_SECONDS = 10.0


class Child:
    """A process: its id, and ``sentinel``, a descriptor readable once it has ended, or None."""

    def __init__(self, pid: int, sentinel: int | None, status: Callable[[bool], int | None]):
        self.pid, self.sentinel, self._ask = pid, sentinel, status
        self.code: int | None = None
        self.ended = False

    def poll(self, wait: bool = False) -> bool:
        """Return True if it has ended; ``code`` is its exit code, -signal, or None if unknown."""
        if self.ended:
            return True
        if self.sentinel is not None and not wait and not _readable(self.sentinel):
            return False
        try:
            self.code = self._ask(wait)
            self.ended = self.code is not None
        except (OSError, WorkerError, ChildProcessError):
            self.ended = True  # the supervisor that knew its status is gone
        return self.ended

    def kill(self, number: int) -> None:
        """Send a signal, unless the process has ended; its id is not reused before that."""
        if not self.ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Close the descriptor."""
        if self.sentinel is not None:
            os.close(self.sentinel)
            self.sentinel = None


class SupervisorKilled(WorkerError):
    """A signal has ended the process that starts workers; ``Launcher.start`` makes a new one."""


class Launcher:
    """Starts workers by a method: "forkserver", "spawn" or "fork"."""

    def __init__(self, method: str, run_forked: Callable[[socket.socket], None]) -> None:
        self.method, self._run_forked = method, run_forked
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._answered = False  # until then the supervisor imports, and has no workers to end

    def prepare(self) -> None:
        """Start the supervisor, if the method needs one and none runs; do not wait for it."""
        if self.method == "fork" or self._process is not None:
            return
        script = str(Path(supervisor.__file__).resolve())
        command = [executable(), *interpreter_flags(), script]
        try:
            self._channel, theirs = socket.socketpair()
            self._answered = False
            with theirs, interrupts_blocked():
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env=one_thread_environment(),
                )
        except OSError as error:
            self.close()
            raise limit_error(f"starting {command[0]}", error) from error
        settings = {
            "method": self.method,
            "path": sys.path,
            "parent": os.getpid(),
            "command": command[:-1],
        }
        with suppress(OSError):  # the first start reports that it died at once
            supervisor.send(self._channel, settings)

    def start(self, channel: socket.socket) -> Child:
        """Start a worker with its end of the socket to the parent.

        Raises SupervisorKilled if a later call may succeed, WorkerError if not.
        """
        if self.method == "fork":
            refuse_fork("DataLoader")
            return self._fork(channel)
        self.prepare()
        answer, fds = self._call({"do": "start"}, (channel.fileno(),), _START_SECONDS)
        if "errno" in answer:
            error = OSError(answer["errno"], os.strerror(answer["errno"]))
            raise limit_error("starting a worker process", error)
        if "failure" in answer:
            raise WorkerError(
                "DataLoader: a worker process cannot start:\n\n" + answer["failure"].rstrip()
            )
        pid, reaper = int(answer["pid"]), self._process
        sentinel = fds[0] if fds else None
        return Child(pid, sentinel, lambda wait: self._status(reaper, pid, wait))

    def close(self) -> None:
        """End the supervisor; its workers should have ended before."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        process, self._process = self._process, None
        if process is not None:
            try:
                process.wait(1.0 if self._answered else 0.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def disown(self) -> None:
        """Forget the supervisor in a forked copy of the parent, to which it does not belong."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.returncode = 0
            self._process = None

    def _status(self, reaper: object, pid: int, wait: bool) -> int | None:
        if reaper is None or reaper is not self._process:
            raise ChildProcessError("the supervisor that started it is gone")
        answer, _ = self._call({"do": "status", "pid": pid, "wait": wait}, (), _ANSWER_SECONDS)
        if "unknown" in answer:
            raise ChildProcessError(answer["unknown"])
        code = answer["status"]
        return None if code is None else int(code)

    def _call(
        self, message: dict[str, Any], fds: tuple[int, ...], seconds: float
    ) -> tuple[dict[str, Any], list[int]]:
        """Ask the supervisor; one that does not answer is ended, and its workers with it."""
        answer, process = None, self._process
        try:
            if self._channel is not None:
                self._channel.settimeout(seconds)
                supervisor.send(self._channel, message, fds)
                answer = supervisor.receive(self._channel)
                self._answered = answer is not None
        except OSError as error:
            if error.errno == errno.EMFILE:
                raise limit_error("receiving the descriptor of a worker process", error) from error
        finally:
            if answer is None:  # also after Ctrl-C between question and answer
                self.close()
        if answer is None:
            code = None if process is None else process.returncode
            kind = SupervisorKilled if code is not None and code < 0 else WorkerError
            raise kind(
                "DataLoader: the process that starts the workers has died, or cannot start "
                f"(exit code {code}); look for its message above, or take engine='threads'"
            )
        return answer

    def _fork(self, channel: socket.socket) -> Child:
        with interrupts_blocked():
            try:
                pid = os.fork()
            except OSError as error:
                raise limit_error("starting a worker process", error) from error
            if pid == 0:
                _become_worker(self._run_forked, channel)
        sentinel = supervisor.pidfd(pid)
        return Child(pid, sentinel, partial(supervisor.exit_code, pid))


def check_method(op: str, method: str | None) -> str:
    """Return ``method``, or the default; raise if the system or the moment does not allow it."""
    if os.name != "posix":
        raise WorkerError(
            f"{op}: engine='processes' needs a POSIX system (Linux, macOS), got {sys.platform}; "
            f"take engine='threads'"
        )
    if getattr(multiprocessing_process.current_process(), "_inheriting", False):
        raise WorkerError(
            f"{op}: this process is being started by multiprocessing, which runs the main program "
            f"again; put what makes the loader under: if __name__ == '__main__':"
        )
    if method is None:  # forking is not safe in any process of macOS
        return "spawn" if sys.platform == "darwin" else "forkserver"
    if method == "fork":
        refuse_fork(op)
    return method


def refuse_fork(op: str) -> None:
    """Raise WorkerError with the reason if this process cannot be forked safely."""
    reason = _fork_hazard()
    if reason is not None:
        raise WorkerError(
            f"{op}: start_method='fork' copies a process with one thread and no GPU in use, got "
            f"one where {reason}; take start_method='forkserver'"
        )


def _fork_hazard() -> str | None:
    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate())
        return f"threads run ({names})"
    with suppress(OSError):
        if len(os.listdir("/proc/self/task")) > 1:
            return (
                "native threads run (of BLAS, OpenMP or needle's kernels; none start with "
                "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NEEDLE_NUM_THREADS=1)"
            )
    with suppress(OSError):
        if "/dev/nvidia" in Path("/proc/self/maps").read_text():
            return "CUDA is in use"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is in use"
    return None


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT inside the block, also in processes that are started there."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _become_worker(run: Callable[[socket.socket], None], channel: socket.socket) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        run(channel)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def executable() -> str:
    """Return the path of the interpreter that processes are started with."""
    found: Any = multiprocessing_spawn.get_executable()
    return os.fsdecode(found) if found else sys.executable


def interpreter_flags() -> list[str]:
    """Return the options of this interpreter, for the processes that it starts."""
    return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]
