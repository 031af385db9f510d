"""Fixtures for every test: the devices of this machine. Long-running tests are opt-in."""

from __future__ import annotations

import os
from typing import Any

import pytest

import needle
from needle.backend_selection import BACKEND

ASKED = os.environ.get("NEEDLE_TEST_DEVICES")
"""Names with commas: ``device`` is these alone; make test-cuda asks for the GPU."""
DEVICES = ASKED.split(",") if ASKED else ("cpu_numpy", "cpu") if BACKEND == "nd" else ("cpu",)


ON_REQUEST = ("soak", "s3", "browser")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect opt-in tests unless ``-m`` or a path asks for them (make soak, make test-s3).

    Slow tests run first, so that no worker is left with one at the end while the others are idle.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    if any("::" in name for name in config.args):
        return
    kept, left = [], []
    asked = config.option.markexpr or ""
    unasked = [mark for mark in ON_REQUEST if mark not in asked]
    for item in items:
        (left if any(map(item.get_closest_marker, unasked)) else kept).append(item)
    items[:] = kept
    if left:
        config.hook.pytest_deselected(items=left)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    """Return each device in turn; skip a device that is not built here."""
    found = needle.device(request.param)
    if not found.enabled():
        pytest.skip(f"{found} is not available: build the extension (make build)")
    return found
