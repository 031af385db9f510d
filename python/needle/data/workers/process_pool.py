"""The pool of worker processes: it starts them, shares memory, reads answers and detects deaths.

processes.py decides what the workers do; this file handles sockets and descriptors.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..samples.ticket import NO_TICKET
from .engine import Completed
from .framing import send
from .launch import Launcher
from .limits import limit_error
from .messages import DIED, AnswerReader, Message
from .shared_memory import Memory


@dataclass
class WorkerHandle:
    """The pool's record of one worker process, from start to exit.

    code: the exit code, or -signal if a signal killed it; None while it is unknown.
    """

    number: int
    pid: int
    channel: socket.socket
    inbox: AnswerReader
    ready: bool = False
    code: int | None = None

    def __str__(self) -> str:
        return f"worker {self.number} (pid {self.pid})"

    def ending(self) -> str:
        """Return how the process ended, for an error message."""
        code = self.code
        if code is None:
            return "ended for an unknown reason"
        if code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"

    def tell(self, role: str, *detail: Any, fds: tuple[int, ...] = ()) -> None:
        """Send a message; ignore errors, since the worker may be dying."""
        with suppress(OSError):
            send(self.channel, (role, *detail), fds)


class ProcessPool:
    """A pool of ``workers`` processes and the memory that ``share`` sends them."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.members: dict[int, WorkerHandle] = {}
        self._launcher = Launcher()
        self._posts: dict[tuple[str, int], tuple[int, int, Any]] = {}
        self._pid, self.closed = os.getpid(), False

    def prepare(self) -> None:
        """Start the supervisor, which starts the workers later; do not wait for it."""
        self._launcher.prepare()

    def share(self, role: str, number: int, memory: Memory, detail: Any = None) -> None:
        """Send ``memory`` to every worker, including those started later."""
        self._posts[role, number] = memory.fd, memory.size, detail
        for member in self.members.values():
            self._post(member, role, number)

    def forget(self, role: str, number: int) -> None:
        """Undo ``share`` for a ring that is no longer in use."""
        del self._posts[role, number]
        for member in self.members.values():
            member.tell("forget", number)

    def fill(self) -> None:
        """Start a worker for every number that has none; raise WorkerError if that fails."""
        for number in range(self.workers):
            if number not in self.members:
                self._start(number)

    def wake(self, numbers: list[int]) -> None:
        """Wake the sleeping workers of these numbers."""
        for number in numbers:
            if number in self.members:
                self.members[number].tell("wake")

    def wait(self, timeout: float | None) -> list[int]:
        """Return the descriptors that are readable, after ``timeout`` seconds (None: no limit).

        The socket of a worker that is known to have exited counts as readable.
        """
        members = self.members.values()
        dead = [each.channel.fileno() for each in members if each.pid in self._launcher.ended]
        if dead:
            return dead
        poll = select.poll()
        for fd in self.descriptors():
            poll.register(fd, select.POLLIN)
        limit = None if timeout is None else max(0, int(timeout * 1000 + 0.999))
        return [fd for fd, _ in poll.poll(limit)]

    def descriptors(self) -> list[int]:
        """Return descriptors, which become readable when a worker answers or dies."""
        found = [member.channel.fileno() for member in self.members.values()]
        told = self._launcher.fileno()
        return found if told < 0 else [told, *found]

    def read(self, ready: list[int]) -> Iterator[tuple[WorkerHandle, Message]]:
        """Yield the messages at these descriptors, and DIED for a dead worker, which is removed."""
        if self._launcher.fileno() in ready:
            self._launcher.note_ended()
        for member in list(self.members.values()):
            ended = member.pid in self._launcher.ended
            if ended or member.channel.fileno() in ready:
                yield from ((member, message) for message in member.inbox.receive())
                if ended or member.inbox.ended:
                    yield from self._remove_dead(member)

    def hang_up(self) -> None:
        """Shut the sockets down, which ends the workers and a ``wait`` in another thread."""
        for member in list(self.members.values()):
            with suppress(OSError):
                member.channel.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop every process and close every descriptor; a second call is a no-op.

        A forked copy of the parent only closes its descriptors.
        """
        if self.closed:
            return
        self.closed = True
        if os.getpid() == self._pid:
            self.hang_up()
            self._launcher.close()
        else:
            self._launcher.disown()
        for member in self.members.values():
            member.channel.close()
        self.members.clear()

    def _start(self, number: int) -> None:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise limit_error("making a socket for a worker", error) from error
        with theirs:
            try:
                pid = self._launcher.start(theirs)
            except BaseException:
                ours.close()
                raise
        reader = AnswerReader(ours, f"worker {number} (pid {pid})")
        self.members[number] = member = WorkerHandle(number, pid, ours, reader)
        member.tell("number", number)
        for role, which in self._posts:
            self._post(member, role, which)

    def _post(self, member: WorkerHandle, role: str, number: int) -> None:
        fd, size, detail = self._posts[role, number]
        member.tell(role, number, size, detail, fds=(fd,))

    def _remove_dead(self, member: WorkerHandle) -> Iterator[tuple[WorkerHandle, Message]]:
        """Yield the last messages of a worker that died or, having lost its socket, is killed."""
        member.code = self._launcher.end(member.pid)
        last = list(member.inbox.receive())
        member.channel.close()
        del self.members[member.number]
        yield from ((member, message) for message in last)
        yield member, (DIED, -1, -1, Completed(NO_TICKET))
