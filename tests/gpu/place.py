"""The device that the tests of this folder run on."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import needle
from tests.cuda_on_cpu import emulated


class Place(NamedTuple):
    """A device to test, and how many steps of training it has time for."""

    device: Any
    steps: int

    @property
    def real(self) -> bool:
        """True on a GPU, which has time for large arrays."""
        return self.device.name == "cuda"


def first() -> Place:
    """Return the first GPU, else the emulated one; skip the test where there is neither."""
    if needle.cuda().enabled():
        return Place(needle.cuda(), 1000)
    if emulated.module is None:
        pytest.skip(f"{needle.cuda().why()}; and the emulator (target cuda_on_cpu) is not built")
    return Place(needle.device(emulated.NAME), 4)
