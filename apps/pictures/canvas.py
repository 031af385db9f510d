"""The figure class of all pictures, which needs neither a window nor pyplot's state."""

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
    """Return a picture of a size in inches, and its axes: one, or an array ``(rows, columns)``."""
    figure = Picture(figsize=(width, height), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    many = rows * columns > 1
    return figure, figure.subplots(rows, columns, squeeze=not many)


def bare(axes: Any) -> None:
    """Remove frame and ticks from axes that hold a drawing instead of a plot."""
    axes.set_axis_off()
    axes.set_aspect("equal")
