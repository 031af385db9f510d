"""The server, one process that prepares each sample once for all tasks that can take it.

A single thread polls the sockets of loaders and workers, and never reads a sample itself. feed.py
prepares samples, connection.py executes the requests of a loader, wire/address.py holds the socket.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...data.workers.supervisor import pidfd
from ...errors import DataError, LoaderServerError
from ..wire.address import ListeningSocket, peer_of
from ..wire.descriptions import check_shareable
from ..wire.fingerprint import fingerprint
from ..wire.protocol import MISSED_HEARTBEATS, Bell, text_of
from .connection import Connection
from .feed import Feed, ServerOptions, Task

FIRST_TASK = 30.0
"""Seconds without a first task after which a server with ``until_last`` ends."""


class Server:
    """A server of ``dataset`` at ``path`` that runs until ``stop`` or the end of the last task.

    identity: the fingerprint of the data set, if known. starter: a descriptor that becomes readable
    when the loader that started this server has registered or died.

    An error that one peer causes never ends the loop: every call for a connection or a feed is
    guarded, and an exception of any class drops only that connection, or the tasks of that feed.
    Raises WorkerError if another server listens at ``path``, ValueError for a data set that cannot
    be shared.
    """

    def __init__(
        self,
        dataset: Any,
        path: Path,
        options: ServerOptions | None = None,
        *,
        identity: str | None = None,
        starter: int = -1,
    ) -> None:
        check_shareable(dataset)
        self.dataset, self.options = dataset, options or ServerOptions()
        self.fingerprint = fingerprint(dataset) if identity is None else identity
        seed = self.options.seed
        self.seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self.feeds: dict[str, Feed] = {}
        self.connections: dict[int, Connection] = {}
        self._length, self._starter = len(dataset), starter
        self._started = time.monotonic()
        self._had_tasks = False
        self._accept_from = 0.0  # Descriptors ran out, so accept no connection before this time.
        self._past = Counter[str]()  # Counts of reads and deliveries of closed feeds.
        self._stop = Bell()
        try:
            self.socket = ListeningSocket(path)
        except BaseException:
            self._stop.close()
            raise

    # ---- the loop

    def run(self) -> None:
        """Serve until the server ends, then close everything, even after an error."""
        try:
            while True:
                # Wake up when the next lease may expire, or a sample may count as slow.
                ready = self._wait(min(self.options.beat, 1.0))
                if self._stop.fileno() in ready:
                    return
                self._receive(ready)
                for key in list(self.feeds):
                    self._step(key)
                for connection in list(self.connections.values()):
                    self._guard(connection, connection.deliver)
                self._tidy()
                if self._is_over(self._starter in ready):
                    return
        finally:
            self.close()

    def stop(self, *signal_details: object) -> None:
        """Make ``run`` return soon. Signal handlers and other threads may call this."""
        self._stop.ring()

    def close(self) -> None:
        """Close sockets, workers and memory; a second call is a no-op."""
        self.socket.close()
        for connection in list(self.connections.values()):
            self._end(connection)
        for key in list(self.feeds):
            self._close_feed(key, wait=True)
        self._stop.close()
        if self._starter >= 0:
            os.close(self._starter)
            self._starter = -1

    def _guard(self, connection: Connection, action: Callable[[], None]) -> None:
        """Call ``action`` for one connection; an error ends only this connection and its task."""
        try:
            action()
        # a real Ctrl-C: exceptions of a data set arrive as answers
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._drop(connection, error)

    def _drop(self, connection: Connection, error: BaseException) -> None:
        """Send the error to a task and release everything that the task held."""
        with suppress(Exception):
            connection.refuse(error)
        with suppress(Exception):
            connection.leave()

    def _wait(self, seconds: float) -> set[int]:
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        if time.monotonic() >= self._accept_from:
            poll.register(self.socket.listener, select.POLLIN)
        if self._starter >= 0:
            poll.register(self._starter, select.POLLIN)
        for fd, connection in self.connections.items():
            connection.flush()
            poll.register(fd, select.POLLIN | (select.POLLOUT if connection.waiting else 0))
            if connection.peer >= 0:
                poll.register(connection.peer, select.POLLIN)
        for feed in self.feeds.values():
            for fd in feed.reading.descriptors():
                if fd >= 0:  # descriptor of a worker that has just ended
                    poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(int(seconds * 1000) + 1)}

    def _receive(self, ready: set[int]) -> None:
        if self.socket.listener.fileno() in ready:
            self._accept()
        for fd, connection in list(self.connections.items()):
            if fd in ready:
                self._guard(connection, connection.execute)
                self._had_tasks = self._had_tasks or connection.task is not None
            if connection.peer in ready:  # the peer has died
                connection.ended = True

    def _accept(self) -> None:
        try:
            channel, _ = self.socket.listener.accept()
            process, user = peer_of(channel)
        except OSError as error:  # the peer has disconnected, or descriptors are exhausted
            wait = 0.5 * (error.errno in (errno.EMFILE, errno.ENFILE))
            self._accept_from = time.monotonic() + wait
            return
        if user != os.getuid():
            channel.close()
            return
        peer = pidfd(process) if process not in (0, os.getpid()) else None
        connection = Connection(channel, self, -1 if peer is None else peer)
        self.connections[channel.fileno()] = connection

    def _step(self, key: str) -> None:
        feed = self.feeds[key]
        try:
            feed.step()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the workers of this feed failed; other feeds go on
            for connection in list(self.connections.values()):
                if connection.feed is feed:
                    self._drop(connection, error)
            self._close_feed(key)

    def _close_feed(self, key: str, wait: bool = False) -> None:
        feed = self.feeds.pop(key)
        self._past.update(reads=feed.reads, delivered=feed.delivered)
        with suppress(Exception):
            feed.close(wait)

    def _end(self, connection: Connection) -> None:
        del self.connections[connection.channel.fileno()]
        with suppress(Exception):
            connection.close()

    def _tidy(self) -> None:
        """Close connections that have ended or let their lease expire, and feeds without tasks."""
        lease = MISSED_HEARTBEATS * self.options.beat
        for connection in list(self.connections.values()):
            connection.flush()
            silent = time.monotonic() - connection.last_received > lease
            if connection.ended or (connection.closing and (silent or not connection.waiting)):
                self._end(connection)
            elif silent:
                text = (
                    f"server: no heartbeat for {MISSED_HEARTBEATS} intervals ({lease:g} s); the "
                    "client is considered dead"
                )
                self._drop(connection, LoaderServerError(text))
        used = {id(connection.feed) for connection in self.connections.values()}
        for key in [key for key, feed in self.feeds.items() if id(feed) not in used]:
            self._close_feed(key)

    def _is_over(self, starter_gone: bool) -> bool:
        if starter_gone:
            os.close(self._starter)
            self._starter = -1
        if not self.options.until_last or self.task_names() or self._starter >= 0:
            return False
        late = time.monotonic() - self._started > FIRST_TASK
        return self._had_tasks or starter_gone or late

    # ---- requests of connections

    def hello(self) -> dict[str, Any]:
        """Return the contents of the server's HELLO."""
        return {
            "length": self._length,
            "fingerprint": self.fingerprint,
            "dataset": type(self.dataset).__name__,
            "beat": self.options.beat,
            "pid": os.getpid(),
        }

    def length(self) -> int:
        """Return the length of the data set."""
        return self._length

    def feed_for(self, values: dict[str, Any], task: Task) -> Feed:
        """Return the feed that a REGISTER frame describes, making it if it does not exist.

        Raises DataError if the frame is invalid or the feed has no room for the task.
        """
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
        feed = self.feeds[key]  # the loop closes a feed that gets no task
        feed.check(task, sum(each.feed is feed for each in self.connections.values()))
        return feed

    def task_names(self) -> set[str]:
        """Return the names of the registered tasks."""
        return {c.task.name for c in self.connections.values() if c.task is not None}

    def ends_without(self, connection: Connection) -> bool:
        """Return True if the server ends with this connection."""
        others = (c for c in self.connections.values() if c is not connection and not c.closing)
        return self.options.until_last and all(c.task is None for c in others)

    def status(self) -> dict[str, Any]:
        """Return the state of all tasks, reads and memory as JSON values."""
        feeds = []
        for key, feed in self.feeds.items():
            tasks = [c.task for c in self.connections.values() if c.feed is feed and c.task]
            shown = [task.status() for task in tasks]
            feeds.append({"what": key, "tasks": shown, **feed.statistics()})
        totals = {
            name: self._past[name] + sum(getattr(feed, name) for feed in self.feeds.values())
            for name in ("reads", "delivered")
        }
        return {
            **self.hello(),
            "seconds": time.monotonic() - self._started,
            "totals": totals,
            "feeds": feeds,
        }


def serve(server: Server) -> None:
    """Run a server in the main thread until it ends, or SIGTERM or SIGINT stops it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.stop)
    server.run()


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20
