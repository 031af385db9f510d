"""Ctrl-C and SIGTERM as a flag that the training loop checks between two steps.

A KeyboardInterrupt in the middle of an optimiser step would leave half of the parameters updated;
a flag does not. A second Ctrl-C stops the program at once, without saving.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any


class Interrupted(Exception):
    """Raised if a signal has stopped the run between two steps; the run is saved."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class StopRequest:
    """``with StopRequest() as stop:`` sets ``stop.number`` to the signal received.

    None before it.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number


def end_if_interrupted(lost: Any) -> None:
    """End the program after a Ctrl-C that Python cannot raise; a ``sys.unraisablehook``.

    In a destructor or a weak reference's callback Python would print a traceback and continue.
    """
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        return sys.__unraisablehook__(lost)
    print("\nstopped; nothing new was saved", flush=True)
    os._exit(128 + signal.SIGINT)
