"""How far an epoch is, and a loader's state as a few JSON values.

Counted are batches handed to the user, not batches prepared. What an epoch's batches are is
epoch_order.py's; when they are handed out is iteration.py's.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ..samples.random_source import check_seed

STATE_VERSION = 1


class Progress:
    """Which places of an epoch are done: all below ``low``, and ``runs`` [start, stop) beyond.

    Places that have no batch (a stream's ended shard) are done once they have been passed.
    """

    def __init__(self, epoch: int, low: int = 0, runs: list[list[int]] | None = None) -> None:
        self.epoch, self.low = epoch, low
        self.runs = [] if runs is None else [list(run) for run in runs]
        self.finished = False

    @property
    def position(self) -> int:
        """How many places are done."""
        return self.low + sum(stop - start for start, stop in self.runs)

    def done(self, place: int) -> bool:
        """Whether this place is."""
        if not self.runs:
            return place < self.low
        return place < self.low or any(start <= place < stop for start, stop in self.runs)

    def mark(self, place: int) -> None:
        """This place is done."""
        if self.done(place):
            return
        if not self.runs and place == self.low:
            self.low += 1
            return
        runs = sorted([*self.runs, [place, place + 1]])
        joined = [[0, self.low]]
        for start, stop in runs:
            if start == joined[-1][1]:
                joined[-1][1] = stop
            else:
                joined.append([start, stop])
        self.low, self.runs = joined[0][1], joined[1:]


def write_state(loader: Any, progress: Progress) -> dict[str, Any]:
    """The state of ``loader`` at ``progress``."""
    state = {
        "version": STATE_VERSION,
        "seed": loader.seed,
        "epoch": progress.epoch,
        "position": progress.position,
        **_fixed(loader),
    }
    if progress.runs:
        state["ahead"] = [list(run) for run in progress.runs]
    return state


def read_state(loader: Any, state: dict[str, Any]) -> tuple[int | None, Progress]:
    """The seed and progress of a state; ValueError if it is none of such a loader.

    A seed that the loader drew for its workers goes with a state that has none.
    """
    for name, value in {"version": STATE_VERSION, **_fixed(loader)}.items():
        if name not in state or state[name] != value:
            raise ValueError(
                f"DataLoader.load_state_dict: the state's {name} must be {value}, got "
                f"{state.get(name)!r}; resume with the dataset and options it was saved with"
            )
    seed = state.get("seed")
    progress = _read_progress(state)
    if seed is None and loader.seed_drawn:
        return loader.seed, progress
    if (seed is None) != (loader.seed is None):
        raise ValueError(
            f"DataLoader.load_state_dict: the state's seed is {seed!r}, this loader's "
            f"{loader.seed!r}; make the loader with a seed exactly if it was saved with one"
        )
    return None if seed is None else check_seed("DataLoader.load_state_dict", seed), progress


def check_resumable(loader: Any, method: str) -> None:
    """ValueError for an order that nothing can repeat."""
    decides = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    if not getattr(decides, "repeatable", True):
        raise ValueError(
            f"DataLoader.{method}: a shuffled order can be repeated only from a seed, got "
            f"seed=None; make the {'loader' if loader.shuffle else 'sampler'} with seed=0"
        )


def _fixed(loader: Any) -> dict[str, int]:
    """What the state of another loader must have in common."""
    if loader.stream:
        return {"batch_size": loader.batch_size, "shards": loader.order.shards}
    return {"batch_size": loader.batch_size, "length": len(loader.dataset)}


def _read_progress(state: dict[str, Any]) -> Progress:
    epoch, position = state.get("epoch"), state.get("position")
    if not (_is_count(epoch) and _is_count(position)):
        raise ValueError(
            f"DataLoader.load_state_dict: epoch and position must be counts, got {epoch!r} "
            f"and {position!r}; give what state_dict() returned"
        )
    runs = state.get("ahead", [])
    low = _low(position, runs)  # type: ignore[arg-type]
    if low is None:
        raise ValueError(
            f"DataLoader.load_state_dict: ahead must be rising [start, stop) pairs beyond the "
            f"position, got {runs!r} at {position}; give what state_dict() returned"
        )
    return Progress(epoch, low, runs)  # type: ignore[arg-type]


def _low(position: int, runs: Any) -> int | None:
    """The first place that is not done; None if the runs cannot be."""
    pairs = isinstance(runs, list) and all(
        isinstance(run, (list, tuple)) and len(run) == 2 and all(_is_count(x) for x in run)
        for run in runs
    )
    if not pairs:
        return None
    low = position - sum(stop - start for start, stop in runs)
    edges = [low, *(edge for run in runs for edge in run)]
    rising = all(a < b for a, b in pairwise(edges))
    return low if rising and low >= 0 else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
