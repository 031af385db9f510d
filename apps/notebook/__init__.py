"""Tools for notebooks: tables of exercises, reloading of edited modules, warnings about graphs.

``watch()`` starts the last two in a notebook and does nothing elsewhere. ``python -m
apps.notebook`` writes hw_notebook.ipynb.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from .chapters import exercises
from .growth import growing_graphs
from .homework import check, hint, kernels_of, own_arrays, rebuild, start
from .reloading import Reloader

__all__ = [
    "check",
    "exercises",
    "growing_graphs",
    "hint",
    "kernels_of",
    "own_arrays",
    "rebuild",
    "start",
    "watch",
]


def watch(*packages: str) -> Reloader | None:
    """Reload edited modules of ``packages`` before each cell; warn about growing graphs after it.

    Existing objects stay instances of their classes. Returns the reloader; None outside IPython.
    """
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    if shell is None:
        return None
    reloader = Reloader(packages)

    def before(info: Any) -> None:
        for name in reloader.refresh():
            print(f"edited, reloaded: {name}")

    def after(result: Any) -> None:
        reloader.note()
        code = getattr(getattr(result, "info", None), "raw_cell", "") or ""
        for warning in growing_graphs(shell.user_ns, code):
            warnings.warn_explicit(warning, None, "this cell", warning.line)  # type: ignore[arg-type]

    shell.events.register("pre_run_cell", before)
    shell.events.register("post_run_cell", after)
    return reloader
