"""Simulation of a shared loader: reads per delivered sample, by policy and cache.

Nothing is read and nothing is timed. docs/shared_loader.md shows the table and the picture;
tests/sharing/test_planner_scenarios.py compares with another program's figures.
``python -m apps.bench.data.sharing`` prints the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from needle.sharing import Planner, SampleCache

from . import tree_policy as tree_policy  # registers the policy

POLICIES = "independent", "tree", "coupled", "planned"


@dataclass(frozen=True)
class Job:
    """A task: its set and its start as parts of n. every: it draws in every such round."""

    parts: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    start: float = 0.0
    every: int = 1

    def indices(self, n: int) -> np.ndarray:
        """Return the indices of its set, int64 (m,)."""
        return np.concatenate([np.arange(round(a * n), round(b * n)) for a, b in self.parts])


def _window(begin: float, end: float) -> Job:
    return Job(((begin, end),))


@dataclass(frozen=True)
class Scenario:
    """Tasks that run at the same time."""

    title: str
    jobs: tuple[Job, ...]


SCENARIOS = {
    "A": Scenario("same set, 2 tasks, same start", (Job(), Job())),
    "B": Scenario("same set, second starts at 50 %", (Job(), Job(start=0.5))),
    "C": Scenario(
        "same set, 4 tasks at 0, 25, 50, 75 %", tuple(Job(start=k / 4) for k in range(4))
    ),
    "D": Scenario("two sets that overlap by half", (Job(), _window(0.5, 1.5))),
    "E": Scenario(
        "nested sets of 25, 50, 100 %", (_window(0, 0.25), _window(0, 0.5), _window(0, 1))
    ),
    "F": Scenario(
        "5-fold cross-validation, 5 tasks",
        tuple(Job(((0.0, k / 5), ((k + 1) / 5, 1.0))) for k in range(5)),
    ),
    "G": Scenario(
        "two equal, one disjoint and larger", (_window(0, 0.5), _window(0, 0.5), _window(0.5, 1.5))
    ),
    "H": Scenario("same set, speeds 1 and 2", (Job(), Job(every=2))),
    "I": Scenario(
        "three windows, each shifted by 40 %",
        (_window(0, 1), _window(0.4, 1.4), _window(0.8, 1.8)),
    ),
}


def reads_per_delivery(
    scenario: Scenario,
    policy: str,
    *,
    cache: str | None = None,
    share: float = 0.0,
    n: int = 400,
    epochs: int = 6,
    seed: int = 0,
) -> float:
    """Return reads per delivered sample over all epochs but the first two.

    The minimum for tasks on one set is 1 / tasks. cache: None, ``"lru"`` or ``"need"``. share: size
    of the cache as a share of the n samples.
    """
    planner = Planner(policy, seed=seed)
    kept = _cache(cache or "need", int(share * n), planner)
    names = [str(i) for i in range(len(scenario.jobs))]
    reads = delivered = 0
    for time in range(n * epochs):
        active = []
        for name, job in zip(names, scenario.jobs):
            if time == round(job.start * n):
                planner.join(name, job.indices(n))
            if time >= round(job.start * n) and time % job.every == 0:
                if not planner.remaining(name):
                    planner.next_epoch(name)
                active.append(name)
        for index, tasks in planner.round(active):
            hit = cache is not None and index in kept
            if hit:
                kept.hold(index)
                kept.release(index)
            else:
                kept.put(index, True, 1)
            if time >= 2 * n:
                reads, delivered = reads + (not hit), delivered + len(tasks)
    return reads / delivered


def _cache(kind: str, size: int, planner: Planner) -> SampleCache[int, bool]:
    """Return a cache by need, or "lru": no sample is needed, and the pool of those is LRU."""
    if kind == "lru":
        return SampleCache(size, need=lambda index: 0, pool_bytes=size)
    return SampleCache(size, need=planner.need)


CACHES: Sequence[tuple[str | None, float]] = (
    (None, 0.0),
    ("lru", 0.05),
    ("need", 0.05),
    ("lru", 0.2),
    ("need", 0.2),
)


def table(seeds: int = 1) -> list[str]:
    """Return a Markdown table with a row for each scenario and policy, a column for each cache."""
    lines = [
        "| scenario | policy | no cache | LRU 5 % | need 5 % | LRU 20 % | need 20 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, scenario in SCENARIOS.items():
        for policy in POLICIES:
            means = [
                np.mean(
                    [
                        reads_per_delivery(scenario, policy, cache=cache, share=share, seed=seed)
                        for seed in range(seeds)
                    ]
                )
                for cache, share in CACHES
            ]
            title = f"{key} {scenario.title}" if policy == POLICIES[0] else ""
            lines.append(f"| {title} | {policy} | " + " | ".join(f"{m:.3f}" for m in means) + " |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
