"""Compare loaders of arrays in memory, without transforms, with slicing the arrays by hand.

A slice in order is a view: no data is moved, so its rate is that of creating views. Batches of a
loader are copies, because users may keep them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

import needle.data as data
from apps.bench.harness.case import Case, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, median_and_range
from apps.bench.harness.turns import Result

from . import ours, peers
from .epochs import Epochs

TITLE = "Arrays in memory without transforms, 200 000 x 100 float32, batches of 1000"
BATCH = 1000
ORDERS = ("in order", "shuffled")


def cases(settings: Settings) -> list[Case]:
    """Return the cases, in order and shuffled."""
    found = []
    for order in ORDERS:
        shuffle = order == "shuffled"
        found += [
            Case(f"slicing by hand, {order}", partial(open_slices, shuffle=shuffle)),
            Case(f"needle, {order}", partial(open_ours, shuffle=shuffle)),
            Case(f"torch, {order}", partial(open_torch, shuffle=shuffle), {}, ("torch",), rounds=3),
        ]
    return found


def both(settings: Settings) -> tuple[Any, Any]:
    """Return rows of float32 and a label for each."""
    count = settings.pick(200_000, 2000)
    rows = np.random.default_rng(0).standard_normal((count, 100), dtype=np.float32)
    return rows, np.arange(count) % 10


class Slices:
    """Batches sliced by hand: views in order, or copies of rows at shuffled indices."""

    def __init__(self, rows: Any, labels: Any, shuffle: bool) -> None:
        self.rows, self.labels, self.shuffle = rows, labels, shuffle

    def __iter__(self) -> Iterator[Any]:
        count = len(self.rows)
        order = np.random.permutation(count) if self.shuffle else None
        for start in range(0, count, BATCH):
            chosen = slice(start, start + BATCH) if order is None else order[start : start + BATCH]
            yield self.rows[chosen], self.labels[chosen]


def open_slices(settings: Settings, shuffle: bool) -> Subject:
    """Open a case of slicing by hand."""
    build = partial(Slices, *both(settings), shuffle)
    return Epochs(build, tuple, settings.pick(0.3, 0.01))


def open_ours(settings: Settings, shuffle: bool) -> Subject:
    """Open a case of needle's loader in this process."""
    dataset = data.ArrayDataset(*both(settings))
    build = partial(data.DataLoader, dataset, BATCH, shuffle, seed=ours.SEED)
    return Epochs(build, ours.tensors, settings.pick(0.3, 0.01))


def open_torch(settings: Settings, shuffle: bool) -> Subject:
    """Open a case of PyTorch's TensorDataset and DataLoader in this process."""
    import torch

    dataset = torch.utils.data.TensorDataset(*map(torch.from_numpy, both(settings)))
    build = partial(torch.utils.data.DataLoader, dataset, BATCH, shuffle)
    return Epochs(build, peers.torch_arrays, settings.pick(0.3, 0.01))


def targets(result: Result) -> list[Target]:
    """Return the targets: a loader takes at most three times as long as slicing."""
    found = []
    for order in ORDERS:
        what = f"arrays without transforms, {order}: time over slicing by hand"
        names = [f"{who}, {order}" for who in ("needle", "slicing by hand", "torch")]
        own, by_hand, torch = (median_and_range(result, name, "rate") for name in names)
        ratio = result.ratio(names[1], names[0], "rate")
        words = (f"{own} rows/s", f"{by_hand}; torch {torch}")
        found.append(Target(what, ratio, 3.0, *words, at_most=True))
    return found
