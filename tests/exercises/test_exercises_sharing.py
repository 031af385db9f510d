"""Part 8 of the course: what worker processes share, and the shared loader."""

import gc
from collections import Counter
from random import Random

import numpy as np
import pytest
from by_hand import outcome

from apps.course.compare import expect
from needle.data.samples.pytree import Field
from needle.data.workers.shared_ring import Layout, Ring
from needle.data.workers.work_queue import ANY_WORKER, Entry, WorkQueue
from needle.sharing.planner.coupled import Coupled
from needle.sharing.planner.policy import Members
from needle.sharing.serving.sample_cache import SampleCache

# ---- what worker processes share -----------------------------------------------------------------


def entry(number: int, worker: int = ANY_WORKER) -> Entry:
    return Entry(number, worker, *([0] * (len(Entry._fields) - 2)))


@pytest.mark.exercise("claim")
def test_the_oldest_entry_is_claimed_once() -> None:
    queue = WorkQueue.create(records=4, workers=3)
    try:
        expect("claim from an empty queue", queue.claim(0), None)
        queue.put(0, entry(7))
        queue.put(1, entry(5, worker=2))
        queue.put(2, entry(6))
        given = {"numbers": "record 0: 7, record 1: 5 for worker 2 alone, record 2: 6"}
        expect(
            "worker 0 claims",
            queue.claim(0),
            (2, entry(6)),
            given=given,
            mistakes={
                "row 1 is for worker 2": (1, entry(5, worker=2)),
                "take the smallest number": (0, entry(7)),
            },
        )
        expect("worker 2 claims", queue.claim(2), (1, entry(5, worker=2)), given=given)
        again = {"a claimed row is no longer open: set its state": (2, entry(6))}
        expect(
            "worker 1 claims the remaining row",
            queue.claim(1),
            (0, entry(7)),
            given=given,
            mistakes=again,
        )
        expect("a claim when no row is open", queue.claim(1), None)
        rows = queue.owned(2)
        none = {"the worker that claims a row is its owner": rows}
        expect("the rows that worker 2 has claimed", rows, [1], mistakes=none)
    finally:
        queue.close()


FIELDS = (Field((3,), np.dtype("float32")), None, Field((), np.dtype("int64")))


@pytest.mark.exercise("ring-layout")
def test_where_the_arrays_of_a_batch_lie() -> None:
    layout = Layout(FIELDS, rows=10)
    expect(
        "offsets of 10 rows of 3 floats, None, 10 int64",
        layout.offsets,
        (0, 128, 128),
        mistakes={
            "each leaf starts at a multiple of 64 bytes": (0, 120, 120),
            "the rows of a leaf lie side by side: only leaves are aligned": (0, 640, 640),
        },
    )
    left = layout.slot_bytes % 4096
    partial = {"a slot is whole pages of 4096 bytes: round up": left}
    expect("bytes of a slot modulo 4096", left, 0, mistakes=partial)
    large = Layout(FIELDS, rows=1000)
    enough = large.slot_bytes >= 12032 + 8000
    down = {"round up, not down": False}
    given = {"slot_bytes": large.slot_bytes, "needed": 12032 + 8000}
    expect("a slot of 1000 rows is large enough", enough, True, given=given, mistakes=down)
    expect("it has no page too many", large.slot_bytes - 12032 - 8000 < 65536, True)
    expect("an empty slot has one page", Layout((None,), 5).slot_bytes >= 4096, True)


@pytest.mark.exercise("ring-lend")
def test_a_slot_comes_back_with_the_last_view() -> None:
    ring = Ring(Layout(FIELDS, rows=4), slots=2, generation=0)
    try:
        slot = ring.take()
        arrays = ring.lend(slot or 0, 3)
        expect(
            "the lent arrays",
            [None if a is None else a.shape for a in arrays],
            [(3, 3), None, (3,)],
        )
        mistakes = {
            "the slot is free while arrays of it are in use: note it in _lent": (0, 0, [0, 1]),
            "a lent slot is no longer taken": (1, 1, [1]),
        }
        got = ring.lent, ring.taken, ring.free
        expect("slots lent, taken, free", got, (1, 0, [1]), mistakes=mistakes)
        other = ring.lend(ring.take() or 0, 1)
        arrays[0][:], other[0][:] = 1.0, 2.0  # type: ignore[index]
        overwritten = {"slot k starts at k * slot_bytes of the memory": np.full(3, 2.0)}
        what = "ones in slot 0, after twos in slot 1"
        expect(what, arrays[0][0].copy(), np.ones(3), mistakes=overwritten)  # type: ignore[index]
        del other
        gc.collect()
        part = arrays[0][1:2]  # type: ignore[index]
        del arrays
        gc.collect()
        strong = {"only a weak reference lets the block go": []}
        expect("free while a view of a view of slot 0 lives", ring.free, [1], mistakes=strong)
        del part
        gc.collect()
        expect("after it the free slots", ring.free, [0, 1])
    finally:
        ring.close()


# ---- the shared loader ---------------------------------------------------------------------------


@pytest.mark.exercise("cache-evict")
def test_what_the_fewest_need_leaves_first() -> None:
    need = {"a": 2, "b": 1, "c": 3, "d": 1, "e": 2, "f": 9}
    cache = SampleCache(40, need=need.__getitem__)
    for key in "abcd":
        cache.put(key, 10)
    given = {"needs": "a 2, b 1, c 3, d 1", "put in the order": "a b c d", "limit": "4 samples"}
    there = lambda: [key for key in "abcdef" if key in cache]  # noqa: E731
    expect("e fits", cache.put("e", 10), True, given=given)
    mistakes = {
        "the oldest of the least need is at the front": ["a", "b", "c", "e"],
    }
    expect(
        "the samples in the cache", there(), ["a", "c", "d", "e"], given=given, mistakes=mistakes
    )
    need["d"] = 5  # tasks have begun an epoch
    given = {"needs now": "a 2, c 3, d 5, e 2"}
    cache.put("f", 10)
    mistakes = {"needs have changed: ask again": ["a", "c", "e", "f"]}
    expect("after f is put", there(), ["c", "d", "e", "f"], given=given, mistakes=mistakes)
    for key in "cdef":
        cache.hold(key)
    cache.release("f")
    given = {"held": "c, d, e, which the limit does not count", "not held": "f, which 9 need"}
    expect("50 bytes do not fit", cache.put("a", 50), False, given=given)
    before, now = ["c", "d", "e", "f"], there()
    mistakes = {"what cannot fit evicts nothing: compare with the limit first": ["c", "d", "e"]}
    expect("nothing was evicted for them", now, before, given=given, mistakes=mistakes)
    got = cache.put("a", 30), len(cache)
    mistakes = {"held samples do not count for the limit": got}
    expect("30 bytes fit beside f", got, (True, 5), given=given, mistakes=mistakes)
    expect("10 more do not: a leaves", (cache.put("b", 10), "a" in cache), (True, False))


def tasks(*sizes: int) -> Members:
    """Return members in which slot j still needs the indices 0 ... sizes[j] - 1."""
    members = Members()
    for slot, size in enumerate(sizes):
        members.enter(slot, np.arange(size))
    return members


@pytest.mark.exercise("shared-draw")
def test_who_joins_takes_what_it_misses() -> None:
    """Test that tasks on one set always share, and disjoint tasks never do."""
    given = {"three tasks": "all miss 0 ... 8"}
    cause = "tasks that miss the same samples share every read: none of them is refused"
    draw = Coupled(tasks(9, 9, 9), Random(0)).draw
    # an IndexError means that nothing is left to draw for the refused task
    masks = outcome(lambda: list(draw([0, 1, 2]).values()), IndexError)
    expect("the masks drawn", masks, [0b111], given=given, mistakes={cause: "IndexError"})
    apart = tasks(4)
    apart.enter(1, np.arange(4, 8))
    for seed in range(20):
        drawn = Coupled(apart, Random(seed)).draw([0, 1])
        given = {"task 0 misses": "0 ... 3", "task 1": "4 ... 7"}
        got = sorted((mask, index // 4) for index, mask in drawn.items())
        cause = "a task took an index that it does not miss: look at its bit of the mask"
        wrong = {cause: got} if got in ([(0b11, 0)], [(0b11, 1)]) else {}
        want = [(0b01, 0), (0b10, 1)]
        expect("(mask, index // 4)", got, want, given=given, mistakes=wrong)


@pytest.mark.exercise("shared-draw")
@pytest.mark.parametrize("sizes", [(4, 8), (8, 4)])
def test_each_task_still_draws_uniformly(sizes: tuple[int, int]) -> None:
    """Test many rounds with fixed seeds; the bound is five standard deviations."""
    members, rounds = tasks(*sizes), 4000
    found: list[Counter[int]] = [Counter(), Counter()]
    shared = 0
    for seed in range(rounds):
        drawn = Coupled(members, Random(seed)).draw([0, 1])
        shared += len(drawn) == 1
        for index, mask in drawn.items():
            for slot in (0, 1):
                found[slot][index] += mask >> slot & 1
    given = {"task 0 misses": f"0 ... {sizes[0] - 1}", "task 1": f"0 ... {sizes[1] - 1}"}
    for slot, size in enumerate(sizes):
        share = np.array([found[slot][index] / rounds for index in range(size)])
        bound = 5 * (1 / size / rounds) ** 0.5
        what = f"how often task {slot} gets each index"
        want = np.full(size, 1 / size)
        cause = "a task that misses more takes the pivot's index too often: share * left[j] < limit"
        mistakes = {cause: share} if share.max() > 1.5 / size else {}
        expect(what, share, want, given=given, mistakes=mistakes, rtol=0, atol=bound)
    what = "how often one read serves both: the sum of min(1/4, 1/8) over 0 ... 3"
    expect(what, shared / rounds, 0.5, given=given, rtol=0, atol=0.05)
