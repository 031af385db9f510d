"""The holder of a loader's engine: makes it on first use, gives it to one epoch at a time."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ..workers.engine import Engine


class EngineHolder:
    """Holds the engine that ``make`` returns, and knows which epoch it works for.

    The workers stay when an epoch ends. lock: held while an iterator uses the engine,
    which has one consumer at a time. In a forked copy of the program the holder makes a new engine.
    The engine is closed by ``close``, when the holder is collected, or at the end of the program.
    """

    def __init__(self, make: Callable[[], Engine]) -> None:
        self.make = make
        self._reset()

    def _reset(self) -> None:
        self.engine: Engine | None = None
        self.lock = threading.RLock()
        self._user: object = None
        self._finalizer: Any = None
        self._process = self._lock_process = os.getpid()

    def locked(self) -> threading.RLock:
        """Return the lock; in a forked copy a new one, since the old one may be held for ever."""
        if self._lock_process != os.getpid():
            self.lock, self._lock_process = threading.RLock(), os.getpid()
        return self.lock

    def running(self) -> Engine:
        """Return the engine; make it if there is none in this process."""
        if self.engine is not None and self._process != os.getpid():
            self._finalizer.detach()  # its workers belong to the program that was forked
            self.engine = self._user = None
        if self.engine is None:
            engine = self.make()
            self._finalizer = weakref.finalize(self, engine.close)
            self.engine, self._process = engine, os.getpid()
        return self.engine

    def taken_by(self, user: object) -> tuple[Engine, bool]:
        """Return the engine, and True if it changed users, which cancels all tickets."""
        engine = self.running()
        if self._user is user:
            return engine, False
        self._user = None
        engine.cancel()
        self._user = user
        return engine, True

    def forget(self, user: object) -> None:
        """Have the next ``taken_by`` of ``user`` cancel its tickets, which are in doubt."""
        if self._user is user:
            self._user = None

    def release(self, user: object) -> None:
        """Cancel what was submitted for ``user``, whose epoch has ended or was dropped.

        A garbage collection may call this in any thread, so it never waits: if another iterator
        uses the engine at this moment, its ``taken_by`` cancels the tickets.
        """
        if not self.lock.acquire(blocking=False):
            return
        try:
            if self.engine is None or self._user is not user:
                return
            self._user = None
            if self._process != os.getpid() or not self._finalizer.alive:
                return  # the program ends, or this is a forked copy of it
            self.engine.cancel()
        finally:
            self.lock.release()

    def close(self) -> None:
        """End the workers and free what they shared; a second call does nothing.

        An iterator that waits for a batch in another thread raises WorkerError.
        """
        finalizer, self._finalizer = self._finalizer, None
        self.engine = self._user = None
        if finalizer is not None:
            finalizer()

    def __getstate__(self) -> dict[str, Any]:
        return {"make": self.make}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.make = state["make"]
        self._reset()
