"""Draw pictures of training: curves, and grids of images (filters, feature maps, mistakes)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .canvas import Picture, picture

Array = np.ndarray[Any, Any]


def draw_curves(curves: Mapping[str, Sequence[float]], ylabel: str, log: bool = False) -> Picture:
    """Draw values over steps, a line for each name; a long series also gets its running mean."""
    figure, axes = picture(8, 3.2)
    for name, values in curves.items():
        width = max(1, len(values) // 40)
        (line,) = axes.plot(
            values, alpha=0.3 if width > 1 else 1, label=None if width > 1 else name
        )
        if width > 1:
            smooth = np.convolve(values, np.ones(width) / width, mode="valid")
            axes.plot(
                np.arange(len(smooth)) + width // 2, smooth, color=line.get_color(), label=name
            )
    axes.set(xlabel="step", ylabel=ylabel, yscale="log" if log else "linear")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def draw_boundary(
    answer: Callable[[float, float], float],
    points: Sequence[tuple[float, float]],
    targets: Sequence[float],
    steps: int = 40,
) -> Picture:
    """Draw points of two classes on a plane coloured by the sign of ``answer(x, y)``."""
    places = np.array(points)
    low, high = places.min(axis=0) - 0.3, places.max(axis=0) + 0.3
    xs, ys = (np.linspace(low[axis], high[axis], steps) for axis in (0, 1))
    values = np.array([[answer(float(x), float(y)) for x in xs] for y in ys])
    most = max(float(np.abs(values).max()), 1e-12)
    figure, axes = picture(6, 4)
    axes.contourf(xs, ys, values, levels=np.linspace(-most, most, 21), cmap="RdBu", alpha=0.6)
    axes.contour(xs, ys, values, levels=[0.0], colors="black", linewidths=1)
    axes.scatter(places[:, 0], places[:, 1], c=targets, cmap="RdBu", edgecolors="black", s=25)
    axes.set(xlabel="x", ylabel="y")
    return figure


def draw_images(images: Array, titles: Sequence[str] = (), columns: int = 8) -> Picture:
    """Draw grey images (N, H, W) in a grid, each with its own contrast."""
    count = max(len(images), 1)
    columns = min(columns, count)
    rows = -(-count // columns)
    figure, axes = picture(1.2 * columns, 1.35 * rows, rows, columns)
    for place, axis in enumerate(np.asarray(axes, dtype=object).reshape(-1)):
        axis.set_axis_off()
        if place < len(images):
            axis.imshow(images[place], cmap="gray_r")
            axis.set_title(titles[place] if place < len(titles) else "", fontsize=8)
    return figure
