"""Stop an epoch and resume it elsewhere: complaint 16."""

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needle import data

from .programs import ENGINES, engines
from .sets import Counted, Shards, reads
from .test_same_batches import augmented, plain


def stream(**options: Any) -> data.DataLoader:
    return data.DataLoader(Shards((9, 2, 14)), 4, seed=6, **options)


def stopped(loader: data.DataLoader, batches: int) -> tuple[list[Any], dict[str, Any]]:
    """Return the next batches before a break, and the loader's state after a JSON round trip."""
    under_way = iter(loader)
    found = [plain(next(under_way)) for _ in range(batches)]
    state = json.dumps(loader.state_dict())
    assert len(state) < 200
    return found, json.loads(state)


def rest(loader: data.DataLoader, epochs: int = 1) -> list[Any]:
    """Return the rest of the epoch, then whole epochs up to ``epochs``."""
    return [plain(batch) for _ in range(epochs) for batch in loader]


@pytest.mark.parametrize("make", [augmented, stream], ids=lambda make: make.__name__)
def test_16_at_every_step_the_rest_is_the_same_elsewhere(make):
    """Whichever engines stop and resume the epoch, the remaining batches have the same bytes."""
    alone = make()
    whole, length = rest(alone, 2), len(rest(make()))
    with ExitStack() as stack:
        loaders = [stack.enter_context(make(**options)) for options in ENGINES]
        for step in range(length + 1):
            start, other = loaders[step % 3], loaders[(step + 1 + step // 3) % 3]
            start.load_state_dict(alone.state_dict() | {"epoch": 0, "position": 0})
            before, state = stopped(start, step)
            assert before == whole[:step]
            other.load_state_dict(state)
            assert rest(other, 2) == whole[step:], (step, start.engine, other.engine)


@engines
def test_16_no_skipped_sample_is_read(options, tmp_path: Path):
    """Samples of batches that were already delivered are not read again."""
    first = data.DataLoader(Counted(60, tmp_path / "first"), 4, True, seed=2)
    before, state = stopped(first, 11)
    assert len(reads(first.dataset)) == 44 and len(before) == 11
    second = data.DataLoader(Counted(60, tmp_path / "second"), 4, True, seed=2, **options)
    second.load_state_dict(state)
    with second:
        assert len(list(second)) == 4
    assert sorted(reads(first.dataset) + reads(second.dataset)) == list(range(60))


@pytest.mark.parametrize("limit", [60.0, pytest.param(0.05, marks=pytest.mark.soak)])
@engines
def test_16_going_on_at_99_percent_of_a_million_gives_the_next_batch(options, limit):
    """The batch after resuming is that of the uninterrupted order; the time is measured in soak."""
    loader = data.DataLoader(range(10**6), 100, shuffle=True, seed=1, **options)
    with loader:
        next(iter(loader))
        times = []
        for epoch in range(5):
            state = {**loader.state_dict(), "epoch": epoch, "position": 9_900}
            began = time.perf_counter()
            loader.load_state_dict(state)
            batch = next(iter(loader))
            times.append(time.perf_counter() - began)
            wanted = loader.sampler.positions(990_000, 990_100)
            np.testing.assert_array_equal(batch.numpy(), wanted)
    assert min(times) < limit
