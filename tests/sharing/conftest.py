"""No test here can hang the run: after a while its stacks are printed and the process ends."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

QUICK, SOAK = 400, 3000  # seconds


@pytest.fixture(autouse=True)
def never_hangs(request: pytest.FixtureRequest) -> Iterator[None]:
    """The traceback of every thread, then the end, for a test that takes too long."""
    seconds = SOAK if request.node.get_closest_marker("soak") else QUICK
    faulthandler.dump_traceback_later(seconds, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
