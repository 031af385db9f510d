"""The workers that read samples for a feed, started in a thread so that the server does not wait.

feed.py asks for the engine between two waits of the server; batching/pipeline.py reads.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from ...batching.pipeline import Pipeline
from ...datasets.dataset import in_memory_of
from ...workers import make_engine
from ...workers.engine import Engine

AHEAD = 2  # chunks submitted ahead


class Readers:
    """The engine of a feed; inline if its samples are in memory or ``workers`` is 0.

    count: the number of workers that read at a time.
    """

    def __init__(self, pipeline: Pipeline, workers: int) -> None:
        self.inline = not workers or in_memory_of(pipeline.dataset) is not None
        self.count = 1 if self.inline else workers
        self._pipeline = pipeline
        self._engine: Engine | None = None
        self._error: Exception | None = None
        self._lock = threading.Lock()  # protects _closed and the pipe
        self._closed = False
        self._started, self._starter = -1, -1  # a pipe that is readable once the workers run
        if self.inline:
            self._engine = make_engine("inline", pipeline, workers=0, prefetch=1)
        else:
            self._started, self._starter = os.pipe()
            threading.Thread(target=self._start, name="needle-readers", daemon=True).start()

    @property
    def engine(self) -> Engine | None:
        """The engine; None while its workers start. Raises the error of a failed start."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._engine is not None:
            self._close_pipe()
        return self._engine

    def descriptors(self) -> list[int]:
        """Return the descriptors of which one is readable when there may be something new."""
        if self._started >= 0:  # until the engine was asked for
            return [self._started]
        return [] if self._engine is None else self._engine.descriptors()

    def close(self) -> None:
        """End the workers; those that are starting end once they have started."""
        with self._lock:
            self._closed = True
        self._close_pipe()
        if self._engine is not None:
            self._engine.close()

    def _start(self) -> None:
        """Make and start the engine; runs in a thread, since it takes a while."""
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
                os.write(self._starter, b"!")
        if engine is not None:
            with suppress(Exception):  # it has failed already, or nobody needs it
                engine.close()

    def _close_pipe(self) -> None:
        with self._lock:
            pipe, self._started, self._starter = (self._started, self._starter), -1, -1
        for fd in pipe:
            if fd >= 0:
                os.close(fd)
