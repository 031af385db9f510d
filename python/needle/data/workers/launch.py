"""The parent's interface for starting worker processes and learning how they ended.

The supervisor of the program (shared_supervisor.py) starts and reaps the workers and exits with
the program. process_pool.py calls this file.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import process as multiprocessing_process
from typing import Any

from ...errors import WorkerError
from .framing import receive, send
from .limits import limit_error
from .shared_supervisor import (
    SupervisorProcess,
    forget_inherited,
    shared_supervisor,
)

START_METHOD = "spawn" if sys.platform == "darwin" else "forkserver"
"""How workers start: forked from the supervisor, or on macOS, where forking is unsafe, as
new interpreters."""
_START_SECONDS = 120.0  # allows for a first import from a slow disk
_ANSWER_SECONDS = 10.0


def check_system() -> None:
    """Raise WorkerError if this program cannot start worker processes."""
    if os.name != "posix":
        raise WorkerError(
            f"DataLoader: engine='processes' needs a POSIX system (Linux, macOS), got "
            f"{sys.platform}; use engine='threads'"
        )
    if getattr(multiprocessing_process.current_process(), "_inheriting", False):
        raise WorkerError(
            "DataLoader: this process is being started by multiprocessing, which runs the main "
            "program again; put what makes the loader under: if __name__ == '__main__':"
        )


class Child:
    """A worker process: its id and ``sentinel``, a descriptor readable after its exit, or None."""

    def __init__(self, pid: int, sentinel: int | None, status: Callable[[], int | None]):
        self.pid, self.sentinel, self._ask = pid, sentinel, status
        self.code: int | None = None
        self.ended = False

    def poll(self) -> bool:
        """Return True if the process has ended; ``code`` is its exit code, -signal, or None."""
        if self.ended:
            return True
        if self.sentinel is not None and not _readable(self.sentinel):
            return False
        try:
            self.code = self._ask()
            self.ended = self.code is not None
        except (OSError, WorkerError, ChildProcessError):
            self.ended = True  # the supervisor that could have told the exit code is gone
        return self.ended

    def kill(self, number: int) -> None:
        """Send a signal unless the process has ended; its id is not reused before it is reaped."""
        if not self.ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Close the descriptor."""
        if self.sentinel is not None:
            os.close(self.sentinel)
            self.sentinel = None


class SupervisorKilled(WorkerError):
    """An error raised if a signal killed the supervisor; ``Launcher.start`` makes a new one."""


class Launcher:
    """A client of the supervisor that starts workers by ``START_METHOD``."""

    def __init__(self) -> None:
        self.method = START_METHOD
        self._supervisor: SupervisorProcess | None = None
        self._channel: socket.socket | None = None

    def prepare(self) -> None:
        """Connect to the supervisor of the program, and start one if none is running."""
        if self._channel is None:
            self._supervisor = shared_supervisor()
            self._channel = self._supervisor.connect(self.method)

    def start(self, channel: socket.socket) -> Child:
        """Start a worker that inherits ``channel``, its end of the socket pair.

        Raises SupervisorKilled if another attempt may succeed, and WorkerError if not.
        """
        self.prepare()
        answer, fds = self._call({"do": "start"}, (channel.fileno(),), _START_SECONDS)
        if "errno" in answer:
            error = OSError(answer["errno"], os.strerror(answer["errno"]))
            raise limit_error("starting a worker process", error)
        pid, asked = int(answer["pid"]), self._channel
        sentinel = fds[0] if fds else None
        return Child(pid, sentinel, lambda: self._status(asked, pid))

    def close(self) -> None:
        """Disconnect from the supervisor, which then kills the remaining workers."""
        channel, self._channel = self._channel, None
        if channel is not None and self._supervisor is not None:
            self._supervisor.disconnect(channel)

    def disown(self) -> None:
        """Drop the supervisor in a forked copy of the parent, which does not own it."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        forget_inherited()

    def _status(self, asked: object, pid: int) -> int | None:
        if asked is None or asked is not self._channel:
            raise ChildProcessError("the supervisor that started it is gone")
        answer, _ = self._call({"do": "status", "pid": pid}, (), _ANSWER_SECONDS)
        if "unknown" in answer:
            raise ChildProcessError(answer["unknown"])
        code = answer["status"]
        return None if code is None else int(code)

    def _call(
        self, message: dict[str, Any], fds: tuple[int, ...], seconds: float
    ) -> tuple[dict[str, Any], list[int]]:
        """Send a request to the supervisor; if it does not answer, kill it and its workers."""
        answer, process, channel = None, self._supervisor, self._channel
        if process is None or channel is None:
            raise WorkerError("DataLoader: the loader was closed while its workers started")
        try:
            channel.settimeout(seconds)
            send(channel, message, fds)
            answer = receive(channel)
        except TimeoutError:
            process.kill()
        except OSError as error:
            if error.errno == errno.EMFILE:
                raise limit_error("receiving the descriptor of a worker process", error) from error
        finally:
            if answer is None:  # an interrupt (Ctrl-C) between request and answer also ends up here
                self.close()
        if answer is None:
            code = process.exit_code()
            kind = SupervisorKilled if code is not None and code < 0 else WorkerError
            raise kind(
                "DataLoader: the process that starts the workers has died, or cannot start "
                f"(exit code {code}); look for its message above, or use engine='threads'"
            )
        return answer


def _readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
