"""Arrays in memory without transforms: the cost of a loader compared with slicing by hand."""

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
from .epochs import Epochs, rate_table

TITLE = "Arrays in memory without transforms, 200 000 x 100 float32, batches of 1000"
BATCH = 1000


def cases(settings: Settings) -> list[Case]:
    """Return the cases, in order and shuffled."""
    found = []
    for order in ("in order", "shuffled"):
        shuffle = order == "shuffled"
        torch_case = partial(open_torch, shuffle=shuffle)
        found += [
            Case(f"slicing by hand, {order}", partial(open_slices, shuffle=shuffle)),
            Case(f"needle, {order}", partial(open_ours, shuffle=shuffle), same_bytes=order),
            Case(
                f"needle, {order}, NumPy batches",
                partial(open_ours, shuffle=shuffle, plain=True),
                same_bytes=order,
            ),
            Case(f"torch, {order}", torch_case, {}, ("torch",), rounds=3),
        ]
    found.append(Case("slicing by hand, in order, copied", partial(open_slices, copied=True)))
    return found


def both(settings: Settings) -> tuple[Any, Any]:
    """Return rows of float32 and a label for each."""
    count = settings.pick(200_000, 2000)
    rows = np.random.default_rng(0).standard_normal((count, 100), dtype=np.float32)
    return rows, np.arange(count) % 10


class Slices:
    """Batches sliced by hand: views, copies, or rows by shuffled indices."""

    def __init__(self, rows: Any, labels: Any, shuffle: bool, copied: bool) -> None:
        self.rows, self.labels, self.shuffle, self.copied = rows, labels, shuffle, copied

    def __iter__(self) -> Iterator[Any]:
        count = len(self.rows)
        order = np.random.permutation(count) if self.shuffle else None
        for start in range(0, count, BATCH):
            chosen = slice(start, start + BATCH) if order is None else order[start : start + BATCH]
            batch = self.rows[chosen], self.labels[chosen]
            yield (batch[0].copy(), batch[1].copy()) if self.copied else batch


def open_slices(settings: Settings, shuffle: bool = False, copied: bool = False) -> Subject:
    """Open a case of slicing by hand."""
    build = partial(Slices, *both(settings), shuffle, copied)
    return Epochs(build, ours.arrays, least=settings.pick(0.3, 0.01))


def open_ours(settings: Settings, shuffle: bool, plain: bool = False) -> Subject:
    """Open a case of needle's loader in this process."""
    if plain:
        ours.numpy_batches()
    dataset = data.ArrayDataset(*both(settings))
    build = partial(data.DataLoader, dataset, BATCH, shuffle, seed=ours.SEED)
    parts = ours.arrays if plain else ours.tensors
    return Epochs(build, parts, least=settings.pick(0.3, 0.01))


def open_torch(settings: Settings, shuffle: bool) -> Subject:
    """Open a case of PyTorch's TensorDataset and DataLoader in this process."""
    import torch

    dataset = torch.utils.data.TensorDataset(*map(torch.from_numpy, both(settings)))
    build = partial(torch.utils.data.DataLoader, dataset, BATCH, shuffle)
    return Epochs(build, peers.torch_arrays, least=settings.pick(0.3, 0.01))


def targets(result: Result) -> list[Target]:
    """Return the targets: at most three times the time of slicing."""
    found = []
    for order in ("in order", "shuffled"):
        own, by_hand = result.median(f"needle, {order}", "rate"), f"slicing by hand, {order}"
        rate = result.median(by_hand, "rate")
        found.append(
            Target(
                f"arrays without transforms, {order}: time over slicing by hand",
                rate / own,
                3.0,
                f"{median_and_range(result, f'needle, {order}', 'rate')} rows/s",
                f"{median_and_range(result, by_hand, 'rate')}; torch "
                f"{median_and_range(result, f'torch, {order}', 'rate')}",
                at_most=True,
            )
        )
    return found


def tables(result: Result) -> list[str]:
    """Return a table of all numbers."""
    note = (
        "A slice in order is a view: no data is moved, so its rate is that of creating views. "
        "Batches of a loader are copies, because users may keep them; *copied* is a copied slice."
    )
    return [note, "", *rate_table(result, result.outcomes)]
