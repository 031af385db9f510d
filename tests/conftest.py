"""Fixtures for every test: the devices of this machine. Soaks are left out unless asked for."""

from __future__ import annotations

from typing import Any

import pytest

import needle
from needle.backend_selection import BACKEND

DEVICES = ("cpu_numpy", "cpu") if BACKEND == "nd" else ("cpu",)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Soaks run where ``-m`` asks for them (make soak), or where one is named itself."""
    if "soak" in (config.option.markexpr or "") or any("::" in name for name in config.args):
        return
    soaks = [item for item in items if item.get_closest_marker("soak")]
    items[:] = [item for item in items if not item.get_closest_marker("soak")]
    if soaks:
        config.hook.pytest_deselected(items=soaks)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    """Each device in turn; one that is not built here is skipped."""
    found = needle.device(request.param)
    if not found.enabled():
        pytest.skip(f"{found} is not available: build the extension (make build)")
    return found
