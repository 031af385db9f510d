"""The planner of one data set, with its named tasks, their epochs, and rounds of draws.

The same seed and the same calls give the same draws. serving/feed.py holds one planner for each
kind of prepared samples.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...data.samples.random_source import check_seed
from ...data.samples.ticket import Indices
from ...errors import DataError, unknown_name
from .planned import Planned
from .policy import MAX_INDEX, MAX_TASKS, Draw, DrawPolicy, Members


class _Joined(NamedTuple):
    """A task in the planner: its slot number and its index set in ascending order."""

    slot: int
    indices: Indices


class Planner:
    """A planner that gives each task its next index, the same for several tasks where possible.

    Every task sees its own index set in a uniformly random order each epoch, whatever the other
    tasks do.

    seed: in [0, 2**64). A server that restarts with tasks in the middle of an epoch should not
    reuse its seed.
    """

    policy: type[DrawPolicy] = Planned

    def __init__(self, seed: int = 0) -> None:
        self._members = Members()
        self._random = Random(check_seed("Planner", seed))
        self._policy = self.policy(self._members, self._random)
        self._tasks: dict[str, _Joined] = {}
        self._names: dict[int, str] = {}

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks that have joined and have not left."""
        return tuple(self._tasks)

    def join(
        self,
        task: str,
        indices: range | npt.NDArray[np.integer],
        *,
        remaining: npt.NDArray[np.integer] | None = None,
    ) -> None:
        """Add a task at the beginning of an epoch, or in the middle of one.

        indices: the index set, int ``(n,)`` or a range: distinct, in [0, 2**31), and not empty.
        remaining: the part of the set that the epoch still misses, by default the whole set. Raises
        DataError for a name already in use, for more than 64 tasks, or for an invalid index set.
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
        foreign = left[~np.isin(left, own)] if remaining is not None else left[:0]
        if len(foreign):
            raise DataError(
                f"Planner.join: index {foreign[0]} does not belong to the set of task {task!r}; "
                "remaining indices must be a part of it"
            )
        if len(left) < len(own):  # do not repeat the draws made before a restart
            digest = sha256(left.tobytes() + self._random.randbytes(32)).digest()
            self._random.seed(digest)
        self._tasks[task] = _Joined(slot, own)
        self._names[slot] = task
        self._begin(slot, left, whole=len(left) == len(own))

    def leave(self, task: str) -> None:
        """Remove a task and the rest of its epoch."""
        slot = self._task(task).slot
        self._end(slot)
        del self._tasks[task], self._names[slot]

    def round(self, active: Collection[str]) -> list[Draw]:
        """Draw one index for each active task that has any left; return the distinct indices.

        A task that is not in ``active`` (paused or slow) gets no index and loses none. The active
        tasks are chosen before the draw, so the choice cannot depend on it.
        """
        rounds = self.rounds(active, 1)
        return rounds[0] if rounds else []

    def rounds(self, active: Collection[str], count: int) -> list[list[Draw]]:
        """Return ``count`` rounds, or fewer if all active tasks reach the end of their epochs."""
        slots = sorted({self._task(name).slot for name in active})
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
        """Start the next epoch of a task; the rest of the current one is dropped."""
        slot, indices = self._task(task)
        self._end(slot)
        self._begin(slot, indices, whole=True)

    def remaining(self, task: str) -> int:
        """Return the number of indices that the epoch of a task has left."""
        return self._members.left[self._task(task).slot]

    def need(self, index: int) -> int:
        """Return the number of tasks whose current epochs still miss this index."""
        masks = self._members.masks
        return masks[index].bit_count() if 0 <= index < len(masks) else 0

    def _begin(self, slot: int, left: Indices, whole: bool) -> None:
        self._members.enter(slot, left)
        self._policy.begin(slot, left, whole)

    def _end(self, slot: int) -> None:
        self._policy.end(slot)
        self._members.drop(slot)

    def _task(self, name: str) -> _Joined:
        if name not in self._tasks:
            raise unknown_name("task", name, self._tasks)
        return self._tasks[name]

    def _named(self, mask: int) -> tuple[str, ...]:
        return tuple(self._names[slot] for slot in range(mask.bit_length()) if mask >> slot & 1)


def _index_set(what: str, indices: range | npt.NDArray[np.integer]) -> Indices:
    """Return the distinct indices in ascending order: int64 ``(n,)``."""
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
    repeated = np.flatnonzero(rising[1:] == rising[:-1])
    if len(repeated):
        raise DataError(
            f"Planner.join: {what} must be distinct, got {rising[repeated[0]]} twice; a sample "
            "comes once an epoch"
        )
    return rising
