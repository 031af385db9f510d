"""The workers as processes: started, introduced, heard, noticed when they die, ended.

What they work on is processes.py's; this file knows sockets, sentinels and shared descriptors.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .launch import Child, Launcher
from .messages import FORGET, INTRODUCE, NUDGE, Answer, Inbox, send_down
from .shared_memory import Memory
from .worker import live

_GRACE = (0.3, 0.2, 5.0)  # seconds for a worker to end by itself, by SIGTERM, by SIGKILL
_NO_SENTINEL_POLL = 0.2
_ALIVE: weakref.WeakSet[Crew] = weakref.WeakSet()


@dataclass
class Member:
    """One worker process, from its start to its end."""

    number: int
    child: Child
    channel: socket.socket
    inbox: Inbox
    ready: bool = False
    heard: dict[str, Any] = field(default_factory=dict)
    """What its earlier messages said that later ones leave out."""

    def __str__(self) -> str:
        return f"worker {self.number} (pid {self.child.pid})"


class Crew:
    """``workers`` processes that share one wake-up pipe and whatever ``introduce`` tells them.

    pipeline: what a forked worker has already; None where it is introduced.
    """

    def __init__(self, workers: int, method: str, pipeline: Any = None) -> None:
        self.workers, self._pipeline = workers, pipeline
        self.members: dict[int, Member] = {}
        self._launcher = Launcher(method, self._live_forked)
        self._posts: dict[tuple[str, int], tuple[int, int, Any]] = {}
        self._starts = 0
        self._poll = select.poll()
        self._owners: dict[int, Member] = {}
        self._half_started: socket.socket | None = None
        self._pid, self._closed = os.getpid(), False
        self._wake, self._ring_bell = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._ring_bell, False)
        _ALIVE.add(self)

    def prepare(self) -> None:
        """Starts the process that will start the workers, which takes a while."""
        self._launcher.prepare()

    def introduce(self, role: str, number: int, memory: Memory, detail: Any = None) -> None:
        """Gives ``memory`` to every worker, those of later included."""
        self._posts[role, number] = memory.fd, memory.size, detail
        for member in self.members.values():
            self._tell(member, role, number)

    def forget(self, role: str, number: int) -> None:
        """Undoes ``introduce``, for a ring that nothing uses any more."""
        del self._posts[role, number]
        for member in self.members.values():
            send_down(member.channel, FORGET, number)

    def fill(self) -> None:
        """Starts a worker in every place that has none. Raises WorkerError where that fails."""
        for number in range(self.workers):
            if number not in self.members:
                self._start(number)

    def wake(self, units: int) -> None:
        """Rouses about as many idle workers; those who find nothing sleep again."""
        if units:
            with suppress(BlockingIOError):  # the pipe is full: everybody is awake
                os.write(self._ring_bell, b"!" * units)

    def nudge(self, number: int) -> None:
        """Rouses one worker, if there is one at this place."""
        if number in self.members:
            send_down(self.members[number].channel, NUDGE)

    def hush(self) -> None:
        """Takes back every wake-up that nobody has followed, when there is no work."""
        with suppress(BlockingIOError):
            while os.read(self._wake, 1 << 16):
                pass

    def wait(self, timeout: float | None) -> list[Member]:
        """The workers that have something to say or have died, as soon as there is one.

        Returns with none after ``timeout`` seconds (None: waits for ever), or earlier where the
        system has no sentinels and has to be asked.
        """
        if any(member.child.sentinel is None for member in self.members.values()):
            step = _NO_SENTINEL_POLL if timeout is None else min(_NO_SENTINEL_POLL, timeout)
            self._poll.poll(_milliseconds(step))
            return list(self.members.values())
        fds = self._poll.poll(None if timeout is None else _milliseconds(timeout))
        return list({id(self._owners[fd]): self._owners[fd] for fd, _ in fds}.values())

    def descriptors(self) -> list[int]:
        """Sockets and sentinels: one is readable when a worker has something to say."""
        return list(self._owners)

    def read(self, members: list[Member]) -> Iterator[tuple[Member, Answer | None]]:
        """What these say, in order; None for one that has died, who is a member no more."""
        for member in members:
            for answer in member.inbox.receive():
                yield member, answer
            if member.inbox.ended or member.child.poll():
                yield from self._bury(member)

    def close(self) -> None:
        """Ends every process and gives every descriptor back; twice is once."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:
            self.disown()
            return
        for member in self.members.values():
            with suppress(OSError):
                member.channel.shutdown(socket.SHUT_RDWR)
        os.close(self._ring_bell)
        os.close(self._wake)
        for patience, number in zip(_GRACE, (0, signal.SIGTERM, signal.SIGKILL)):
            self._end_within(patience, number)
        for member in self.members.values():
            member.channel.close()
            member.child.close()
        self.members.clear()
        self._owners.clear()
        self._launcher.close()

    def disown(self) -> None:
        """In a forked copy of the parent: lets go of descriptors, leaves the workers alone."""
        self._closed = True
        for fd in (self._ring_bell, self._wake):
            os.close(fd)
        if self._half_started is not None:
            self._half_started.close()
        for member in self.members.values():
            member.channel.close()
            member.child.close()
        self.members.clear()
        self._launcher.disown()

    def _start(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._half_started = ours
            child = self._launcher.start(theirs)
            self._half_started = None
        member = Member(number, child, ours, Inbox(ours))
        self.members[number] = member
        self._starts += 1
        for fd in (ours.fileno(), child.sentinel):
            if fd is not None:
                self._owners[fd] = member
                self._poll.register(fd, select.POLLIN)
        send_down(ours, INTRODUCE, ("wake", number, 0, self._starts), (self._wake,))
        for role, which in self._posts:
            self._tell(member, role, which)

    def _tell(self, member: Member, role: str, number: int) -> None:
        fd, size, detail = self._posts[role, number]
        send_down(member.channel, INTRODUCE, (role, number, size, detail), (fd,))

    def _bury(self, member: Member) -> Iterator[tuple[Member, Answer | None]]:
        """The last words of a worker that has died, or lost its socket and is ended for that."""
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
        yield from ((member, answer) for answer in last)
        yield member, None

    def _end_within(self, patience: float, number: int) -> None:
        children = [member.child for member in self.members.values()]
        for child in children:
            if number and not child.poll():
                child.kill(number)
        _wait(children, patience)

    def _live_forked(self, channel: socket.socket) -> None:
        """A forked worker's life: first it lets go of what belongs to the parent."""
        for crew in list(_ALIVE):
            if not crew._closed:
                crew.disown()
        live(channel, self._pid, self._pipeline)


def _wait(children: list[Child], patience: float) -> None:
    """Until all have ended, or the time is over."""
    end = time.monotonic() + patience
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
