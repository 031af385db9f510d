"""Test SampleCache: memory is bounded, held samples stay, and the least needed are evicted first.

The tests compare it with a naive model of the same rules.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from needle.sharing import SampleCache


class Model:
    """The rules of SampleCache in their simplest form: a list, sorted again for each eviction."""

    def __init__(self, limit: int, pool: bool) -> None:
        self.limit, self.pool, self.clock = limit, pool, 0
        self.need = dict.fromkeys(range(8), 1)
        # key: [size, holders, need when it was last checked, time of that check]
        self.seen: dict[int, list[int]] = {}

    def touch(self, key: int) -> None:
        self.clock += 1
        self.seen[key][2:] = [self.need[key], self.clock]
        self.trim()

    def trim(self) -> None:
        while True:
            pool = [key for key in self.order() if self.seen[key][2] == 0]
            if self.pool or not pool:
                return
            del self.seen[pool[0]]

    def order(self) -> list[int]:
        free = [key for key, row in self.seen.items() if not row[1]]
        return sorted(free, key=lambda key: self.seen[key][2:])

    def put(self, key: int, size: int, holders: int) -> bool:
        if key in self.seen or (not holders and size > self.limit):
            return False
        if not holders:
            self.make_room(size)
        self.seen[key] = [size, holders, 0, 0]
        if not holders:
            self.touch(key)
        return True

    def make_room(self, size: int) -> None:
        while self.free() + size > self.limit:
            del self.seen[self.order()[0]]

    def free(self) -> int:
        return sum(row[0] for row in self.seen.values() if not row[1])

    def change(self, key: int, need: int) -> None:
        self.need[key] = need
        if key in self.seen and not self.seen[key][1] and self.seen[key][2] != need:
            self.touch(key)


KEYS = st.integers(0, 7)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(0, 12), st.integers(0, 1)),
    st.tuples(st.sampled_from(["hold", "release"]), KEYS),
    st.tuples(st.just("need"), KEYS, st.integers(0, 3)),
)


@given(st.integers(0, 30), st.booleans(), st.lists(STEPS, max_size=60))
def test_as_the_naive_model(limit: int, pool: bool, steps: list[tuple[str, int]]) -> None:
    model = Model(limit, pool)
    gone: list[int] = []
    cache = SampleCache[int](
        limit,
        need=lambda key: model.need[key],
        pool=pool,
        on_evict=gone.append,
    )
    kept = 0
    for step, key, *rest in steps:
        held = model.seen[key][1] if key in model.seen else 0
        if step == "put":
            fits = model.put(key, *rest)
            assert cache.put(key, rest[0], holders=rest[1]) == fits
            kept += fits
        elif step == "need":
            model.change(key, rest[0])
            cache.refresh()
        elif step == "hold" and key in model.seen:
            model.seen[key][1] += 1
            cache.hold(key)
        elif step == "release" and held:
            model.seen[key][1] -= 1
            cache.release(key)
            if held == 1:
                model.touch(key)
                model.make_room(0)
        assert {key for key in range(8) if key in cache} == set(model.seen)
        assert cache.bytes == sum(row[0] for row in model.seen.values())
        assert model.free() <= limit
        assert cache.held_bytes == sum(row[0] for row in model.seen.values() if row[1])
        assert kept == len(cache) + len(gone)
