"""The owner of a loader's engine, which creates it lazily and lends it to one epoch at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from ...contexts import finalize
from ..batching.pipeline import Pipeline
from ..workers.engine import Engine


class EngineHolder:
    """The owner of the engine that ``make`` returns, which records the iterator that uses it.

    The workers are kept when an epoch ends. lock: held by an iterator while it uses the engine,
    which allows only one consumer at a time. In a forked copy of the program, the holder creates a
    new engine. The engine is closed by ``close``, when the holder is collected, or at the end of
    the program.
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
        """Return the lock; a fork gets a new one, since the owner may not exist there."""
        if self._lock_process != os.getpid():
            self.lock, self._lock_process = threading.RLock(), os.getpid()
        return self.lock

    def running(self) -> Engine:
        """Return the engine, creating it if this process has none."""
        if self.engine is not None and self._process != os.getpid():
            self._finalizer.detach()  # the workers belong to the program that was forked
            self.engine = self._user = None
        if self.engine is None:
            engine = self.make()
            self._finalizer = finalize(self, engine.close)
            self.engine, self._process = engine, os.getpid()
        return self.engine

    def renew(self, make: Callable[[], Engine], pipeline: Pipeline) -> None:
        """Use ``make`` for new engines, and ``pipeline`` in the running one."""
        self.make = make
        engine = self.engine if self._process == os.getpid() else None
        if engine is not None and engine.renew(pipeline):
            self._user = None

    def taken_by(self, user: object) -> tuple[Engine, bool]:
        """Return the engine, and whether its user changed, which cancels all tickets."""
        engine = self.running()
        if self._user is user:
            return engine, False
        self._user = None
        engine.cancel()
        self._user = user
        return engine, True

    def forget(self, user: object) -> None:
        """Make the next ``taken_by`` of ``user`` cancel its tickets, since some may be lost."""
        if self._user is user:
            self._user = None

    def release(self, user: object) -> None:
        """Cancel the tickets of ``user`` after its epoch has ended or was dropped.

        The garbage collector may call this in any thread, so it never blocks: if another iterator
        owns the lock at this moment, that iterator's ``taken_by`` cancels the tickets.
        """
        if not self.lock.acquire(blocking=False):
            return
        try:
            if self.engine is None or self._user is not user:
                return
            self._user = None
            if self._process != os.getpid() or not self._finalizer.alive:
                return  # the program is ending, or this is a forked copy of it
            self.engine.cancel()
        finally:
            self.lock.release()

    def close(self) -> None:
        """Stop the workers and free their shared memory; a second call is a no-op.

        An iterator that is waiting for a batch in another thread raises WorkerError.
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
