"""The fixture ``place``: the first GPU, or the emulated one."""

import pytest

from tests.gpu import place as places


@pytest.fixture(scope="module")
def place() -> places.Place:
    return places.first()
