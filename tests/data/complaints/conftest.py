"""A watchdog for these tests: an alarm fails a test that hangs, or else ends the process."""

import faulthandler
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

QUICK, SOAK = 90, 1200  # seconds


@pytest.fixture(autouse=True)
def never_hangs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Raise TimeoutError after a while, with a traceback of every thread."""
    seconds = SOAK if request.node.get_closest_marker("soak") else QUICK
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def ring(number: int, frame: Any) -> None:
        faulthandler.dump_traceback()
        raise TimeoutError(f"the test has run for {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + 60, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
