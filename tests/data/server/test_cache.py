"""SampleCache: bytes bounded, held samples stay, what fewest epochs need goes first."""

from __future__ import annotations

from needle.data.server import SampleCache


def test_what_fewest_need_goes_first_the_oldest_of_these() -> None:
    need = {"a": 2, "b": 1, "c": 1, "d": 3}
    gone: list[str] = []
    cache = SampleCache[str, str](
        30, need=need.__getitem__, on_evict=lambda key, _: gone.append(key)
    )
    for key in "abc":
        assert cache.put(key, key.upper(), 10)
    assert cache.get("b") == "B" and cache.put("d", "D", 10)
    assert gone == ["c"]
    assert cache.hold("b") == "B" and not cache.put("e", "E", 25)
    need["b"] = 0
    cache.release("b")
    assert gone == ["c", "b"] and cache.statistics()["bytes"] == 20
