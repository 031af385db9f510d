"""Fixtures for tests of single kernels: all instruction sets of this machine in turn."""

from collections.abc import Iterator
from typing import Any

import pytest

from needle import backends

AVAILABLE = backends.available("cpu")
ISAS = backends.get("cpu").module.available_isas() if AVAILABLE else []  # type: ignore[attr-defined]
if not AVAILABLE:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(params=ISAS)
def kernels(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return the compiled backend with its kernels for one instruction set."""
    backend: Any = backends.get("cpu")
    before = backend.module.isa
    backend.module.select_isa(request.param)
    yield backend
    backend.module.select_isa(before)
