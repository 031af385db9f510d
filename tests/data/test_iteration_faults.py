"""Test that failures within an epoch lose no batch, leak no worker and block no thread."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from multiprocessing import spawn
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from complaints.programs import engines
from proc import descriptors

from needle import data
from needle.data.workers import deaths
from needle.errors import WorkerError


class Failing(data.Dataset):
    """A data set whose first row raises an error while the others take some time."""

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
    pids = loader._engine.running().process_ids()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="row 0"):
        next(iter(loader))
    pids = pids or loader._engine.running().process_ids()  # type: ignore[attr-defined]
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

    loader = data.DataLoader(list(range(4)), 1, seed=0, transforms=[data.OnBatch(refuse_ones)])
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
        assert dropped.wait(30), "release must not wait for the lock"
    thread.join()
    assert not cancelled
    holder.release(first._key)
    assert cancelled == [True]


# os.fork warns in a process with threads.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_copy_does_not_inherit_a_held_lock() -> None:
    loader = data.DataLoader(list(range(4)), 2)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with loader._engine.locked():
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if loader._engine.locked().acquire(timeout=30) else 1)
    _, status = os.waitpid(pid, 0)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0


class Waiting(data.Dataset):
    """A data set in which each row from number 6 on takes a second."""

    def __getitem__(self, index: int) -> int:
        if index >= 6:
            time.sleep(1.0)
        return index

    def __len__(self) -> int:
        return 12


@engines
def test_closing_a_loader_ends_a_wait_in_another_thread(options: dict[str, Any]) -> None:
    loader = data.DataLoader(Waiting(), 3, seed=0, **options)
    iterator, errors = iter(loader), list[BaseException]()
    assert [next(iterator).numpy().tolist() for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]

    def wait() -> None:
        try:
            next(iterator)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.3)
    loader.close()
    thread.join(20)
    assert not thread.is_alive()
    (error,) = errors
    assert isinstance(error, WorkerError) and "closed while a batch was waited for" in str(error)
    assert [batch.numpy().tolist() for batch in iterator] == [[6, 7, 8], [9, 10, 11]]
    loader.close()


@engines
@pytest.mark.parametrize("how", ["copy", "deepcopy", "pickle"])
def test_a_copy_of_a_loader_begins_with_the_next_epoch(how: str, options: dict[str, Any]) -> None:
    make = {
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
        "pickle": lambda loader: pickle.loads(pickle.dumps(loader)),
    }[how]
    with data.DataLoader(list(range(12)), 3, True, seed=4, **options) as loader:
        iterator = iter(loader)
        first = [next(iterator).numpy().tolist()]
        with make(loader) as copied:
            state = copied.state_dict()
            assert (state["epoch"], state["position"]) == (1, 0)
            theirs = [batch.numpy().tolist() for batch in copied]
        first += [batch.numpy().tolist() for batch in iterator]
        assert [batch.numpy().tolist() for batch in loader] == theirs
        assert sorted(np.ravel(first)) == sorted(np.ravel(theirs)) == list(range(12))
        assert first != theirs
        with pytest.raises(TypeError, match="a running epoch cannot be copied or pickled"):
            pickle.dumps(iterator)


class Steps(data.IterableDataset):
    """A stream of two shards with seven and five samples."""

    def __init__(self) -> None:
        super().__init__(2)

    def iter_shard(self, shard: int, epoch: int, start: int) -> Iterator[int]:
        return iter(range(10 * shard + start, 10 * shard + (7, 5)[shard]))


ORDERS: dict[str, dict[str, Any]] = {
    "seeded": {"dataset": list(range(11)), "batch_size": 2, "shuffle": True, "seed": 3},
    "batches": {"dataset": list(range(6)), "batch_sampler": [[0, 1], [2], [3, 4], [5]]},
    "stream": {"dataset": Steps(), "batch_size": 2},
    "drawn": {"dataset": list(range(11)), "batch_size": 2, "shuffle": True},
}


@pytest.mark.parametrize("order", ORDERS)
@engines
def test_an_interrupt_at_any_moment_loses_no_batch(order: str, options: dict[str, Any]) -> None:
    """Test Ctrl-C at the beginning of any Python function that the second ``next`` calls."""
    step, place, calls = (1 if not options else 9), 0, 1

    def interrupt(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == place:
            raise KeyboardInterrupt

    with data.DataLoader(**ORDERS[order], **options) as loader:
        wanted = sorted(i for batch in loader for i in batch.numpy().tolist())
        while calls >= place:
            place, calls = place + step, 0
            batches = iter(loader)
            got, told = [next(batches)], False
            sys.settrace(interrupt)
            try:
                got[1:] = [next(batches)]
            except KeyboardInterrupt:
                pass
            except WorkerError as error:
                assert "interrupted" in str(error)
            finally:
                sys.settrace(None)
            found = [i for batch in got for i in batch.numpy().tolist()]
            while not batches.finished:
                try:
                    for batch in batches:
                        found += batch.numpy().tolist()
                except (WorkerError, RuntimeError) as error:
                    told = "begin a new epoch" in str(error)
                    assert told
                    if "sampler was interrupted" in str(error):
                        break
            assert sorted(found) == wanted or (told and order == "batches"), place
    assert place > 20


@pytest.mark.parametrize("broken", ["exits", "missing", "killed"])
def test_an_iterator_survives_that_workers_could_not_start(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    if broken != "missing":
        program.write_text("#!/bin/sh\n" + ("exit 1" if broken == "exits" else "kill -9 $$"))
        program.chmod(0o755)
    monkeypatch.setattr(deaths, "_PATIENCE", 0.3)
    with data.DataLoader(list(range(6)), 2, num_workers=2) as loader:
        assert len(list(loader)) == 3
        loader.close()
        iterator, good = iter(loader), spawn.get_executable()
        before = descriptors()
        spawn.set_executable(str(program))
        try:
            for _ in range(3):
                with warnings.catch_warnings(), pytest.raises(WorkerError, match="start"):
                    warnings.simplefilter("ignore")
                    next(iterator)
                assert descriptors() <= before
        finally:
            spawn.set_executable(good)
        assert [batch.numpy().tolist() for batch in iterator] == [[0, 1], [2, 3], [4, 5]]


@engines
def test_a_loader_closed_at_any_moment_gives_each_batch_once(options: dict[str, Any]) -> None:
    threads, rows = {*threading.enumerate()}, np.arange(400)
    loader = data.DataLoader(data.ArrayDataset(rows), 2, seed=0, **options)
    seen, errors = list[int](), list[BaseException]()

    def consume() -> None:
        iterator = iter(loader)
        while True:
            try:
                seen.extend(next(iterator)[0].numpy().tolist())
            except StopIteration:
                return
            except Exception as error:
                errors.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    for number in range(12):
        time.sleep(0.003 * (number % 4))
        loader.close()
    consumer.join(60)
    loader.close()
    assert not consumer.is_alive() and set(threading.enumerate()) <= threads
    assert all(isinstance(error, WorkerError) for error in errors), errors
    assert seen == rows.tolist()
