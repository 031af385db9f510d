"""The engine that reads for a feed, started aside: nobody waits while its workers begin.

feed.py asks for the engine between two waits of the server; what is read is the pipeline's.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from ...batching.pipeline import Pipeline
from ...datasets.dataset import in_memory_of
from ...workers import make_engine
from ...workers.engine import Engine

AHEAD = 2  # chunks asked for ahead


class Readers:
    """Workers for ``pipeline``; none where its samples are in memory or ``workers`` is 0.

    count: how many read at once.
    """

    def __init__(self, pipeline: Pipeline, workers: int) -> None:
        self.inline = not workers or in_memory_of(pipeline.dataset) is not None
        self.count = 1 if self.inline else workers
        self._pipeline = pipeline
        self._engine: Engine | None = None
        self._error: Exception | None = None
        self._lock = threading.Lock()  # of whether it is closed, and of the pipe
        self._closed = False
        self._told, self._tell = -1, -1
        if self.inline:
            self._engine = make_engine("inline", pipeline, workers=0, prefetch=1)
        else:
            self._told, self._tell = os.pipe()
            threading.Thread(target=self._start, name="needle-readers", daemon=True).start()

    @property
    def engine(self) -> Engine | None:
        """The engine; None while its workers begin. Raises what they could not begin for."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._engine is not None and self._told >= 0:
            self._close_pipe()
        return self._engine

    def descriptors(self) -> list[int]:
        """Of which one is readable when there may be something new."""
        if self._told >= 0:  # until somebody has asked for the engine
            return [self._told]
        return [] if self._engine is None else self._engine.descriptors()

    def close(self) -> None:
        """Ends the workers; those that just begin end as soon as they have begun."""
        with self._lock:
            self._closed = True
        self._close_pipe()
        if self._engine is not None:
            self._engine.close()

    def _start(self) -> None:
        """The thread: everything that may take a while."""
        engine = None
        try:
            engine = make_engine("processes", self._pipeline, workers=self.count, prefetch=AHEAD)
            engine.start()
        except Exception as error:
            self._error = error
        with self._lock:
            if not self._closed and self._error is None:
                self._engine, engine = engine, None
            if not self._closed:
                os.write(self._tell, b"!")
        if engine is not None:
            with suppress(Exception):  # it has failed already, or nobody wants it
                engine.close()

    def _close_pipe(self) -> None:
        with self._lock:
            told, tell, self._told, self._tell = self._told, self._tell, -1, -1
        for fd in (told, tell):
            if fd >= 0:
                os.close(fd)
