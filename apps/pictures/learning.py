"""Pictures of training: curves, and grids of images (filters, feature maps, mistakes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .canvas import Picture, picture

Array = np.ndarray[Any, Any]


def draw_curves(curves: Mapping[str, Sequence[float]], ylabel: str, log: bool = False) -> Picture:
    """Draw values over steps, a line for each name; long ones also as a running mean."""
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
