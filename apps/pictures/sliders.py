"""A picture with sliders if ipywidgets is available, else the picture for one value."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any


def slider(draw: Callable[..., Any], **ranges: tuple[int, int]) -> Any:
    """Return ``draw(name=value)`` with a slider from low to high for each name.

    Without ipywidgets or outside a notebook return the picture at the middle of each range.
    """
    if _in_notebook() and importlib.util.find_spec("ipywidgets") is not None:
        from ipywidgets import IntSlider, interactive

        middle = {name: (low + high) // 2 for name, (low, high) in ranges.items()}
        widgets = {
            name: IntSlider(middle[name], low, high, continuous_update=False)
            for name, (low, high) in ranges.items()
        }
        return interactive(draw, **widgets)
    return draw(**{name: (low + high) // 2 for name, (low, high) in ranges.items()})


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None
