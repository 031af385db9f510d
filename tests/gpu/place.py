"""The device that these tests use."""

from typing import Any, NamedTuple

import pytest

import needle
from tests.cuda_on_cpu import emulated


class Place(NamedTuple):
    """A device to test, and the number of training steps for which there is time."""

    device: Any
    steps: int

    @property
    def real(self) -> bool:
        """Return True on a GPU, where large arrays are fast enough."""
        return self.device.name == "cuda"


def first() -> Place:
    """Return the first GPU, or the emulated one; skip the test if there is neither."""
    if needle.cuda().enabled():
        return Place(needle.cuda(), 1000)
    if emulated.module is None:
        pytest.skip(f"{needle.cuda().why()}; and the emulator (target cuda_on_cpu) is not built")
    return Place(needle.device(emulated.NAME), 4)
