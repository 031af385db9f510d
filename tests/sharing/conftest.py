"""A watchdog for these tests: if one hangs, it prints the stacks and ends the process."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

QUICK, SOAK = 400, 3000  # seconds


@pytest.fixture(autouse=True)
def never_hangs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print the traceback of every thread and end the process if a test takes too long."""
    seconds = SOAK if request.node.get_closest_marker("soak") else QUICK
    faulthandler.dump_traceback_later(seconds, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
