"""Test loaders with workers: conflicting options, abandoned and concurrent iterators, closing."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from proc import becomes

from needle import data
from needle.errors import LoaderTimeout, UnknownNameError


class Slow(data.Dataset):
    """Sample i is i; ``slow`` ones wait for ``gate``, and ``reads`` are the indices read so far."""

    def __init__(self, n=20, slow=()):
        super().__init__()
        self.n, self.slow = n, set(slow)
        self.gate, self.reads = threading.Event(), []

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        self.reads.append(index)
        if index in self.slow:
            self.gate.wait(20)
        return index


def threaded(dataset, *arguments, **options):
    return data.DataLoader(
        dataset, *arguments, **{"num_workers": 2, "engine": "threads", **options}
    )


def stands_still(reads):
    """Return True if no sample is read during a quarter of a second."""
    count = len(reads)
    time.sleep(0.25)
    return len(reads) == count


def ids(batch):
    return batch.numpy().tolist()


@pytest.mark.parametrize(
    "options, error, message",
    [
        (
            {"num_workers": -1},
            ValueError,
            "must not be negative, got -1; 0 prepares batches in this process",
        ),
        ({"num_workers": 1.5}, TypeError, "num_workers must be an int, got 1.5"),
        ({"num_workers": True}, TypeError, "num_workers must be an int, got True"),
        ({"engine": "thread"}, UnknownNameError, "unknown engine 'thread'.*Did you mean 'threads'"),
        ({"engine": "inline", "num_workers": 2}, ValueError, "no workers, got num_workers=2; use"),
        ({"engine": "threads"}, ValueError, "needs workers, got num_workers=0; give"),
        ({"num_workers": 1, "multiprocessing_context": "fork"}, TypeError, "leave multi.* out"),
        ({"prefetch": 3}, ValueError, "prefetch requires workers, got prefetch=3 .*; leave it out"),
        (
            {"timeout": 3},
            ValueError,
            "timeout requires workers, got timeout=3 .*; leave it out, or give",
        ),
        ({"num_workers": 1, "engine": "threads", "prefetch": 0}, ValueError, "prefetch must be"),
        ({"augment": "wroker"}, UnknownNameError, "unknown augment 'wroker'.*mean 'worker'"),
        ({"on_error": "ignore"}, UnknownNameError, "unknown on_error 'ignore'; known: raise, skip"),
        (
            {"on_error": "skip", "sampler": data.DistributedSampler(3, 0, 2, valid_mask=True)},
            ValueError,
            "valid_mask .* use one of the two",
        ),
        ({"transforms": len}, TypeError, "transforms must be a list, got builtin"),
        ({"transforms": [data.MixUp(), len]}, ValueError, "got MixUp, builtin.*put MixUp last"),
    ],
)
def test_options_that_contradict(options, error, message):
    with pytest.raises(error, match=message):
        data.DataLoader([1, 2, 3], **options)


def test_without_a_seed_one_is_drawn_once_from_the_global_stream():
    np.random.seed(3)
    want = int(np.random.randint(0, 2**32, dtype=np.uint32))
    after = np.random.rand()
    np.random.seed(3)
    with threaded(Slow(), 4, True) as loader:
        assert loader.seed == want
        batches = [ids(batch) for batch in loader]
    assert np.random.rand() == after
    assert batches == [ids(b) for b in data.DataLoader(Slow(), 4, True, seed=want)]


def test_a_state_without_a_seed_resumes_with_workers():
    loader = data.DataLoader(Slow(6), 2)
    next(iter(loader))
    with threaded(Slow(6), 2) as resumed:
        seed = resumed.seed
        resumed.load_state_dict(loader.state_dict())
        assert [ids(batch) for batch in resumed] == [[2, 3], [4, 5]] and resumed.seed == seed
    with threaded(Slow(6), 2, seed=1) as seeded, pytest.raises(ValueError, match="seed is None"):
        seeded.load_state_dict(loader.state_dict())


def test_dropping_an_iterator_stops_its_reading():
    dataset = Slow(1000, slow=[10])
    with threaded(dataset, 1, prefetch=8) as loader:
        iterator = iter(loader)
        next(iterator)
        del iterator
        dataset.gate.set()
        assert becomes(lambda: stands_still(dataset.reads))
        assert len(dataset.reads) < 100


def test_two_iterators_of_one_loader_each_give_all_their_batches():
    with threaded(Slow(12), 2) as loader:
        pairs = [(ids(a), ids(b)) for a, b in zip(loader, loader)]
        assert pairs == [([i, i + 1], [i, i + 1]) for i in range(0, 12, 2)]
        outer = []
        for batch in loader:
            outer.append(ids(batch))
            assert len(list(loader)) == 6
        assert outer == [[i, i + 1] for i in range(0, 12, 2)]


def test_waiting_ends_after_timeout_and_can_be_taken_up_again():
    dataset = Slow(4, slow=[2])
    with threaded(dataset, 2, timeout=0.2) as loader:
        iterator = iter(loader)
        for _ in range(50):  # on a busy machine this batch may be late as well
            with suppress(LoaderTimeout):
                assert ids(next(iterator)) == [0, 1]
                break
        with pytest.raises(
            LoaderTimeout, match="batch 1 of epoch 0 .* timeout=0.2 s; raise timeout"
        ):
            next(iterator)
        dataset.gate.set()
        assert ids(next(iterator)) == [2, 3]


def test_the_mask_is_a_field_of_batches_of_any_kind():
    alone = data.DistributedSampler(2, 0, 1, valid_mask=True)
    loader = data.DataLoader([{"x": 1}, {"x": 2}], 2, sampler=alone)
    assert next(iter(loader))["valid"].numpy().tolist() == [True, True]
    loader = data.DataLoader([(1, 2), (3, 4)], batch_sampler=data.BatchSampler(alone, 2))
    assert [f.numpy().tolist() for f in next(iter(loader))] == [[1, 3], [2, 4], [True, True]]


def test_a_sampler_that_redefines_iter_decides():
    class Backwards(data.SequentialSampler):
        def __iter__(self):
            return iter(range(self.length - 1, -1, -1))

    loader = data.DataLoader(Slow(5), 2, sampler=Backwards(5))
    assert [ids(batch) for batch in loader] == [[4, 3], [2, 1], [0]]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "engine": "threads"}])
def test_threads_that_share_an_iterator_get_each_batch_once(options):
    with data.DataLoader(Slow(400), 2, **options) as loader:
        iterator, got = iter(loader), []

        def take():
            got.extend(ids(batch)[0] for batch in iterator)

        with ThreadPoolExecutor(4) as threads:
            for _ in range(4):
                threads.submit(take)
    assert sorted(got) == list(range(0, 400, 2))


ENDING = """
from needle import data
iterator = iter(data.DataLoader(list(range(100)), 4, num_workers=2, engine={engine!r}))
print(next(iterator).numpy())
"""


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_program_that_ends_within_an_epoch_ends_without_a_word(engine):
    program = [sys.executable, "-c", ENDING.format(engine=engine)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "") and ended.stdout == "[0 1 2 3]\n"


FORKING = """
import os, signal
from needle import data
loader = data.DataLoader(list(range(20)), 4, num_workers=2, engine="threads")
next(iterator := iter(loader))
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(len(list(iterator)) + len(list(loader)))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
assert len(list(iterator)) == 4
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_copy_of_the_program_starts_new_threads():
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=60)


class DrawnShards:
    """A stream whose shards draw a global random number when they are opened."""

    num_shards = 4

    def iter_shard(self, shard: int, epoch: int, start: int) -> Any:
        first = float(np.random.random())
        return iter([first + i for i in range(3)][start:])

    def __iter__(self) -> Any:
        return self.iter_shard(0, 0, 0)


def test_what_opening_a_shard_draws_follows_from_the_seed() -> None:
    found = []
    for workers in (1, 2, 2):
        with data.DataLoader(DrawnShards(), 3, num_workers=workers, seed=0) as loader:
            found.append(sorted(float(batch.numpy()[0]) for batch in loader))
    assert found[0] == found[1] == found[2] and len(set(found[0])) == 4
