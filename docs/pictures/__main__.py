"""Draws docs/pictures/losses.svg, the loss curve of README.md: ``python -m docs.pictures``.

It reads the program from README.md and runs it unchanged, so the curve is that program's.
overview.svg is drawn by hand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
README = HERE.parents[1] / "README.md"
SMOOTHED = 20
"""Batches in the moving average."""


def losses() -> list[float]:
    """Run the first program of README.md, without its last two lines, and return its losses."""
    program = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert program is not None
    names: dict[str, Any] = {}
    exec(program[1].split("plt.plot")[0], names)
    found: list[float] = names["losses"]
    return found


def draw(values: list[float], path: Path) -> None:
    """Write the curve of ``values`` and their moving average as an SVG without a date."""
    mpl.rcParams.update({"svg.hashsalt": "needle", "svg.fonttype": "none", "font.size": 9})
    figure, axes = plt.subplots(figsize=(6, 2.4), layout="constrained")
    means = [sum(part) / len(part) for part in _windows(values)]
    axes.plot(values, color="#9dbbe0", linewidth=0.8, label="a batch")
    axes.plot(means, color="#1f4e8c", linewidth=1.6, label=f"mean of {SMOOTHED} batches")
    axes.set(xlabel="batch", ylabel="loss", ylim=(0, None), xlim=(0, len(values)))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _windows(values: list[float]) -> list[list[float]]:
    """Return, for each value, a window of the last values up to and including it."""
    return [values[max(0, i + 1 - SMOOTHED) : i + 1] for i in range(len(values))]


if __name__ == "__main__":
    draw(losses(), HERE / "losses.svg")
