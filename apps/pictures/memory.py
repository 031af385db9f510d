"""Memory maps, which show each element's position in the buffer as colour and number.

Draws NDArrays from their shape, strides and offset; no element is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.patches import Rectangle

from .canvas import Picture, bare, picture

CELL = 0.42  # inches
MOST = 64
"""Largest number of positions and elements that a picture can show."""


def places(view: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the position of each element in an NDArray: offset + the sum of i * stride."""
    found = np.full(view.shape, view._offset, dtype=np.int64)
    for axis, (size, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        along = np.arange(size) * stride
        found += along.reshape((-1,) + (1,) * (found.ndim - axis - 1))
    return found


def draw_memory(views: Mapping[str, Any]) -> Picture:
    """Draw each view of one buffer as a coloured map below a strip that shows the buffer.

    ValueError for views of different buffers or with too many elements.
    """
    handles = {id(view._handle): view._handle for view in views.values()}
    if len(handles) != 1:
        raise ValueError(f"draw_memory: views must share one buffer, got {len(handles)} buffers")
    (handle,) = handles.values()
    maps = {name: _as_table(places(view)) for name, view in views.items()}
    if max(handle.size, *(table.size for table in maps.values())) > MOST:
        raise ValueError(f"draw_memory: at most {MOST} elements can be shown; give smaller views")
    strip = np.arange(handle.size)[None]
    tables = {f"the buffer: {handle.size} elements": strip}
    tables |= {_title(name, views[name]): table for name, table in maps.items()}
    width = max(table.shape[1] for table in tables.values()) + 1
    height = sum(table.shape[0] + 1.4 for table in tables.values())
    figure, axes = picture(CELL * max(width, 16), CELL * height + 0.2)
    top = 0.0
    for title, table in tables.items():
        axes.text(0, top + 0.8, title, fontsize=9)
        _cells(axes, table, handle.size, top + 1.1)
        top += table.shape[0] + 1.4
    axes.set_xlim(-0.2, max(width, 16))
    axes.set_ylim(top + 0.1, 0)
    bare(axes)
    return figure


def draw_broadcast(a: Any, b: Any) -> Picture:
    """Draw the operands of ``a + b`` as the kernel sees them, with stride 0 on broadcast axes."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    figure, axes = picture(CELL * 2.4 * max(6, shape[-1] + 1), CELL * (shape[0] + 3), columns=2)
    for place, (name, operand) in zip(axes[0], {"a": a, "b": b}.items(), strict=True):
        view = operand.broadcast_to(shape)
        table = _as_table(places(view))
        place.set_title(_title(name, view), fontsize=9)
        _cells(place, table, operand._handle.size, 0)
        place.set_xlim(-0.2, table.shape[1] + 0.2)
        place.set_ylim(table.shape[0] + 0.2, -0.2)
        bare(place)
    return figure


def _title(name: str, view: Any) -> str:
    offset = f", offset {view._offset}" if view._offset else ""
    return f"{name}: shape {tuple(view.shape)}, strides {tuple(view.strides)}{offset}"


def _as_table(found: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the positions as rows and columns, with the leading axes stacked vertically."""
    return found.reshape(-1, found.shape[-1]) if found.ndim else found.reshape(1, 1)


def _cells(axes: Any, table: np.ndarray[Any, Any], size: int, top: float) -> None:
    colour = colormaps["turbo"]
    for (row, column), place in np.ndenumerate(table):
        shade = colour(0.1 + 0.8 * place / max(size - 1, 1))
        axes.add_patch(
            Rectangle((column, top + row), 1, 1, facecolor=shade, alpha=0.6, edgecolor="white")
        )
        axes.text(column + 0.5, top + row + 0.55, str(place), ha="center", va="center", fontsize=8)
