"""Fixtures for every test: the devices of this machine."""

from __future__ import annotations

from typing import Any

import pytest

import needle
from needle.backend_selection import BACKEND

DEVICES = ("cpu_numpy", "cpu") if BACKEND == "nd" else ("cpu",)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    """Each device in turn; one that is not built here is skipped."""
    found = needle.device(request.param)
    if not found.enabled():
        pytest.skip(f"{found} is not available: build the extension (make build)")
    return found
