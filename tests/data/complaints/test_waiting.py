"""Measure waiting, the overhead per batch and prefetching: complaints 11 and 12."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proc import becomes

import needle
from needle import data

from .sets import Counted, Slow, reads

ENGINES = ("threads", "processes")


def best(action: Any, times: int = 5) -> float:
    """Return the shortest time of several runs, in seconds."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        found.append(time.perf_counter() - began)
    return min(found)


@pytest.mark.soak
def test_11_arrays_in_memory_cost_at_most_three_times_plain_indexing():
    """An epoch over arrays in batches of 1000 rows takes at most three times plain indexing."""
    rows, labels = np.random.rand(60_000, 128).astype(np.float32), np.arange(60_000)

    def plain() -> None:
        order = np.random.permutation(60_000)
        for start in range(0, 60_000, 1000):
            chosen = order[start : start + 1000]
            needle.Tensor(rows[chosen]), needle.Tensor(labels[chosen])

    loader = data.DataLoader(data.ArrayDataset(rows, labels), 1000, shuffle=True)

    def loaded() -> None:
        for _ in loader:
            pass

    assert best(loaded) < 3 * best(plain)


class Last(Counted):
    """The read of sample 0 ends once samples 4 to 23 have been read."""

    def __getitem__(self, index: int) -> Any:
        assert index or becomes(lambda: set(range(4, 24)) <= set(reads(self)), 60)
        return super().__getitem__(index)


@pytest.mark.parametrize("engine", ENGINES)
def test_12_the_other_workers_go_on_while_a_sample_is_slow(engine, tmp_path: Path):
    """While one sample waits, the rest of its batch and the next batches are read."""
    dataset = Last(64, tmp_path / "reads")
    with data.DataLoader(dataset, 8, num_workers=2, engine=engine, prefetch=4) as loader:
        index = [i for batch in loader for i in batch.numpy().tolist()]
    assert index == list(range(64))  # waiting does not change the order


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_12_waiting_costs_no_processor_time(engine):
    """The program waits 1 s for a sample without busy waiting."""
    with data.DataLoader(Slow(64, 60, 1.0), 4, num_workers=2, engine=engine) as loader:
        batches = iter(loader)
        next(batches)
        began, used = time.monotonic(), time.process_time()
        assert len(list(batches)) == 15
        assert time.monotonic() - began > 0.9
        assert time.process_time() - used < 0.6


@pytest.mark.parametrize("engine", ENGINES)
def test_prefetch_is_how_far_workers_read_ahead(engine, tmp_path: Path):
    """While the program holds one batch, a larger prefetch reads more samples, but not all."""
    ahead = []
    for prefetch in (1, 6):
        dataset = Counted(1000, tmp_path / f"{engine}-{prefetch}")
        options: dict[str, Any] = {"num_workers": 2, "engine": engine, "prefetch": prefetch}
        with data.DataLoader(dataset, 4, **options) as loader:
            batches = iter(loader)
            next(batches)
            least = 4 * (2 if prefetch == 1 else prefetch)
            assert becomes(lambda d=dataset, n=least: len(set(reads(d))) >= n)
            assert becomes(partial(stands_still, dataset))
            ahead.append(len(set(reads(dataset))) // 4)
    assert 2 <= ahead[0] < 6 <= ahead[1] <= 14


def stands_still(dataset: Counted) -> bool:
    before = len(reads(dataset))
    time.sleep(0.25)
    return len(reads(dataset)) == before
