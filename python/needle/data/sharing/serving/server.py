"""The server: one process that prepares each sample once for all tasks that can take it.

One thread, one loop: it waits for loaders and workers together, and nobody in particular. How
samples get ready is feed.py's, what a loader says connection.py's, where it listens address.py's.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....errors import DataError, LoaderServerError
from ..wire.address import Place, same_user
from ..wire.named_sets import check_shareable, fingerprint
from ..wire.protocol import text_of
from .connection import Connection
from .feed import Feed

MOST_CONNECTIONS = 256
LEASE = 3
"""Heartbeats that may be missed."""
FIRST_PATIENCE = 30.0
"""Seconds in which somebody must come to a server that ends with its last task."""


@dataclass(frozen=True)
class Options:
    """workers: processes that read, a kind of sample; 0: none (samples in memory need none).

    budget: bytes of prepared samples kept beyond those in use; spill: of those that some epoch
    still needs, kept in a nameless file beyond that. beat: seconds between heartbeats. until_last:
    the server ends when its last task has gone, or none comes. policy, seed: the planner's.
    """

    workers: int = 2
    budget: int = 1 << 30
    beat: float = 5.0
    until_last: bool = False
    policy: str = "coupled"
    seed: int | None = None
    spill: int = 0


class Server:
    """Serves ``dataset`` at ``path`` until ``stop`` or the last task's end.

    Raises WorkerError where another server listens there, ValueError for a data set that cannot
    be shared.
    """

    def __init__(self, dataset: Any, path: Path, options: Options | None = None) -> None:
        check_shareable(dataset)
        self.dataset, self.options = dataset, options or Options()
        self.fingerprint = fingerprint(dataset)
        seed = self.options.seed
        self.seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self.feeds: dict[str, Feed] = {}
        self.connections: dict[int, Connection] = {}
        self._started = time.monotonic()
        self._had_tasks = False
        self._past = Counter[str]()  # what feeds that are closed have done
        self._stop, self._stopping = os.pipe()
        os.set_blocking(self._stopping, False)
        try:
            self.place = Place(path)
        except BaseException:
            os.close(self._stop)
            os.close(self._stopping)
            raise

    # ---- the loop

    def run(self) -> None:
        """Serves; closes everything at the end, however that comes."""
        try:
            busy = False
            while True:
                ready = self._wait(0.0 if busy else self._patience())
                if self._stop in ready:
                    return
                self._hear(ready)
                self._tidy()  # before what may take long: heartbeats wait in their sockets then
                if self._is_over():
                    return
                busy = self._step()
        finally:
            self.close()

    def stop(self, *signal_details: object) -> None:
        """Ends ``run`` soon; may be a signal's handler, or called by another thread."""
        with suppress(OSError):
            os.write(self._stopping, b"!")

    def close(self) -> None:
        """Nothing is left: no socket, no process, no memory. Twice is once."""
        self.place.close()
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()
        for key in list(self.feeds):
            self._close_feed(key)
        for fd in (self._stop, self._stopping):
            if fd >= 0:
                os.close(fd)
        self._stop = self._stopping = -1

    def _wait(self, seconds: float) -> set[int]:
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        poll.register(self.place.listener, select.POLLIN)
        for fd, connection in self.connections.items():
            poll.register(fd, select.POLLIN | (select.POLLOUT if connection.waiting else 0))
        for feed in self.feeds.values():
            for fd in feed.readers.descriptors():
                poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(int(seconds * 1000) + (seconds > 0))}

    def _patience(self) -> float:
        """Until the next lease may be over, or somebody should have come."""
        return min(self.options.beat, 1.0)

    def _hear(self, ready: set[int]) -> None:
        if self.place.listener.fileno() in ready:
            self._accept()
        for fd in ready & self.connections.keys():
            connection = self.connections[fd]
            if connection.waiting:
                connection.flush()
            connection.receive()
            self._had_tasks = self._had_tasks or connection.task is not None

    def _accept(self) -> None:
        with suppress(OSError):  # it has gone again, or there are no more descriptors
            channel, _ = self.place.listener.accept()
            if len(self.connections) >= MOST_CONNECTIONS or not same_user(channel):
                channel.close()
                return
            self.connections[channel.fileno()] = Connection(channel, self)

    def _step(self) -> bool:
        busy = False
        for key, feed in list(self.feeds.items()):
            try:
                busy = feed.step() or busy
            except Exception as error:  # its workers cannot work; other feeds' can
                self._fail(key, error)
        for connection in self.connections.values():
            connection.deliver()
        return busy

    def _fail(self, key: str, error: Exception) -> None:
        for connection in self.connections.values():
            if connection.feed is self.feeds[key]:
                connection.refuse(error)
                connection.leave()
        self._close_feed(key)

    def _close_feed(self, key: str) -> None:
        feed = self.feeds.pop(key)
        self._past.update(reads=feed.reads, delivered=feed.delivered)
        feed.close()

    def _tidy(self) -> None:
        """Ends connections that are over, or silent for too long, and feeds without tasks."""
        lease = time.monotonic() - LEASE * self.options.beat
        for fd, connection in list(self.connections.items()):
            silent = connection.heard < lease
            if connection.ended or (connection.closing and (silent or not connection.waiting)):
                del self.connections[fd]
                connection.close()
            elif silent:
                missed = f"server: a peer may miss {LEASE} heartbeats, and none came for longer"
                connection.refuse(LoaderServerError(missed))
                connection.leave()
        used = {id(connection.feed) for connection in self.connections.values()}
        for key in [key for key, feed in self.feeds.items() if id(feed) not in used]:
            self._close_feed(key)

    def _is_over(self) -> bool:
        if not self.options.until_last or self.task_names():
            return False
        return self._had_tasks or time.monotonic() - self._started > FIRST_PATIENCE

    # ---- what connections ask

    def hello(self) -> dict[str, Any]:
        """What a peer is told first."""
        return {
            "length": len(self.dataset),
            "fingerprint": self.fingerprint,
            "dataset": type(self.dataset).__name__,
            "beat": self.options.beat,
            "pid": os.getpid(),
        }

    def length(self) -> int:
        """Of the data set."""
        return len(self.dataset)

    def feed_for(self, values: dict[str, Any]) -> Feed:
        """The feed that prepares what a REGISTER frame describes; made where there is none."""
        share = text_of(values, "share")
        shared, decode_at = values.get("shared"), values.get("decode_at")
        good = decode_at is None or (
            isinstance(decode_at, list) and len(decode_at) == 2 and all(map(_is_size, decode_at))
        )
        if share not in ("decoded", "prepared") or not good:
            raise DataError(
                f"server: no samples are {share!r:.40} and decoded at {decode_at!r:.40}"
            )
        key = json.dumps([share, shared, decode_at], sort_keys=True)
        if key not in self.feeds:
            self.feeds[key] = Feed(
                self.dataset,
                shared,
                None if decode_at is None else tuple(decode_at),
                prepared=share == "prepared",
                workers=self.options.workers,
                budget=self.options.budget,
                spill=self.options.spill,
                policy=self.options.policy,
                seed=self.seed,
            )
        return self.feeds[key]

    def task_names(self) -> set[str]:
        """Of the tasks that are here."""
        return {c.task.name for c in self.connections.values() if c.task is not None}

    def ends_without(self, connection: Connection) -> bool:
        """Whether this connection's end is the server's."""
        others = [
            c for c in self.connections.values() if c.task is not None and c is not connection
        ]
        return self.options.until_last and not others

    def status(self) -> dict[str, Any]:
        """All tasks, readings and memory, as JSON values."""
        feeds = []
        for key, feed in self.feeds.items():
            here = [c.task for c in self.connections.values() if c.feed is feed and c.task]
            feeds.append(
                {
                    "what": key,
                    "tasks": [task.state() for task in here],
                    "delivered": feed.delivered,
                    **feed.statistics(),
                }
            )
        totals = {
            name: self._past[name] + sum(getattr(feed, name) for feed in self.feeds.values())
            for name in ("reads", "delivered")
        }
        up = time.monotonic() - self._started
        about = {"seconds": up, "policy": self.options.policy, "totals": totals}
        return {**self.hello(), **about, "feeds": feeds}


def serve(server: Server) -> None:
    """Runs it in the main thread; SIGTERM and SIGINT end it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.stop)
    server.run()


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20
