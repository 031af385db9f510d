"""The pool of worker processes, which starts them, shares memory, reads answers, detects deaths.

processes.py decides what the workers do; this file handles sockets, sentinels and descriptors.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..samples.ticket import NO_TICKET
from .engine import Completed
from .launch import Child, Launcher
from .limits import limit_error
from .messages import DIED, FORGET, SHARE, WAKE, AnswerReader, Message, send_down
from .shared_memory import Memory

_GRACE = (0.3, 0.2, 5.0)  # seconds to wait: after hanging up, after SIGTERM, after SIGKILL
_NO_SENTINEL_POLL = 0.2


@dataclass
class WorkerHandle:
    """A worker process, from its start to its end."""

    number: int
    child: Child
    channel: socket.socket
    inbox: AnswerReader
    ready: bool = False

    def __str__(self) -> str:
        return f"worker {self.number} (pid {self.child.pid})"

    def ending(self) -> str:
        """Return how the process ended, for an error message."""
        code = self.child.code
        if code is None:
            return "ended for an unknown reason"
        if code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"


class ProcessPool:
    """A pool of ``workers`` processes with a common wake-up pipe and the memory from ``share``."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.members: dict[int, WorkerHandle] = {}
        self._launcher = Launcher()
        self._posts: dict[tuple[str, int], tuple[int, int, Any]] = {}
        self._starts = 0
        self._poll = select.poll()
        self._owners: dict[int, WorkerHandle] = {}
        self._pid, self.closed = os.getpid(), False
        try:
            self._wake, self._ring_bell = os.pipe()
        except OSError as error:
            raise limit_error("making a pipe for the workers", error) from error
        os.set_blocking(self._wake, False)
        os.set_blocking(self._ring_bell, False)

    def prepare(self) -> None:
        """Start the supervisor, which starts the workers later; do not wait for it."""
        self._launcher.prepare()

    def share(self, role: str, number: int, memory: Memory, detail: Any = None) -> None:
        """Send ``memory`` to every worker, including those started later."""
        self._posts[role, number] = memory.fd, memory.size, detail
        for member in self.members.values():
            self._tell(member, role, number)

    def forget(self, role: str, number: int) -> None:
        """Undo ``share`` for a ring that is no longer in use."""
        del self._posts[role, number]
        for member in self.members.values():
            send_down(member.channel, FORGET, number)

    def fill(self) -> None:
        """Start a worker for every number that has none. Raises WorkerError if that fails."""
        for number in range(self.workers):
            if number not in self.members:
                self._start(number)

    def wake(self, count: int) -> None:
        """Wake about ``count`` sleeping workers; those that find no work go back to sleep."""
        if count:
            with suppress(BlockingIOError):  # the pipe is full, so all workers are awake
                os.write(self._ring_bell, b"!" * count)

    def wake_one(self, number: int) -> None:
        """Wake the worker of this number, if there is one."""
        if number in self.members:
            send_down(self.members[number].channel, WAKE)

    def clear_wakeups(self) -> None:
        """Discard the wake-ups that no worker has read yet."""
        with suppress(BlockingIOError):
            while os.read(self._wake, 1 << 16):
                pass

    def wait(self, timeout: float | None) -> list[WorkerHandle]:
        """Wait until workers have sent a message or died, and return them.

        Returns an empty list after ``timeout`` seconds (None: no limit). On systems without pidfds
        the processes must be polled, so the call returns all workers after a short pause.
        """
        if any(member.child.sentinel is None for member in self.members.values()):
            step = _NO_SENTINEL_POLL if timeout is None else min(_NO_SENTINEL_POLL, timeout)
            self._poll.poll(_milliseconds(step))
            return list(self.members.values())
        fds = self._poll.poll(None if timeout is None else _milliseconds(timeout))
        found = [self._owners[fd] for fd, _ in fds if fd in self._owners]
        return list({id(member): member for member in found}.values())

    def descriptors(self) -> list[int]:
        """Return sockets and sentinels, which become readable when a worker answers or dies."""
        return list(self._owners)

    def read(self, members: list[WorkerHandle]) -> Iterator[tuple[WorkerHandle, Message]]:
        """Yield the messages of these workers; yield DIED for one that died, which is removed."""
        for member in members:
            for message in member.inbox.receive():
                yield member, message
            if member.inbox.ended or member.child.poll():
                yield from self._remove_dead(member)

    def hang_up(self) -> None:
        """Shut the sockets down, which ends the workers and a ``wait`` in another thread."""
        for member in list(self.members.values()):
            with suppress(OSError):
                member.channel.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop every process and close every descriptor; a second call is a no-op."""
        if self.closed:
            return
        self.closed = True
        if os.getpid() != self._pid:
            self.disown()
            return
        self.hang_up()
        self._close_pipe()
        for seconds, number in zip(_GRACE, (0, signal.SIGTERM, signal.SIGKILL)):
            self._end_within(seconds, number)
        self._close_members()
        self._owners.clear()
        self._launcher.close()

    def disown(self) -> None:
        """Close the descriptors in a forked copy of the parent, without stopping the workers."""
        self.closed = True
        self._close_pipe()
        self._close_members()
        self._launcher.disown()

    def _close_pipe(self) -> None:
        os.close(self._ring_bell)
        os.close(self._wake)

    def _close_members(self) -> None:
        for member in self.members.values():
            member.channel.close()
            member.child.close()
        self.members.clear()

    def _start(self, number: int) -> None:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise limit_error("making a socket for a worker", error) from error
        with theirs:
            try:
                child = self._launcher.start(theirs)
            except BaseException:
                ours.close()
                raise
        who = f"worker {number} (pid {child.pid})"
        member = WorkerHandle(number, child, ours, AnswerReader(ours, who))
        self.members[number] = member
        self._starts += 1
        for fd in (ours.fileno(), child.sentinel):
            if fd is not None:
                self._owners[fd] = member
                self._poll.register(fd, select.POLLIN)
        send_down(ours, SHARE, ("wake", number, 0, self._starts), (self._wake,))
        for role, which in self._posts:
            self._tell(member, role, which)

    def _tell(self, member: WorkerHandle, role: str, number: int) -> None:
        fd, size, detail = self._posts[role, number]
        send_down(member.channel, SHARE, (role, number, size, detail), (fd,))

    def _remove_dead(self, member: WorkerHandle) -> Iterator[tuple[WorkerHandle, Message]]:
        """Yield the last messages of a worker that died, or that lost its socket and is killed."""
        member.child.kill(signal.SIGKILL)
        _wait([member.child], _GRACE[-1])
        last = list(member.inbox.receive())
        for fd in (member.channel.fileno(), member.child.sentinel):
            if fd is not None:
                del self._owners[fd]
                self._poll.unregister(fd)
        member.channel.close()
        member.child.close()
        del self.members[member.number]
        yield from ((member, message) for message in last)
        yield member, (DIED, -1, -1, Completed(NO_TICKET))

    def _end_within(self, seconds: float, number: int) -> None:
        children = [member.child for member in self.members.values()]
        for child in children:
            if number and not child.poll():
                child.kill(number)
        _wait(children, seconds)


def _wait(children: list[Child], seconds: float) -> None:
    end = time.monotonic() + seconds
    while True:
        alive = [child for child in children if not child.poll()]
        left = end - time.monotonic()
        if not alive or left <= 0:
            return
        poll = select.poll()
        for child in alive:
            if child.sentinel is not None:
                poll.register(child.sentinel, select.POLLIN)
        poll.poll(_milliseconds(min(left, 0.02 if alive[0].sentinel is None else left)))


def _milliseconds(seconds: float) -> int:
    return max(0, int(seconds * 1000 + 0.999))
