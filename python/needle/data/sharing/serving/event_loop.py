"""The server: one process that prepares each sample once for all tasks that can take it.

One thread waits for loaders and workers together. feed.py prepares samples, connection.py executes
the requests of a loader, wire/address.py holds the socket.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....errors import DataError, LoaderServerError
from ..wire.address import ListeningSocket, same_user
from ..wire.descriptions import check_shareable, fingerprint
from ..wire.protocol import MISSED_HEARTBEATS, text_of
from .connection import Connection
from .feed import Feed, ServerOptions

MOST_CONNECTIONS = 256
FIRST_TASK = 30.0
"""Seconds after which a server that ends with its last task ends if no task has come."""


class Server:
    """Serves ``dataset`` at ``path`` until ``stop`` or the end of the last task.

    Raises WorkerError if another server listens there, ValueError for a data set that cannot be
    shared.
    """

    def __init__(self, dataset: Any, path: Path, options: ServerOptions | None = None) -> None:
        check_shareable(dataset)
        self.dataset, self.options = dataset, options or ServerOptions()
        self.fingerprint = fingerprint(dataset)
        seed = self.options.seed
        self.seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self.feeds: dict[str, Feed] = {}
        self.connections: dict[int, Connection] = {}
        self._started = time.monotonic()
        self._had_tasks = False
        self._past = Counter[str]()  # reads and deliveries of closed feeds
        self.socket = ListeningSocket(path)
        self._stop, self._stopper = os.pipe()
        os.set_blocking(self._stopper, False)

    # ---- the loop

    def run(self) -> None:
        """Serve; close everything at the end, however it comes."""
        try:
            busy = False
            while True:
                # Wake up when the next lease may end, or a first task should have come.
                ready = self._wait(0.0 if busy else min(self.options.beat, 1.0))
                if self._stop in ready:
                    return
                self._receive(ready)
                self._tidy()  # before a long step, during which heartbeats wait in their sockets
                if self._is_over():
                    return
                busy = self._step()
        finally:
            self.close()

    def stop(self, *signal_details: object) -> None:
        """End ``run`` soon; a signal handler or another thread may call this."""
        with suppress(OSError):
            os.write(self._stopper, b"!")

    def close(self) -> None:
        """Close sockets, workers and memory; a second call does nothing."""
        self.socket.close()
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()
        for key in list(self.feeds):
            self._close_feed(key)
        for fd in (self._stop, self._stopper):
            if fd >= 0:
                os.close(fd)
        self._stop = self._stopper = -1

    def _wait(self, seconds: float) -> set[int]:
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        poll.register(self.socket.listener, select.POLLIN)
        for fd, connection in self.connections.items():
            connection.flush()
            poll.register(fd, select.POLLIN | (select.POLLOUT if connection.waiting else 0))
        for feed in self.feeds.values():
            for fd in feed.readers.descriptors():
                poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(int(seconds * 1000) + (seconds > 0))}

    def _receive(self, ready: set[int]) -> None:
        if self.socket.listener.fileno() in ready:
            self._accept()
        for fd in ready & self.connections.keys():
            connection = self.connections[fd]
            connection.execute()
            self._had_tasks = self._had_tasks or connection.task is not None

    def _accept(self) -> None:
        with suppress(OSError):  # the peer has gone again, or descriptors are exhausted
            channel, _ = self.socket.listener.accept()
            if len(self.connections) >= MOST_CONNECTIONS or not same_user(channel):
                channel.close()
                return
            self.connections[channel.fileno()] = Connection(channel, self)

    def _step(self) -> bool:
        busy = False
        for key, feed in list(self.feeds.items()):
            try:
                busy = feed.step() or busy
            except Exception as error:  # its workers cannot work; those of other feeds can
                for connection in self.connections.values():
                    if connection.feed is feed:
                        connection.refuse(error)
                        connection.leave()
                self._close_feed(key)
        for connection in self.connections.values():
            connection.deliver()
        return busy

    def _close_feed(self, key: str) -> None:
        feed = self.feeds.pop(key)
        self._past.update(reads=feed.reads, delivered=feed.delivered)
        feed.close()

    def _tidy(self) -> None:
        """End connections that are over or silent for too long, and feeds without tasks."""
        lease = MISSED_HEARTBEATS * self.options.beat
        for fd, connection in list(self.connections.items()):
            connection.flush()
            silent = time.monotonic() - connection.heard > lease
            if connection.ended or (connection.closing and (silent or not connection.waiting)):
                del self.connections[fd]
                connection.close()
            elif silent:
                text = (
                    f"server: no heartbeat for {MISSED_HEARTBEATS} intervals ({lease:g} s); the "
                    "client is considered dead"
                )
                connection.refuse(LoaderServerError(text))
                connection.leave()
        used = {id(connection.feed) for connection in self.connections.values()}
        for key in [key for key, feed in self.feeds.items() if id(feed) not in used]:
            self._close_feed(key)

    def _is_over(self) -> bool:
        if not self.options.until_last or self.task_names():
            return False
        return self._had_tasks or time.monotonic() - self._started > FIRST_TASK

    # ---- requests of connections

    def hello(self) -> dict[str, Any]:
        """Return what a peer is told first."""
        return {
            "length": len(self.dataset),
            "fingerprint": self.fingerprint,
            "dataset": type(self.dataset).__name__,
            "beat": self.options.beat,
            "pid": os.getpid(),
        }

    def length(self) -> int:
        """Return the length of the data set."""
        return len(self.dataset)

    def feed_for(self, values: dict[str, Any]) -> Feed:
        """Return the feed that a REGISTER frame describes; make it if there is none."""
        share = text_of(values, "share")
        shared, decode_at = values.get("shared"), values.get("decode_at")
        if share not in ("decoded", "prepared"):
            raise DataError(f"server: share must be 'decoded' or 'prepared', got {share!r:.40}")
        if decode_at is not None and not (
            isinstance(decode_at, list) and len(decode_at) == 2 and all(map(_is_size, decode_at))
        ):
            raise DataError(
                f"server: decode_at must be None or (height, width), got {decode_at!r:.40}"
            )
        key = json.dumps([share, shared, decode_at], sort_keys=True)
        if key not in self.feeds:
            size = None if decode_at is None else (decode_at[0], decode_at[1])
            prepared = share == "prepared"
            self.feeds[key] = Feed(self.dataset, shared, size, prepared, self.options, self.seed)
        return self.feeds[key]

    def task_names(self) -> set[str]:
        """Return the names of the registered tasks."""
        return {c.task.name for c in self.connections.values() if c.task is not None}

    def ends_without(self, connection: Connection) -> bool:
        """Return True if the server ends when this connection does."""
        others = (c for c in self.connections.values() if c is not connection and not c.closing)
        return self.options.until_last and all(c.task is None for c in others)

    def status(self) -> dict[str, Any]:
        """Return the state of all tasks, reads and memory as JSON values."""
        feeds = []
        for key, feed in self.feeds.items():
            tasks = [c.task for c in self.connections.values() if c.feed is feed and c.task]
            feeds.append(
                {
                    "what": key,
                    "tasks": [task.status() for task in tasks],
                    "delivered": feed.delivered,
                    **feed.statistics(),
                }
            )
        totals = {
            name: self._past[name] + sum(getattr(feed, name) for feed in self.feeds.values())
            for name in ("reads", "delivered")
        }
        return {
            **self.hello(),
            "seconds": time.monotonic() - self._started,
            "policy": self.options.policy,
            "totals": totals,
            "feeds": feeds,
        }


def serve(server: Server) -> None:
    """Run a server in the main thread; SIGTERM and SIGINT end it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.stop)
    server.run()


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20
