"""The figure that all pictures are drawn on; needs no window and none of pyplot's state."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class Picture(Figure):
    """A matplotlib figure that a notebook shows as a PNG, with or without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def picture(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Picture, Any]:
    """A picture of so many inches, and its axes: one, or an array ``(rows, columns)``."""
    figure = Picture(figsize=(width, height), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    many = rows * columns > 1
    return figure, figure.subplots(rows, columns, squeeze=not many)


def bare(axes: Any) -> None:
    """Takes frame and ticks away: the axes hold a drawing, not a plot."""
    axes.set_axis_off()
    axes.set_aspect("equal")
