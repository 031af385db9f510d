"""CPU time of a round of the planner in microseconds, by number of tasks and size of sets.

``python -m apps.bench.data.planner_cost`` prints the table of docs/shared_loader.md. Each figure is
the minimum of many short runs, because other programs can only increase a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from needle.sharing import Planner

POLICIES = "independent", "coupled", "planned"
TASKS = 1, 2, 4, 6, 8, 12
WARM, RUNS, ROUNDS = 200, 12, 100


def same(planner: Planner, tasks: int, n: int) -> None:
    """Join tasks that start together on one set."""
    for task in range(tasks):
        planner.join(str(task), range(n))


def staggered(planner: Planner, tasks: int, n: int) -> None:
    """Join tasks on one set with starts spread over an epoch; they miss different indices."""
    random = np.random.RandomState(0)
    for task in range(tasks):
        left = random.permutation(n)[: n - task * n // tasks]
        planner.join(str(task), range(n), remaining=left)


def folds(planner: Planner, tasks: int, n: int) -> None:
    """Join tasks of a cross-validation; each leaves out another part."""
    for task in range(tasks):
        indices = np.arange(n)
        planner.join(str(task), indices[indices % (tasks + 1) != task])


def cost(policy: str, make: Callable[[Planner, int, int], None], tasks: int, n: int) -> float:
    """Return microseconds per round."""
    planner = Planner(policy, seed=1)
    make(planner, tasks, n)
    planner.rounds(planner.tasks, WARM)
    least = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        planner.rounds(planner.tasks, ROUNDS)
        least = min(least, time.process_time() - start)
    return least / ROUNDS * 1e6


def main() -> None:
    """Print the table as Markdown."""
    print("| policy | indices | tasks | " + " | ".join(map(str, TASKS)) + " |")
    print("|" + "---|" * (3 + len(TASKS)))
    for policy in POLICIES:
        for n in (10_000, 1_000_000):
            for make in (same, staggered, folds):
                figures = [f"{cost(policy, make, tasks, n):.0f}" for tasks in TASKS]
                row = policy, f"{n:,}", make.__name__, *figures
                print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
