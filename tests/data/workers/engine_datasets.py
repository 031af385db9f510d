"""Data sets and exceptions for the engines' tests, in a small module that imports quickly."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
from complaints.sets import Numbers
from complaints.sets import Slow as Slow


class Deadly(Numbers):
    """Sample ``victim`` kills its process the first ``times`` times, counted in ``folder``."""

    def __init__(
        self, length: int, victim: int, times: int, folder: str, how: int = signal.SIGKILL
    ) -> None:
        super().__init__(length)
        self.victim, self.times, self.folder, self.how = victim, times, folder, how

    def __getitem__(self, index: int) -> Any:
        if index == self.victim:
            for turn in range(self.times):
                try:
                    (Path(self.folder) / str(turn)).touch(exist_ok=False)
                except FileExistsError:
                    continue
                if self.how < 0:
                    os._exit(-self.how)
                os.kill(os.getpid(), self.how)
                time.sleep(10)
        return super().__getitem__(index)


class DeadlyFetch(Deadly):
    """The data set ``Deadly`` with a ``fetch`` that reads a whole slice at a time."""

    def fetch(self, indices: Any) -> Any:
        rows = [self[index] for index in indices.tolist()]
        return np.stack([row[0] for row in rows]), np.array([row[1] for row in rows])


class Held:
    """A data set whose samples say whether the worker's large arrays are views of shared memory."""

    def __init__(self) -> None:
        self.plain = np.arange(1 << 16, dtype=np.int64)
        self.turned = np.arange(1 << 16, dtype=np.float32).reshape(16, 64, 64).transpose(2, 0, 1)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        shared = [int(not array.flags.owndata) for array in (self.plain, self.turned)]
        return np.array([*shared, *self.turned.strides, self.plain[-1], int(self.turned.sum() > 0)])


class Countdown:
    """A stream: shard s yields s * 1000 + 0, 1, 2 ... 24, and the process that read it."""

    def iter_shard(self, shard: int, epoch: int, start: int) -> Any:
        for i in range(start, 25):
            yield np.int64(shard * 1000 + i), np.int64(os.getpid())
