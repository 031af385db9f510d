"""The progress of an epoch, and the state of a loader as a few JSON values.

A batch counts once it is delivered to the program, not when it is prepared.
sampling/epoch_order.py lists the batches of an epoch and iteration.py delivers them.
"""

from __future__ import annotations

import reprlib
from typing import Any

from ..samples.random_source import check_seed
from ..samples.ticket import Ticket


class Progress:
    """The number of an epoch, and the ``position`` before which all of its places are done.

    A place has no batch if its shard of a stream has ended; it is done once a later place is.
    """

    def __init__(self, epoch: int, position: int = 0) -> None:
        self.epoch, self.position = epoch, position
        self.finished = False

    def mark(self, ticket: Ticket) -> None:
        """Mark the ticket's batch as done."""
        self.position = ticket.place + 1


def read_state(
    state: dict[str, Any],
    seed: int | None,
    seed_drawn: bool,
    identity: dict[str, int],
    batches: int | None,
) -> tuple[int | None, Progress]:
    """Return a state's seed and progress; raise ValueError if it does not belong to this loader.

    seed_drawn: the loader drew its own seed for its workers, so a state without a seed is accepted
    as well. identity: the entries of a state that must match. batches: the number of batches of an
    epoch, if known.
    """
    if not isinstance(state, dict):
        raise TypeError(_refusal("a state must be a dict", type(state).__name__))
    for name, value in identity.items():
        found = state.get(name)
        if not is_count(found) or found != value:
            raise ValueError(
                f"DataLoader.load_state_dict: the state's {name} must be {value}, got "
                f"{reprlib.repr(found)}; resume with the dataset and options with which it was "
                "saved"
            )
    saved, epoch, position = (state.get(name) for name in ("seed", "epoch", "position"))
    if not (is_count(epoch) and is_count(position)):
        got = f"{reprlib.repr(epoch)} and {reprlib.repr(position)}"
        raise ValueError(_refusal("epoch and position must be counts", got))
    progress = Progress(epoch, position)  # type: ignore[arg-type]
    if batches is not None and progress.position > batches:
        rule = f"position must be at most {batches}, the batches of an epoch"
        raise ValueError(_refusal(rule, position))
    if saved is None and seed_drawn:
        return seed, progress
    if saved is not None and type(saved) is not int:
        rule = "the state's seed must be an int or None"
        raise TypeError(_refusal(rule, reprlib.repr(saved)))
    if (saved is None) != (seed is None):
        raise ValueError(
            f"DataLoader.load_state_dict: the state's seed is {saved}, this loader's {seed}; give "
            "the loader a seed if, and only if, the saved one had a seed"
        )
    return None if saved is None else check_seed("DataLoader.load_state_dict", saved), progress


def _refusal(rule: str, got: Any) -> str:
    return f"DataLoader.load_state_dict: {rule}, got {got}; give what state_dict() returned"


def is_count(value: Any) -> bool:
    """Return True if ``value`` is an int from 0 to 2**62."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**62
