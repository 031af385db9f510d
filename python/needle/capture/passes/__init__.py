"""The passes over a recording, which rewrite its calls and with ``exact`` keep every bit.

A pass is a function that changes the lists ``segment.calls`` of a Recording and returns a phrase
that says what it did. ``PASSES`` lists them in order. At the end, ``planning`` assigns each
temporary its place in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..recorded import Recording
from . import constants, dead_calls, folding, in_place, moments, parameters, rematerialisation
from .options import Options, byte_count
from .planning import Plan, plan

__all__ = ["PASSES", "Options", "Plan", "Stage", "byte_count", "optimise", "plan", "size_text"]

Pass = Callable[[Recording, Options], str]
PASSES: dict[str, Pass] = {
    "dead calls": dead_calls.remove,
    "constants": constants.move,
    "folding": folding.fold,
    "moments": moments.share,
    "copies": parameters.copy,
    "preparation": parameters.prepare,
    "rematerialisation": rematerialisation.rematerialise,
    "in place": in_place.write_over_inputs,
}
"""The passes in the order in which they run: the name for ``explain``, and the function."""


@dataclass(frozen=True)
class Stage:
    """The state of a recording after one pass; ``print`` it to see its calls."""

    name: str
    summary: str
    """A line with the name of the pass, what it did, and what is left."""
    recording: Recording

    def __str__(self) -> str:
        """Return the list of calls, one per line."""
        return str(self.recording)


def optimise(recording: Recording, options: Options) -> tuple[list[Stage], Plan]:
    """Run all passes over ``recording``; return the stage after each, and the memory plan."""
    stages = [_stage("recorded", f"{len(recording.segments)} segments", recording)]
    for name, run in PASSES.items():
        stages.append(_stage(name, run(recording, options), recording))
    constants.note_parameters(recording)
    made = plan(recording.temporaries())
    text = f"{len(made.places)} temporaries in {size_text(made.bytes)}"
    return [*stages, _stage("planning", text, recording)], made


def _stage(name: str, text: str, recording: Recording) -> Stage:
    live = size_text(max(recording.live_bytes(), default=0))  # temporaries at the peak
    summary = f"{name}: {text}; {len(recording.calls())} calls, {live}"
    return Stage(name, summary, recording.copy())


def size_text(count: int) -> str:
    """Return a number of bytes as text in MB (10**6 bytes), or in KB if it is below 1 MB."""
    return f"{count / 1e6:.2f} MB" if count >= 10**6 else f"{count / 1e3:.2f} KB"
