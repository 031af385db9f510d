"""Draw docs/shared_loader.svg: the index of each task in each round, and the reads of policies.

``python -m apps.bench.data.sharing_picture``; sharing.py simulates it, so it is the same
everywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from needle.sharing import Planner

from .sharing import POLICIES, SCENARIOS, reads_per_delivery

PAGE = Path(__file__).resolve().parents[3] / "docs" / "shared_loader.svg"
SAMPLES, TASKS, ROUNDS = 24, 3, 48
COLOURS = {"independent": "#b0b0b0", "tree": "#e8a33d", "coupled": "#3d7fc4", "planned": "#2f9e6e"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the picture to the given path, or into docs/."""
    given = sys.argv[1:] if arguments is None else arguments
    path = Path(given[0]) if given else PAGE
    matplotlib.rcParams["svg.hashsalt"] = "needle"  # makes the file reproducible
    figure = Figure(figsize=(11, 7.4), layout="constrained")
    rows = figure.add_gridspec(4, 1, height_ratios=(1, 1, 1, 1.7))
    for row, policy in zip(rows, ("independent", "coupled", "planned")):
        draw_rounds(figure.add_subplot(row), policy)
    draw_reads(figure.add_subplot(rows[3]))
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    return 0


def draw_rounds(axes: Any, policy: str) -> None:
    """Draw a cell for each task and round, coloured by index, and the reads of each round."""
    cells, reads = rounds(policy)
    axes.imshow(cells, cmap="hsv", vmin=0, vmax=SAMPLES, aspect="auto", interpolation="nearest")
    for time, count in enumerate(reads):
        for line in range(count):
            axes.plot([time - 0.4, time + 0.4], [TASKS - 0.2 + 0.22 * line] * 2, "k", lw=1.6)
    for task in range(TASKS):
        for start in range(first_start(task), ROUNDS, SAMPLES):
            axes.plot([start - 0.5] * 2, [task - 0.5, task + 0.5], "k", lw=2.5)
    axes.set_ylim(TASKS + 0.45, -0.5)
    axes.set_yticks([*range(TASKS), TASKS], [*(f"task {i + 1}" for i in range(TASKS)), "reads"])
    axes.set_xticks([])
    axes.set_title(f"{policy}: {sum(reads)} reads for {TASKS * ROUNDS} samples", loc="left")


def first_start(task: int) -> int:
    """Return the first shown round in which this task starts an epoch."""
    return task * SAMPLES // TASKS


def rounds(policy: str) -> tuple[np.ndarray, list[int]]:
    """Return the indices by task and round, int (tasks, rounds), and the reads of each round."""
    planner = Planner(policy, seed=2)
    names = [str(task) for task in range(TASKS)]
    cells, reads = np.zeros((TASKS, ROUNDS), int), []
    for time in range(-2 * SAMPLES, ROUNDS):
        for task, name in enumerate(names):
            if time == first_start(task) - 2 * SAMPLES:
                planner.join(name, range(SAMPLES))
            elif time >= first_start(task) - 2 * SAMPLES and not planner.remaining(name):
                planner.next_epoch(name)
        draws = planner.round(planner.tasks)
        if time >= 0:
            reads.append(len(draws))
            for index, tasks in draws:
                cells[[int(name) for name in tasks], time] = index
    return cells, reads


def draw_reads(axes: Any) -> None:
    """Draw reads per delivered sample by scenario, without a cache and with one of a fifth."""
    for place, policy in enumerate(POLICIES):
        left = np.arange(len(SCENARIOS)) + 0.2 * (place - 1.5)
        bare = [reads_per_delivery(s, policy) for s in SCENARIOS.values()]
        kept = [reads_per_delivery(s, policy, cache="need", share=0.2) for s in SCENARIOS.values()]
        axes.bar(left, bare, 0.18, color=COLOURS[policy], alpha=0.45)
        axes.bar(left, kept, 0.18, color=COLOURS[policy], label=policy)
    titles = [f"{key}: {scenario.title}" for key, scenario in SCENARIOS.items()]
    axes.set_xticks(range(len(titles)), [broken(title) for title in titles], fontsize=7)
    axes.set_ylabel("reads per delivered sample")
    axes.legend(ncols=4, fontsize=8, title="pale: no cache; full: a cache of a fifth of the set")
    axes.set_ylim(0, 1.32)


def broken(title: str, width: int = 17) -> str:
    """Return the title, wrapped to about this width."""
    lines = [""]
    for word in title.split():
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += word + " "
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
