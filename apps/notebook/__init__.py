"""What a notebook is learnt with: exercises, edits that count at once, graphs that are watched.

``watch()`` sets both up, in a notebook; elsewhere it does nothing. ``python -m apps.notebook``
writes hw_notebook.ipynb.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from .chapters import Chapter, exercises
from .growth import GraphGrowthWarning, growing_graphs
from .reloading import Reloader

__all__ = ["Chapter", "GraphGrowthWarning", "Reloader", "exercises", "growing_graphs", "watch"]


def watch(*packages: str) -> Reloader | None:
    """Before each cell edited modules of ``packages`` are run again, objects staying what they are;
    after each cell variables that hold on to a growing graph are warned of.

    Returns the reloader; None outside IPython.
    """
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    if shell is None:
        return None
    reloader = Reloader(packages)

    def before(info: Any) -> None:
        for name in reloader.refresh():
            print(f"edited and read again: {name}")

    def after(result: Any) -> None:
        reloader.note()
        code = getattr(getattr(result, "info", None), "raw_cell", "") or ""
        for warning in growing_graphs(shell.user_ns, code):
            warnings.warn_explicit(warning, None, "this cell", warning.line)  # type: ignore[arg-type]

    shell.events.register("pre_run_cell", before)
    shell.events.register("post_run_cell", after)
    return reloader
