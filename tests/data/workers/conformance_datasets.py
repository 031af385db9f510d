"""Data sets for the engines' conformance tests, in a small module that workers import quickly."""

from __future__ import annotations

from typing import Any

import numpy as np
from complaints.sets import Shards as Shards
from complaints.sets import TwoParts

from needle import data
from needle.data.samples.random_source import random_source


class Drawing(data.Dataset):
    """Sample i is (an image of i, i, a random number); the data set keeps no state."""

    def __init__(self, length: int = 23) -> None:
        super().__init__()
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return np.full((6, 5, 3), index * 5, np.uint8), index, random_source().rand()


class Mixed(Drawing):
    """Samples are dicts with text, tuples and a scalar array."""

    def __getitem__(self, index: int) -> Any:
        return {"name": f"sample {index}", "x": np.float32(index), "n": (index, index / 2)}


class Ragged(Drawing):
    """Samples are sequences of several lengths, with their index."""

    def __getitem__(self, index: int) -> Any:
        return np.arange(index % 7, dtype=np.int64), index


class Sized(Drawing):
    """Samples are images of different sizes."""

    def __getitem__(self, index: int) -> Any:
        return np.full((4 + index % 3, 5 + index % 4, 3), index, np.uint8), index


class Failing(Drawing):
    """Sample ``bad`` cannot be read."""

    def __init__(self, length: int = 23, bad: int = 9) -> None:
        super().__init__(length)
        self.bad = bad

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise TwoParts("here", index)
        return index


class Skippable(Failing):
    """Samples that are multiples of ``bad`` are unreadable."""

    def __getitem__(self, index: int) -> Any:
        if index % self.bad == 0:
            raise data_error(index)
        return np.float32(index), index


def data_error(index: int) -> Exception:
    """Return the error of a file reader."""
    from needle.errors import DataError

    return DataError(f"file {index}: cut short")


def padded(samples: list[Any]) -> Any:
    """Collate sequences padded with zeros, and their indices."""
    longest = max(len(sequence) for sequence, _ in samples)
    rows = np.zeros((len(samples), longest), np.int64)
    for row, (sequence, _) in zip(rows, samples):
        row[: len(sequence)] = sequence
    return rows, np.array([number for _, number in samples])
