"""How far a task's epoch is: which of its samples the program has been given; as JSON values.

The server keeps nothing of that: whoever was given a sample knows it, also when the server dies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import DataError
from ...samples.random_source import check_seed
from ..wire.index_sets import marks_of_text, text_of_marks

STATE_VERSION = 1


class Epoch:
    """Epoch ``number`` of a task of ``size`` samples; ``done`` bool ``(size,)``, by place."""

    def __init__(
        self, number: int, size: int, done: npt.NDArray[np.bool_] | None = None, position: int = 0
    ) -> None:
        self.number, self.position = number, position
        self.done = np.zeros(size, bool) if done is None else done
        self.finished = False

    def mark(self, places: npt.NDArray[np.int64]) -> None:
        """One batch more has been given out: the samples at these places."""
        self.done[places] = True
        self.position += 1


def write_state(loader: Any, epoch: Epoch) -> dict[str, Any]:
    """The state of ``loader`` in ``epoch``."""
    return {
        "version": STATE_VERSION,
        "kind": "global",
        "seed": loader.seed,
        "epoch": epoch.number,
        "position": epoch.position,
        "batch_size": loader.batch_size,
        "size": len(loader.indices),
        "done": text_of_marks(epoch.done),
    }


def read_state(loader: Any, state: Any) -> tuple[int, Epoch]:
    """Seed and epoch of a state; ValueError if it is of another kind or another loader's."""
    fixed = {
        "version": STATE_VERSION,
        "kind": "global",
        "batch_size": loader.batch_size,
        "size": len(loader.indices),
    }
    for name, value in fixed.items():
        found = state.get(name) if isinstance(state, dict) else None
        if found != value:
            raise ValueError(
                f"GlobalDataLoader.load_state_dict: {name} must be {value!r}, got {found!r}; make "
                "the loader as the one whose state it was"
            )
    counts = [state.get("epoch"), state.get("position")]
    if not all(type(value) is int and 0 <= value < 2**40 for value in counts):
        raise ValueError(
            f"GlobalDataLoader.load_state_dict: epoch and position must be counts, got {counts}; "
            "give what state_dict() returned"
        )
    try:
        done = marks_of_text(state.get("done"), fixed["size"])
    except DataError as error:
        raise ValueError(str(error)) from None
    seed = check_seed("GlobalDataLoader.load_state_dict", state.get("seed"))
    return seed, Epoch(counts[0], fixed["size"], done, counts[1])
