"""Data sets for tests of the server; a module of its own, which servers and workers can import."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from needle import data
from needle.errors import DataError


def image(index: int, height: int = 8, width: int = 8) -> Any:
    """An image that belongs to this index alone."""
    rng = np.random.default_rng(index)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


class Images(data.Dataset):
    """Sample i is (its image, i); ``file``: notes each reading there; ``pause``: seconds each."""

    layout = "HWC"

    def __init__(self, length: int = 100, pause: float = 0.0, file: str | None = None) -> None:
        super().__init__()
        self.length, self.pause, self.file = length, pause, file

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if self.file is not None:
            with open(self.file, "ab", buffering=0) as out:  # one write at the end is one record
                out.write(int(index).to_bytes(8, "little"))
        if self.pause:
            time.sleep(self.pause)
        return self.make(int(index)), int(index)

    def make(self, index: int) -> Any:
        return image(index)


class Uneven(Images):
    """Images of many sizes."""

    def make(self, index: int) -> Any:
        return image(index, 9 + index % 7, 10 + index % 5)


class Nested(Images):
    """A dict in a tuple; its first field is no array."""

    def __getitem__(self, index: int) -> Any:
        return {"a": image(index), "b": [np.float32(index), index]}, index


class Captioned(Images):
    """Sample i is (its image, i, a text of i letters, as many bytes)."""

    def __getitem__(self, index: int) -> Any:
        return image(index), index, "ä" * index, bytes(index)


class Bad(Images):
    """Every tenth sample from the fifth on cannot be read; the seventh raises what is no DataError
    if ``worse``."""

    worse = False

    def make(self, index: int) -> Any:
        if index % 10 == 5:
            raise DataError(f"sample {index} is cut short")
        if self.worse and index == 7:
            raise KeyError("seven")
        return image(index)


class Deadly(Images):
    """Its first three readings of sample 13 kill their process."""

    def make(self, index: int) -> Any:
        if index == 13 and self.file is not None:
            mark = Path(f"{self.file}.{os.getpid()}")
            if len(list(mark.parent.glob(f"{mark.stem}.*"))) < 2:
                mark.touch()
                os.kill(os.getpid(), 9)
        return image(index)


def images(length: int = 100, pause: int = 0) -> Images:
    """For servers started by name; ``pause`` in microseconds."""
    return Images(length, pause * 1e-6)


def readings(file: Path) -> list[int]:
    """The indices that were read, in order."""
    return [int(i) for i in np.fromfile(file, dtype="<i8")]


class Unprintable(Exception):
    """An exception without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unspeakable(Unprintable):
    """An exception that cannot be shown in any way."""

    __repr__ = Unprintable.__str__


class Ended(BaseException):
    """An exception that no ``except Exception`` catches."""


class Faulty(Images):
    """Sample 5 does something else: ``fault`` is an exception class, or "hangs"."""

    def __init__(self, length: int, fault: Any) -> None:
        super().__init__(length)
        self.fault = fault

    def make(self, index: int) -> Any:
        if index == 5:
            if self.fault == "hangs":
                time.sleep(1000)
            raise self.fault("of sample 5")
        return image(index)
