"""Fixtures for every test: the devices of this machine. What takes minutes is left out unless asked
for."""

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
    """These run where ``-m`` asks for them (make soak, make test-s3), or where one is named.

    Slow ones come first, so that no worker is left with one at the end while the others have done.
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
    """Each device in turn; one that is not built here is skipped."""
    found = needle.device(request.param)
    if not found.enabled():
        pytest.skip(f"{found} is not available: build the extension (make build)")
    return found
