"""Data sets for these tests, in a small module that workers import quickly."""

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
    """Sample i holds one number of each generator that a data set may draw from."""

    def __getitem__(self, index: int) -> Any:
        words = random_source().randint(0, 2**62), np.random.randint(0, 2**62)
        return *map(int, words), random.getrandbits(62)


class Slow(Numbers):
    """Sample ``slow`` takes ``seconds``; each sample is (i, the nanosecond when its read ended)."""

    def __init__(self, length: int, slow: int, seconds: float) -> None:
        super().__init__(length)
        self.slow, self.seconds = slow, seconds

    def __getitem__(self, index: int) -> Any:
        if index == self.slow:
            time.sleep(self.seconds)
        return index, time.monotonic_ns()


class Pausing(Numbers):
    """A data set in which every sample takes a few milliseconds to read."""

    def __init__(self, length: int, seconds: float) -> None:
        super().__init__(length)
        self.seconds = seconds

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return super().__getitem__(index)


class Counted(Numbers):
    """Appends the index of every read to a file that all processes share; see ``reads(file)``."""

    def __init__(self, length: int, file: Path) -> None:
        super().__init__(length)
        self.file = str(file)
        Path(self.file).touch()

    def __getitem__(self, index: int) -> Any:
        # a single write call appends a whole record
        with open(self.file, "ab", buffering=0) as out:
            out.write(int(index).to_bytes(8, "little"))
        return int(index)


def reads(dataset: Counted) -> list[int]:
    """Return the indices that were read, in order."""
    return [int(i) for i in np.fromfile(dataset.file, dtype="<i8")]


class Paths(data.Dataset):
    """A table of many paths; sample i is the length of path i, and the times a process got it."""

    received = 0

    def __init__(self, count: int) -> None:
        super().__init__()
        self.table = StringTable(
            f"/data/train/n{i % 1000:08d}/image_{i:09d}.JPEG" for i in range(count)
        )

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Any:
        return np.array([len(self.table[index]) + index, self.received])

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        type(self).received += 1


class Enormous(data.Dataset):
    """A data set that reports a size of one TiB for each sample."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("nobody has room for it")

    def sample_spec(self) -> list[Field]:
        return [Field((1 << 40,), np.dtype(np.uint8))]


class Raising(Numbers):
    """A data set whose sample ``bad`` raises the exception that ``make`` returns."""

    def __init__(self, make: Any, bad: int = 5, length: int = 20) -> None:
        super().__init__(length)
        self.make, self.bad = make, bad

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise self.make()
        return super().__getitem__(index)


class TwoParts(Exception):
    """An exception whose ``args`` do not match its constructor."""

    def __init__(self, path: str, place: int) -> None:
        super().__init__(f"{path} is bad at {place}")
        self.path, self.place = path, place


class Locked(Exception):
    """An exception that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("cannot travel")


class Unprintable(Exception):
    """An exception whose ``__str__`` raises."""

    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__


class Refusing(Exception):
    """An object that ends the process when it is pickled."""

    def __reduce__(self) -> Any:
        raise SystemExit(2)


class Marking(Numbers):
    """Counts its reads in an array of its own and in a memory-mapped one."""

    def __init__(self, length: int, file: Path) -> None:
        super().__init__(length)
        self.counts = np.zeros(1 << 16, np.int64)
        self.mapped = np.memmap(file, np.int64, "w+", shape=(1 << 10,))

    def __getitem__(self, index: int) -> Any:
        self.counts[index] += 1
        self.mapped[index] += 1
        return self.counts[index], self.mapped[index]


class Unreadable(Numbers):
    """A data set in which every seventh sample is a truncated file."""

    def __getitem__(self, index: int) -> Any:
        if index % 7 == 0:
            raise DataError(f"file {index}: cut short")
        return super().__getitem__(index)


class Shards(data.IterableDataset):
    """Shard s yields ``sizes[s]`` samples: 1000 s + 0, 1, ... with a random number each."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__(len(sizes))
        self.sizes = sizes

    def iter_shard(self, shard: int, epoch: int, start: int) -> Any:
        for i in range(start, self.sizes[shard]):
            yield 1000 * shard + i, random_source().rand()


class Workers(Numbers):
    """A data set that runs BLAS and needle's kernels; samples are (process id, thread count)."""

    def __getitem__(self, index: int) -> Any:
        square = np.random.rand(200, 200).astype(np.float32)
        data.Resize((50, 60))((square @ square)[:, :, None])
        return os.getpid(), len(os.listdir("/proc/self/task"))
