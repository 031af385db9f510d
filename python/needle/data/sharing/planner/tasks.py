"""The planner: tasks by name, their epochs and states, rounds of draws. Pure: no clock, no input
or output, no threads; the same seed and the same calls give the same draws. The server holds one
for each data set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import DataError, unknown_name
from ...samples.random_source import check_seed
from . import policy as policies
from .members import MAX_INDEX, MAX_TASKS, Indices, Members
from .planner_state import pack, unpack
from .policy import Draw


@dataclass
class _Task:
    slot: int
    indices: Indices
    epoch: int


class Planner:
    """Gives each task its next index, so that tasks meet at one index as often as can be.

    policy: one of ``policies()``. seed: in [0, 2**64); a server that starts again with tasks that
    go on should not take the seed it had before.

    Every task sees its own set in a uniformly random order each epoch, whatever the others do.
    """

    def __init__(self, policy: str = "coupled", *, seed: int = 0) -> None:
        self._members = Members()
        self._random = Random(check_seed("Planner", seed))
        self._policy = policies.find(policy)(self._members, self._random)
        self._tasks: dict[str, _Task] = {}
        self._names: dict[int, str] = {}
        self._slots: dict[str, int] = {}

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks that have joined and not left."""
        return tuple(self._tasks)

    def join(
        self,
        task: str,
        indices: range | npt.NDArray[np.integer],
        *,
        epoch: int = 0,
        remaining: npt.NDArray[np.integer] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """A task begins ``epoch`` of its set, or goes on in it.

        indices: its set, distinct, in [0, 2**31), not empty; int ``(n,)`` or a range. remaining:
        what the epoch has left, a part of the set; all of it by default. state: what ``state()``
        gave for the same set, in place of epoch and remaining. DataError for a known name, more
        than 64 tasks, duplicates, indices outside or of another set.
        """
        if task in self._tasks:
            raise DataError(f"Planner.join: task {task!r} has joined already; leave first")
        slot = next((i for i in range(MAX_TASKS) if i not in self._names), None)
        if slot is None:
            raise DataError(f"Planner.join: {MAX_TASKS} tasks at most; start a second server")
        own = _index_set("indices", indices)
        if not len(own):
            raise DataError(
                f"Planner.join: task {task!r} has an empty index set; give it one index"
            )
        left = own if remaining is None else _index_set("remaining", remaining)
        if remaining is not None:
            _check_part(task, left, own)
        if state is not None:
            epoch, left = unpack(state, own)
        if len(left) < len(own):  # a planner that starts again must not repeat its choices
            told = sha256(left.tobytes() + self._random.randbytes(32)).digest()
            self._random.seed(told)
        self._tasks[task] = _Task(slot, own, epoch)
        self._names[slot], self._slots[task] = task, slot
        self._begin(slot, left, whole=len(left) == len(own))

    def leave(self, task: str) -> None:
        """The task is gone, its epoch with it."""
        slot = self._task(task).slot
        self._end(slot)
        del self._tasks[task], self._names[slot], self._slots[task]

    def round(self, active: Collection[str]) -> list[Draw]:
        """One index for each active task that has any left; the indices are distinct.

        Whoever is not in ``active`` (paused, slow) gets nothing and loses nothing. The choice of
        active tasks must not look at what is going to be drawn, nor can it: it comes first.
        """
        rounds = self.rounds(active, 1)
        return rounds[0] if rounds else []

    def rounds(self, active: Collection[str], count: int) -> list[list[Draw]]:
        """As ``round`` so often; fewer rounds where all active tasks come to the end of theirs."""
        for name in active:
            self._task(name)
        slots = sorted(self._slots[name] for name in set(active))
        members, draw, left = self._members, self._policy.draw, self._members.left
        planned: list[list[Draw]] = []
        names: dict[int, tuple[str, ...]] = {}
        for _ in range(count):
            if not all(map(left.__getitem__, slots)):
                slots = [slot for slot in slots if left[slot]]
            if not slots:
                break
            row = []
            for index, taken in draw(slots).items():
                members.take(index, taken)
                tasks = names.get(taken) or names.setdefault(taken, self._named(taken))
                row.append(Draw(index, tasks))
            planned.append(row)
        return planned

    def next_epoch(self, task: str) -> None:
        """The task starts its next epoch; what the current one has left is dropped."""
        known = self._task(task)
        self._end(known.slot)
        known.epoch += 1
        self._begin(known.slot, known.indices, whole=True)

    def remaining(self, task: str) -> int:
        """How many indices the task's epoch has left."""
        return self._members.left[self._task(task).slot]

    def epoch(self, task: str) -> int:
        """The number of the task's epoch."""
        return self._task(task).epoch

    def need(self, index: int) -> int:
        """How many tasks' current epochs still miss this index."""
        masks = self._members.masks
        return masks[index].bit_count() if 0 <= index < len(masks) else 0

    def state(self, task: str, pending: Collection[int] = ()) -> dict[str, Any]:
        """Where the task is, as JSON can hold it: epoch and the indices it has left.

        pending: indices of this epoch that were drawn and not delivered; they count as left.
        """
        known = self._task(task)
        left = self._members.missing(known.slot)
        back = np.fromiter(pending, np.int64, len(pending))
        _check_part(task, back, known.indices)
        return pack(known.epoch, np.concatenate((left, back)), known.indices)

    def _begin(self, slot: int, left: Indices, whole: bool) -> None:
        self._members.enter(slot, left)
        self._policy.begin(slot, left, whole)

    def _end(self, slot: int) -> None:
        self._policy.end(slot)
        self._members.drop(slot)

    def _task(self, name: str) -> _Task:
        if name not in self._tasks:
            raise unknown_name("task", name, self._tasks)
        return self._tasks[name]

    def _named(self, mask: int) -> tuple[str, ...]:
        slots = [slot for slot in range(mask.bit_length()) if mask >> slot & 1]
        return tuple(self._names[slot] for slot in slots)


def _index_set(what: str, indices: range | npt.NDArray[np.integer]) -> Indices:
    """The distinct indices in rising order, int64 (n,)."""
    given = np.asarray(indices)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise DataError(
            f"Planner.join: {what} must be a one-dimensional array of integers, got "
            f"{given.dtype} of shape {given.shape}"
        )
    rising = np.sort(given.astype(np.int64))
    if len(rising) and not (rising[0] >= 0 and rising[-1] < MAX_INDEX):
        raise DataError(
            f"Planner.join: {what} must be in [0, 2**31), got {rising[0]} to {rising[-1]}"
        )
    twice = np.flatnonzero(rising[1:] == rising[:-1])
    if len(twice):
        raise DataError(
            f"Planner.join: {what} must be distinct, got {rising[twice[0]]} twice; a sample comes "
            "once an epoch"
        )
    return rising


def _check_part(task: str, part: Indices, own: Indices) -> None:
    """DataError where ``part`` is not within the rising ``own``."""
    places = np.searchsorted(own, part).clip(max=len(own) - 1)
    foreign = np.flatnonzero(own[places] != part)
    if len(foreign):
        raise DataError(
            f"Planner: index {part[foreign[0]]} does not belong to the set of task {task!r}; "
            "remaining indices are a part of it"
        )
