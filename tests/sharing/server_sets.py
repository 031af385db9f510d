"""Data sets for tests of the server, in a small module that servers and workers can import."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from needle import data
from needle.errors import DataError


def image(index: int, height: int = 8, width: int = 8) -> Any:
    """Return an image that is unique to this index."""
    rng = np.random.default_rng(index)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


class Images(data.Dataset):
    """Sample i is (its image, i); each read is noted in ``file`` and takes ``pause`` seconds."""

    layout = "HWC"

    def __init__(self, length: int = 100, pause: float = 0.0, file: str | None = None) -> None:
        super().__init__()
        self.length, self.pause, self.file = length, pause, file

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if self.file is not None:
            # a single write call appends a whole record
            with open(self.file, "ab", buffering=0) as out:
                out.write(int(index).to_bytes(8, "little"))
        if self.pause:
            time.sleep(self.pause)
        return self.make(int(index)), int(index)

    def make(self, index: int) -> Any:
        return image(index)


class Uneven(Images):
    """A data set of images of different sizes."""

    def make(self, index: int) -> Any:
        return image(index, 9 + index % 7, 10 + index % 5)


class Nested(Images):
    """A data set whose samples are a dict in a tuple, with a first field that is not an array."""

    def __getitem__(self, index: int) -> Any:
        return {"a": image(index), "b": [np.float32(index), index]}, index


class Captioned(Images):
    """Sample i is (its image, i, a text of i letters, i bytes)."""

    def __getitem__(self, index: int) -> Any:
        return image(index), index, "ä" * index, bytes(index)


class Bad(Images):
    """Every tenth sample from the fifth on is unreadable; if ``worse``, number 7 is a KeyError."""

    worse = False

    def make(self, index: int) -> Any:
        if index % 10 == 5:
            raise DataError(f"sample {index} is cut short")
        if self.worse and index == 7:
            raise KeyError("seven")
        return image(index)


class Deadly(Images):
    """The first three reads of sample 13 kill their process."""

    def make(self, index: int) -> Any:
        if index == 13 and self.file is not None:
            mark = Path(f"{self.file}.{os.getpid()}")
            if len(list(mark.parent.glob(f"{mark.stem}.*"))) < 2:
                mark.touch()
                os.kill(os.getpid(), 9)
        return image(index)


def images(length: int = 100, pause: int = 0) -> Images:
    """Return Images for servers started by name; ``pause`` is in microseconds."""
    return Images(length, pause * 1e-6)


def readings(file: Path) -> list[int]:
    """Return the indices that were read, in order."""
    return [int(i) for i in np.fromfile(file, dtype="<i8")]


class Unprintable(Exception):
    """An exception whose ``__str__`` raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unspeakable(Unprintable):
    """An exception that cannot be shown in any way."""

    __repr__ = Unprintable.__str__


class Ended(BaseException):
    """An exception that no ``except Exception`` catches."""


class Faulty(Images):
    """Sample 5 fails: ``fault`` is an exception class to raise, or "hangs"."""

    def __init__(self, length: int, fault: Any) -> None:
        super().__init__(length)
        self.fault = fault

    def make(self, index: int) -> Any:
        if index == 5:
            if self.fault == "hangs":
                time.sleep(1000)
            raise self.fault("of sample 5")
        return image(index)
