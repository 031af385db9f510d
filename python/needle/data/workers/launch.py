"""A loader's connection to the supervisor, which starts its workers and reports how they ended.

The supervisor of the program (shared_supervisor.py) starts and reaps the workers and exits with
the program. process_pool.py calls this file.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from contextlib import suppress
from multiprocessing import process as multiprocessing_process

from ...errors import WorkerError
from .framing import receive, send
from .limits import limit_error
from .shared_supervisor import SupervisorProcess, forget_inherited, shared_supervisor

START_METHOD = "spawn" if sys.platform == "darwin" else "forkserver"
"""How workers start: forked from the supervisor, or on macOS, where forking is unsafe, as
new interpreters."""
_START_SECONDS = 120.0  # allows for a first import from a slow disk
_END_SECONDS = 5.0


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
            "program again; put the code that makes the loader under: if __name__ == '__main__':"
        )


class SupervisorKilled(WorkerError):
    """An error raised if a signal killed the supervisor; ``Launcher.start`` starts a new one."""


class Launcher:
    """A client of the supervisor. ended: exit codes of workers, -signal for death by a signal."""

    def __init__(self) -> None:
        self._method = START_METHOD
        self.ended: dict[int, int] = {}
        self._running: set[int] = set()
        self._supervisor: SupervisorProcess | None = None
        self._channel: socket.socket | None = None

    def prepare(self) -> None:
        """Connect to the supervisor of the program, and start one if none is running."""
        if self._channel is None:
            self._supervisor = shared_supervisor()
            self._channel = self._supervisor.connect(self._method)

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when a worker ends, or -1 if there is none."""
        return -1 if self._channel is None else self._channel.fileno()

    def start(self, channel: socket.socket) -> int:
        """Start a worker that inherits ``channel``, its end of the socket pair; return its id.

        Raises SupervisorKilled if another attempt may succeed, and WorkerError if not.
        """
        self.prepare()
        assert self._channel is not None and self._supervisor is not None
        supervisor, answer = self._supervisor, None
        try:
            send(self._channel, ("start", 0), (channel.fileno(),))
            answer = self._answer(_START_SECONDS)
            while answer is not None and answer[0] == "ended":
                answer = self._answer(_START_SECONDS)
        except TimeoutError:
            supervisor.process.kill()
        except OSError:
            pass  # the supervisor has ended
        finally:
            # reached also if an interrupt (Ctrl-C) came between request and answer
            if answer is None:
                self.close()
        if answer is None:
            code = supervisor.exit_code()
            kind = SupervisorKilled if code is not None and code < 0 else WorkerError
            raise kind(
                "DataLoader: the process that starts the workers has died, or cannot start "
                f"(exit code {code}); look for its message above, or use engine='threads'"
            )
        what, number, _ = answer
        if what == "failed":
            raise limit_error("starting a worker process", OSError(number, os.strerror(number)))
        self._running.add(number)
        return number

    def note_ended(self) -> None:
        """Record the worker exits that the supervisor has reported, without waiting."""
        while self._channel is not None and _readable(self._channel):
            self._note(_END_SECONDS)

    def end(self, pid: int) -> int | None:
        """Kill a worker unless it has ended; return its exit code, None if it cannot be known."""
        if pid not in self._running:  # it ended with an earlier supervisor
            return self.ended.pop(pid, None)
        if pid not in self.ended and self._channel is not None:
            with suppress(OSError):
                send(self._channel, ("kill", pid))
        end = time.monotonic() + _END_SECONDS
        while pid not in self.ended and self._note(max(0.0, end - time.monotonic())):
            pass
        self._running.discard(pid)
        return self.ended.pop(pid, None)

    def close(self) -> None:
        """Disconnect from the supervisor, and wait until it has ended the remaining workers."""
        channel, supervisor = self._channel, self._supervisor
        self._channel = self._supervisor = None
        if channel is None or supervisor is None:
            return
        try:
            channel.settimeout(_END_SECONDS)
            channel.shutdown(socket.SHUT_WR)
            while self._running and channel.recv(1 << 12):
                pass
        except TimeoutError:
            supervisor.process.kill()
        except OSError:
            pass  # the supervisor has ended
        finally:
            channel.close()
            self._running.clear()

    def disown(self) -> None:
        """Release the supervisor in a forked copy of the parent, which does not own it."""
        if self._channel is not None:
            self._channel.close()
        self._channel = self._supervisor = None
        forget_inherited()

    def _note(self, seconds: float) -> bool:
        """Receive one message; return False if none came or the supervisor has ended."""
        if self._channel is None:
            return False
        try:
            answer = self._answer(seconds)
        except OSError:  # also raised after a timeout
            return False
        if answer is None:
            self.close()
        return answer is not None

    def _answer(self, seconds: float) -> tuple[str, int, int] | None:
        """Return the supervisor's next message, and record a worker's exit; None at EOF."""
        assert self._channel is not None
        self._channel.settimeout(seconds)
        got = receive(self._channel)
        if got is None:
            return None
        answer: tuple[str, int, int] = got[0]
        if answer[0] == "ended":
            self.ended[answer[1]] = answer[2]
        return answer


def _readable(channel: socket.socket) -> bool:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(0))
