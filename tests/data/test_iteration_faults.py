"""Failures in the middle of an epoch lose no batch, leak no worker and block no thread."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from needle import data


class Failing(data.Dataset):
    """The first row raises; the others take a while."""

    def __getitem__(self, index: int) -> int:
        if index == 0:
            raise ValueError("row 0")
        time.sleep(0.05)
        return index

    def __len__(self) -> int:
        return 16


class FailingOrder:
    """A batch sampler that raises once, after more batches than an engine has in flight."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([index] for index in range(6))
        raise RuntimeError("order")

    def __len__(self) -> int:
        return 6


def test_workers_end_with_a_loader_whose_dataset_raised() -> None:
    loader = data.DataLoader(Failing(), 8, num_workers=2, seed=0)
    pids = loader._running_engine().process_ids()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="row 0"):
        next(iter(loader))
    pids = pids or loader._running_engine().process_ids()  # type: ignore[attr-defined]
    del loader
    gc.collect()
    end = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
        gc.collect()
    assert pids and not any(os.path.exists(f"/proc/{pid}") for pid in pids)


@pytest.mark.parametrize("workers", [0, 2])
def test_no_batch_is_lost_when_the_order_raises(workers: int) -> None:
    loader = data.DataLoader(
        list(range(6)),
        batch_sampler=FailingOrder(),
        num_workers=workers,
        engine="threads" if workers else None,
    )
    iterator, found = iter(loader), list[Any]()
    for _ in range(9):
        try:
            found.append(next(iterator).numpy().tolist())
        except RuntimeError:
            found.append("order")
        except StopIteration:
            break
    assert [each for each in found if each != "order"] == [[i] for i in range(6)]
    assert found.count("order") == 1


def test_a_batch_whose_transform_raised_counts_once_the_next_is_requested() -> None:
    def refuse_ones(batch: Any) -> Any:
        if batch[0] == 1:
            raise ValueError("one")
        return batch

    loader = data.DataLoader(list(range(4)), 1, seed=0, batch_transforms=[refuse_ones])
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(ValueError, match="one"):
        next(iterator)
    assert loader.state_dict()["position"] == 1
    assert next(iterator).numpy().tolist() == [2]
    state = loader.state_dict()
    assert state["position"] == 3 and "ahead" not in state


def test_a_dropped_iterator_cancels_nothing_while_the_engine_is_in_use() -> None:
    loader = data.DataLoader(data.ArrayDataset(np.arange(64)), 4, num_workers=1, engine="threads")
    first = iter(loader)
    next(first)
    holder, cancelled, dropped = loader._engine, list[bool](), threading.Event()
    assert holder.engine is not None
    holder.engine.cancel = lambda: cancelled.append(True)  # type: ignore[method-assign]

    def drop() -> None:
        holder.release(first._key)
        dropped.set()

    with holder.locked():
        thread = threading.Thread(target=drop)
        thread.start()
        assert dropped.wait(5), "release must not wait for the lock"
    thread.join()
    assert not cancelled
    holder.release(first._key)
    assert cancelled == [True]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # os.fork with threads
def test_a_forked_copy_does_not_inherit_a_held_lock() -> None:
    loader = data.DataLoader(list(range(4)), 2)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with loader._engine.locked():
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(5)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if loader._engine.locked().acquire(timeout=3) else 1)
    _, status = os.waitpid(pid, 0)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
