"""The range test of learning rates: --find-lr. Called by train.py.

The learning rate grows exponentially from batch to batch until the loss diverges (L. N. Smith 2017,
"Cyclical learning rates for training neural networks", section 3.3, arXiv:1506.01186).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .bar import bar_of
from .figures import figure_of
from .folder import RATE_PICTURE, RATE_TABLE
from .run import Run

LOWEST, HIGHEST, STEPS = 1e-6, 10.0, 100
SMOOTHING = 0.8
"""Weight of the losses before in the moving average."""
DIVERGED = 4.0
"""The test ends if the smoothed loss exceeds its minimum by this factor."""
SHARE = 0.1
"""Part of the rate with the lowest smoothed loss that is suggested."""


@dataclass(frozen=True)
class RangeTest:
    """The learning rate of each step, the loss of its batch before the step, and the smoothed loss.

    smoothed: the exponential moving average, divided by the sum of its weights.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]

    @property
    def lowest(self) -> float:
        """The rate of the step with the lowest smoothed loss."""
        return self.rates[int(np.argmin(self.smoothed))]

    @property
    def suggestion(self) -> float | None:
        """A tenth of ``lowest``, rounded to two digits; None if the loss never fell."""
        if not self.smoothed or np.argmin(self.smoothed) == 0:
            return None
        return float(f"{SHARE * self.lowest:.2g}")


def range_test(run: Run) -> RangeTest:
    """Train the model with growing learning rates and return the losses.

    The run cannot be used afterwards: its weights, optimiser and loader have changed and must not
    be saved.
    """
    found = RangeTest([], [], [])
    average, batches = 0.0, _endless(run.loader)
    run.model.train()
    for step in (bar := bar_of(range(STEPS), "range test", " steps")):
        rate = LOWEST * (HIGHEST / LOWEST) ** (step / (STEPS - 1))
        for group in run.optimizer.param_groups:
            group["lr"] = rate
        with np.errstate(all="ignore"):
            loss, _ = run.gradients(*next(batches))
            if not math.isfinite(loss):
                break
            run.optimizer.step()
        average = SMOOTHING * average + (1 - SMOOTHING) * loss
        found.rates.append(rate)
        found.losses.append(loss)
        found.smoothed.append(average / (1 - SMOOTHING ** (step + 1)))
        bar.set_postfix(lr=rate, loss=found.smoothed[-1], refresh=False)
        if found.smoothed[-1] > DIVERGED * min(found.smoothed):
            break
    return found


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def write_range_test(folder: Path, found: RangeTest) -> None:
    """Write the table and the picture."""
    with open(folder / RATE_TABLE, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("lr", "loss", "smoothed"))
        table.writerows(zip(found.rates, found.losses, found.smoothed))
    figure, axes = figure_of(width=7, height=4)
    axes.plot(found.rates, found.losses, alpha=0.4, label="loss of the batch")
    axes.plot(found.rates, found.smoothed, label="smoothed")
    if found.suggestion is not None:
        axes.axvline(found.lowest, linestyle=":", label=f"lowest: {found.lowest:.2g}")
        label = f"suggested: {found.suggestion:g}"
        axes.axvline(found.suggestion, linestyle="--", color="black", label=label)
    axes.set_xscale("log")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    axes.set_ylim(0, 1.2 * max(found.smoothed[: 1 + int(np.argmin(found.smoothed))]))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(folder / RATE_PICTURE)


def remark(found: RangeTest) -> str:
    """Return the suggestion and its rule as one line."""
    if found.suggestion is None:
        return "no suggestion: no learning rate lowered the loss"
    return (
        f"suggestion: --lr {found.suggestion:g}, a tenth of {found.lowest:.2g}, the rate with the "
        "lowest smoothed loss (it is the highest rate of the schedule)"
    )
