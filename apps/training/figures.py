"""Figures that need no window, and the curves of a run as SVG for its report.

Called by report.py, range_test.py and apps/plot.py.
"""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np

INK = "#1b1f24"
"""Colour of text and axes; in a page it is the colour of the text around the figure."""
BLUE, ORANGE = "#2f7ed8", "#d9660a"
"""Colours of curves: a contrast of 3 or more on white and on nearly black."""


def figure_of(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """Return a figure that needs no window, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns)


def curves(history: list[dict[str, float]]) -> dict[str, Any]:
    """Return the figures of a run's epochs by title."""
    return {
        "Loss": split_figure(history, "loss"),
        "Accuracy": split_figure(history, "accuracy"),
        "Learning rate": line_figure(history, "lr", "learning rate"),
        "Seconds per epoch": time_figure(history),
    }


def split_figure(history: list[dict[str, float]], name: str) -> Any:
    """Return a figure of the training and test loss, or accuracy, over the epochs."""
    figure, axes = _panel(history, name)
    for split, colour in (("train", ORANGE), ("test", BLUE)):
        values = [row[f"{split}_{name}"] for row in history]
        axes.plot(_epochs(history), values, label=split, marker=".", color=colour)
    axes.legend(frameon=False, labelcolor=INK)
    if name == "loss":
        axes.set_yscale("log")
    return figure


def line_figure(history: list[dict[str, float]], name: str, label: str) -> Any:
    """Return one column of the history over the epochs."""
    figure, axes = _panel(history, label)
    axes.plot(_epochs(history), [row[name] for row in history], marker=".", color=BLUE)
    axes.set_ylim(bottom=0)
    return figure


def time_figure(history: list[dict[str, float]]) -> Any:
    """Return a figure of each training epoch's seconds spent waiting for data and computing."""
    figure, axes = _panel(history, "seconds")
    loading = np.array([row["loading_seconds"] for row in history])
    whole = np.array([row["train_seconds"] for row in history])
    axes.bar(_epochs(history), whole - loading, bottom=loading, label="computing", color=BLUE)
    axes.bar(_epochs(history), loading, label="waiting for data", color=ORANGE)
    axes.legend(frameon=False, labelcolor=INK)
    return figure


def _epochs(history: list[dict[str, float]]) -> list[float]:
    return [row["epoch"] for row in history]


def _panel(history: list[dict[str, float]], label: str) -> tuple[Any, Any]:
    """Return a figure with the epochs on its lower axis."""
    figure, axes = figure_of(width=5, height=3)
    axes.set_xlabel("epoch", color=INK)
    axes.set_ylabel(label, color=INK)
    axes.tick_params(which="both", colors=INK)
    axes.xaxis.get_major_locator().set_params(integer=True)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(INK)
    axes.grid(alpha=0.3)
    return figure, axes


def svg_of(figure: Any, title: str) -> str:
    """Return a figure as an SVG element without background that takes the page's colours.

    title: the text for screen readers; figures of a page need different ones.
    """
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    element = text.getvalue().partition("<svg ")[2]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'^width="\S+" height="\S+" ', "", element)
    name = re.sub(r"\W", "-", title.lower())
    element = re.sub(r'( id="|url\(#|href="#)', rf"\1{name}-", element)  # unique within the page
    return f'<svg role="img" aria-label="{title}" {element.replace(INK, "currentColor")}'
