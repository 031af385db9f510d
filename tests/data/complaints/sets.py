"""Data sets for the tests of complaints; a module of its own, so that workers import little."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from needle import data
from needle.data.formats.string_table import StringTable
from needle.data.samples.pytree import Field
from needle.data.samples.random_source import random_source
from needle.errors import DataError


class Numbers:
    """Sample i is (an array full of i, i)."""

    def __init__(self, length: int = 100, shape: tuple[int, ...] = (3, 4)) -> None:
        self.length, self.shape = length, shape

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return np.full(self.shape, index, np.float32), index


class Drawn(Numbers):
    """Sample i is a number of each generator that a data set may draw from."""

    def __getitem__(self, index: int) -> Any:
        words = random_source().randint(0, 2**62), np.random.randint(0, 2**62)
        return *map(int, words), random.getrandbits(62)


class Slow(Numbers):
    """Sample ``slow`` takes ``seconds``; samples are (i, the nanosecond when it had been read)."""

    def __init__(self, length: int, slow: int, seconds: float) -> None:
        super().__init__(length)
        self.slow, self.seconds = slow, seconds

    def __getitem__(self, index: int) -> Any:
        if index == self.slow:
            time.sleep(self.seconds)
        return index, time.monotonic_ns()


class Pausing(Numbers):
    """Every sample takes a moment."""

    def __init__(self, length: int, seconds: float) -> None:
        super().__init__(length)
        self.seconds = seconds

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return super().__getitem__(index)


class Counted(Numbers):
    """Notes every reading of a sample in a file that all processes share: ``reads(file)``."""

    def __init__(self, length: int, file: Path) -> None:
        super().__init__(length)
        self.file = str(file)
        Path(self.file).touch()

    def __getitem__(self, index: int) -> Any:
        with open(self.file, "ab", buffering=0) as out:  # one write at the end is one record
            out.write(int(index).to_bytes(8, "little"))
        return int(index)


def reads(dataset: Counted) -> list[int]:
    """The indices that were read, in order."""
    return [int(i) for i in np.fromfile(dataset.file, dtype="<i8")]


class Paths(data.Dataset):
    """Very many paths; sample i is the length of the i-th. ``pickled`` counts its pickles."""

    pickled = 0

    def __init__(self, count: int) -> None:
        super().__init__()
        self.table = StringTable(
            f"/data/train/n{i % 1000:08d}/image_{i:09d}.JPEG" for i in range(count)
        )

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Any:
        return np.int64(len(self.table[index]) + index)

    def __getstate__(self) -> Any:
        type(self).pickled += 1
        return self.__dict__


class Enormous(data.Dataset):
    """Says of its samples that each is a TiB."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("nobody has room for it")

    def sample_spec(self) -> list[Field]:
        return [Field((1 << 40,), np.dtype(np.uint8))]


class Raising(Numbers):
    """Sample ``bad`` raises what ``make`` makes."""

    def __init__(self, make: Any, bad: int = 5, length: int = 20) -> None:
        super().__init__(length)
        self.make, self.bad = make, bad

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise self.make()
        return super().__getitem__(index)


class TwoParts(Exception):
    """Its ``args`` are not what its constructor takes."""

    def __init__(self, path: str, place: int) -> None:
        super().__init__(f"{path} is bad at {place}")
        self.path, self.place = path, place


class Locked(Exception):
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("cannot travel")


class Unprintable(Exception):
    """Cannot be made text."""

    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__


class Refusing(Exception):
    """Ends the process when it is pickled."""

    def __reduce__(self) -> Any:
        raise SystemExit(2)


class Marking(Numbers):
    """Counts in an array of its own, and in one that is mapped from a file, how often it reads."""

    def __init__(self, length: int, file: Path) -> None:
        super().__init__(length)
        self.counts = np.zeros(1 << 16, np.int64)
        self.mapped = np.memmap(file, np.int64, "w+", shape=(1 << 10,))

    def __getitem__(self, index: int) -> Any:
        self.counts[index] += 1
        self.mapped[index] += 1
        return self.counts[index], self.mapped[index]


class Unreadable(Numbers):
    """Every seventh sample is a file cut short."""

    def __getitem__(self, index: int) -> Any:
        if index % 7 == 0:
            raise DataError(f"file {index}: cut short")
        return super().__getitem__(index)


class Shards(data.IterableDataset):
    """Shard s gives 1000 s + 0, 1, ... and a random number; ``sizes[s]`` of them."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(len(sizes))
        self.sizes = sizes

    def iter_shard(self, shard: int, epoch: int, start: int) -> Any:
        for i in range(start, self.sizes[shard]):
            yield 1000 * shard + i, random_source().rand()


class Workers(Numbers):
    """Works with BLAS and needle's kernels, then says which process it is and how many threads."""

    def __getitem__(self, index: int) -> Any:
        square = np.random.rand(200, 200).astype(np.float32)
        data.Resize((50, 60))((square @ square)[:, :, None])
        return os.getpid(), len(os.listdir("/proc/self/task"))
