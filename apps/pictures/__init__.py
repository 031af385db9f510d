"""Explanatory pictures, drawn from live objects: graphs, memory, workers, rooflines.

Each function returns a figure that shows itself as the last line of a notebook cell. Called by
hw_notebook.ipynb. Curves and tables of training runs are in apps/training/figures.py.
"""

from .canvas import Picture
from .computation import draw_computation
from .learning import draw_boundary, draw_curves, draw_images
from .memory import draw_broadcast, draw_memory
from .roofline import Kernel, draw_roofline, measured_kernels
from .sliders import slider
from .sliding import draw_sliding
from .timeline import Slow, Span, draw_timeline, recorded

__all__ = [
    "Kernel",
    "Picture",
    "Slow",
    "Span",
    "draw_boundary",
    "draw_broadcast",
    "draw_computation",
    "draw_curves",
    "draw_images",
    "draw_memory",
    "draw_roofline",
    "draw_sliding",
    "draw_timeline",
    "measured_kernels",
    "recorded",
    "slider",
]
