"""Test num_workers="auto": its rule, its measurements, and that batches do not depend on it."""

import random
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from needle import data
from needle.data.batching.pipeline import Pipeline
from needle.data.loader import choice
from needle.data.loader.choice import choose
from needle.errors import DataError


class Drawing(data.Dataset):
    """Sample i is i and a number drawn from its own random stream."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Any:
        return np.float32(index), data.random_source.random_source().randint(1 << 30)


class Damaged(Drawing):
    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise DataError("damaged")
        return super().__getitem__(index)


class Three:
    """A stream of three shards: shard s gives s * 1000 + 0, 1, 2 ... 24."""

    num_shards = 3

    def iter_shard(self, shard: int, epoch: int, start: int) -> Any:
        for i in range(start, 25):
            yield np.int64(shard * 1000 + i), np.int64(i)

    def __iter__(self) -> Any:
        return self.iter_shard(0, 0, 0)


@pytest.mark.parametrize(
    ("milliseconds", "busy", "together", "cores", "name"),
    [
        (0.9, 0.1, 2.0, 8, "inline"),
        (1.1, 1.0, 2.0, 1, "inline"),
        (1.1, 0.4, 2.0, 1, "waiting"),
        (50.0, 0.4, 0.9, 8, "waiting"),
        (50.0, 1.0, 1.6, 8, "threads"),
        (50.0, 3.0, 0.9, 8, "threads"),
        (50.0, 1.0, 1.4, 8, "processes"),
    ],
)
def test_the_rule(milliseconds: float, busy: float, together: float, cores: int, name: str) -> None:
    """Test the rule. milliseconds: per batch of 64. busy: how many cores one thread keeps busy."""
    probe: Any = SimpleNamespace(
        alone=lambda: None,
        together=lambda: together,
        seconds=milliseconds / 1000 / 4,
        count=16,
        cores=busy,
    )
    found = choice._judge(probe, 64, cores)
    many = {"inline": 0, "waiting": min(16, 4 * cores)}.get(name, min(8, cores))
    assert (found.engine, found.workers) == ("threads" if name == "waiting" else name, many)
    assert f"a batch takes {milliseconds} ms" in found.reason


@pytest.mark.parametrize("chosen", [("inline", 0), ("threads", 3), ("processes", 2)])
@pytest.mark.parametrize("seed", [7, None])
def test_batches_do_not_depend_on_the_choice(
    chosen: tuple[str, int], seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    choosing(monkeypatch, *chosen)
    np.random.seed(5)
    wanted = [[x.numpy() for x in b] for b in loaded(num_workers=2, engine="threads", seed=seed)]
    np.random.seed(5)
    with data.DataLoader(Drawing(), 8, True, num_workers="auto", seed=seed) as loader:
        assert (loader.engine, loader.num_workers) == chosen
        assert "(chosen since of a test)" in loader.explain()
        found = [[x.numpy() for x in batch] for batch in loader]
        assert loader.stats().workers == loader.num_workers
    for one, other in zip(found, wanted, strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)


def choosing(monkeypatch: pytest.MonkeyPatch, engine: str, workers: int) -> None:
    """Make the measurement choose this engine."""
    chosen = choice.ChosenEngine(engine, workers, "of a test")
    monkeypatch.setattr(choice, "_judge", lambda *arguments: chosen)


def loaded(**options: Any) -> list[Any]:
    with data.DataLoader(Drawing(), 8, True, **options) as loader:
        return list(loader)


def test_arrays_in_memory_need_no_workers() -> None:
    images = np.zeros((1000, 8, 8, 3), np.uint8)
    with data.DataLoader(data.ArrayDataset(images), 16, seed=1, num_workers="auto") as loader:
        assert (loader.engine, loader.num_workers) == ("inline", 0)


def test_what_cannot_be_pickled_gets_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    choosing(monkeypatch, "processes", 2)
    dataset = Drawing()
    dataset.lock = threading.Lock()  # type: ignore[attr-defined]
    with data.DataLoader(dataset, 8, num_workers="auto") as loader:
        assert loader.engine == "threads" and "cannot be pickled" in loader.explain()
        assert len(list(loader)) == 7


def test_an_error_of_a_sample_comes_with_its_batch() -> None:
    with data.DataLoader(Damaged(), 25, num_workers="auto", seed=1) as loader:
        assert loader.engine == "processes" and "DataError" in loader.explain()
        batches = iter(loader)
        with pytest.raises(DataError, match="damaged"):
            next(batches)
        np.testing.assert_array_equal(next(batches)[0].numpy(), np.arange(25, 50))


def test_the_measurement_leaves_the_random_streams_as_they_were() -> None:
    class Drawn(Drawing):
        def __getitem__(self, index: int) -> Any:
            return np.float32(np.random.rand()), random.random()

    np.random.seed(1)
    random.seed(1)
    expected = np.random.rand(), random.random()
    np.random.seed(1)
    random.seed(1)
    data.DataLoader(Drawn(), 8, num_workers="auto", seed=1).close()
    assert (np.random.rand(), random.random()) == expected


def test_a_stream_has_at_most_a_worker_per_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    choosing(monkeypatch, "threads", 16)
    stream = Three()
    assert choose(Pipeline(stream), 4, 1).workers == 3
    with data.DataLoader(stream, 5, num_workers="auto", seed=1) as loader:
        seen = np.concatenate([batch[0].numpy() for batch in loader])
    wanted = [1000 * shard + i for shard in range(3) for i in range(25)]
    np.testing.assert_array_equal(np.sort(seen), wanted)


def test_the_options_beside_it() -> None:
    few = min(8, choice.available_cores())
    for options in ({"engine": "threads"}, {"engine": "processes"}):
        with data.DataLoader(Drawing(), 8, num_workers="auto", **options) as loader:
            engine = options.get("engine", "processes")
            assert (loader.engine, loader.num_workers) == (engine, few)
            assert len(list(loader)) == 7
    with data.DataLoader([], 8, num_workers="auto", prefetch=3, timeout=30) as loader:
        assert loader.engine == "inline" and list(loader) == []
    with pytest.raises(TypeError, match="num_workers must be an int, got 'many'; .*'auto'"):
        data.DataLoader(Drawing(), 8, num_workers="many")
    with pytest.raises(ValueError, match="engine='inline' has no workers"):
        data.DataLoader(Drawing(), 8, num_workers="auto", engine="inline")
