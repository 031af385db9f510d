"""Test that a fault of one task raises an error in that task only; all others continue."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from proc import Leftovers
from server_checks import as_data_loader, assert_same, by_index, loader, served
from server_peers import Peer
from server_sets import Ended, Faulty, Images, Unprintable, Unspeakable

from needle import data
from needle.errors import DataError
from needle.sharing import ServerOptions
from needle.sharing.wire.protocol import FrameKind

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

FAULTS = [Unprintable, Unspeakable, SystemExit, KeyboardInterrupt, GeneratorExit, Ended]


def assert_whole(task: Any, dataset: Any, indices: Any) -> None:
    """Assert that the task's next epoch has each of these samples once, as DataLoader gives it."""
    good = Images(len(dataset))
    assert_same(by_index(task), as_data_loader(good, 1, task.epoch), indices)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_a_sample_raises_is_an_error_of_its_task(fault: Any, workers: int) -> None:
    dataset = Faulty(40, fault)
    with (
        served(dataset, ServerOptions(workers=workers)) as path,
        loader(path, task="bad", indices=range(20)) as bad,
        loader(path, task="good", indices=range(20, 40)) as good,
    ):
        epoch, errors, found = iter(bad), 0, 0
        while not epoch.finished:
            try:
                found += len(next(epoch)[1].numpy())
            except StopIteration:
                break
            except Exception:
                errors += 1
        assert errors == 1 and found >= 20 - 8
        for _ in range(2):
            assert_whole(good, dataset, range(20, 40))
        with loader(path, task="late", indices=range(10, 30)) as late:
            assert_whole(late, dataset, range(10, 30))


@pytest.mark.parametrize("fault", [SystemExit, KeyboardInterrupt, Ended])
@pytest.mark.parametrize("where", ["collate", "transforms"])
def test_what_a_loaders_own_code_raises_stays_in_its_program(where: str, fault: Any) -> None:
    def raises(_: Any) -> Any:
        raise fault("mine")

    given: Any = raises if where == "collate" else [raises]
    with served(Images(40)) as path, loader(path, task="good") as good:
        with loader(path, task="bad", **{where: given}) as bad:
            for _ in range(2):
                with pytest.raises(fault, match="mine"):
                    next(iter(bad))
        assert_whole(good, Images(40), range(40))


def test_the_task_beyond_the_limit_is_refused_and_all_others_go_on() -> None:
    with served(Images(40)) as path, loader(path, task="mine") as mine:
        epoch = iter(mine)
        next(epoch)
        peers = [Peer(path) for _ in range(63)]
        for number, peer in enumerate(peers):
            peer.register(f"peer {number}", 40)
        for _ in range(3):
            with pytest.raises(DataError, match="at most 64 tasks"):
                loader(path, task="one too many")
        assert len(by_index(epoch)) == 32
        assert_whole(mine, Images(40), range(40))
        assert all(peer.hear(FrameKind.BATCH) is not None for peer in peers)
        peers.pop().close()
        with loader(path, task="now there is a place") as other:
            assert_whole(other, Images(40), range(40))
        for peer in peers:
            peer.close()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_sample_that_hangs_delays_only_the_tasks_that_wait_for_it(workers: int) -> None:
    dataset, before = Faulty(60, "hangs"), Leftovers()
    with (
        served(dataset, ServerOptions(workers=workers)) as path,
        loader(path, task="stuck", indices=range(30), timeout=15) as stuck,
        loader(path, task="free", indices=range(10, 60)) as free,
    ):
        waiting = iter(stuck)
        start = time.monotonic()
        for _ in range(2):
            assert_whole(free, dataset, range(10, 60))
        assert time.monotonic() - start < 60
        while True:  # batches before the bad sample still arrive
            try:
                next(waiting)
            except TimeoutError as error:
                assert "sample 5 has been read for" in str(error.__cause__)
                break
        slow = {each["sample"]: each for each in free.server_status()["feeds"][0]["slow"]}
        assert slow[5]["tasks"] == ["stuck"] and slow[5]["seconds"] > 3
        assert_whole(free, dataset, range(10, 60))
    if workers:
        before.assert_none()


@pytest.mark.parametrize(
    "dataset",
    [
        data.ImageArrays(np.zeros((40, 8, 8, 3), np.uint8), np.arange(40), layout="HWC"),
        Images(40),
    ],
)
def test_transforms_that_need_more_memory_than_there_is_are_refused(dataset: Any) -> None:
    with served(dataset) as path, loader(path, task="mine") as mine:
        with pytest.raises(DataError, match="after the shared transforms.*lower batch_size"):
            loader(path, task="huge", transforms=[data.Pad(30000)])
        with loader(path, task="small", transforms=[data.Pad(3)]) as small:
            assert len(by_index(small)) == 40
        assert len(by_index(mine)) == 40


@pytest.mark.soak
def test_slow_samples_do_not_run_in_the_loop_of_the_server() -> None:
    slow = Images(40, 4.0)
    with served(slow) as path, loader(path, fallback=slow) as task:
        threading.Thread(target=next, args=(iter(task),), daemon=True).start()
        time.sleep(1.0)
        start = time.monotonic()
        with loader(path, task="other") as other:
            assert other.server_status()["length"] == 40
        assert time.monotonic() - start < 3


def test_a_collate_longer_than_the_lease_costs_no_sample() -> None:
    def collate(samples: list[Any]) -> Any:
        time.sleep(1.0)
        return data.default_collate(samples)

    options = ServerOptions(workers=0, beat=0.1)
    with served(Images(32), options) as path, loader(path, collate=collate) as task:
        assert len(by_index(task)) == 32
