"""The planner of one data set, with its named tasks, their epochs, and rounds of draws.

The same seed and the same calls give the same draws. serving/feed.py holds one planner for each
kind of prepared samples.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from random import Random

import numpy as np
import numpy.typing as npt

from ...data.samples.random_source import check_seed
from ...data.samples.ticket import Indices
from ...errors import DataError, unknown_name
from .planned import Planned
from .policy import MAX_INDEX, MAX_TASKS, Draw, Members


class Planner:
    """An object that gives each task its next index, the same for several tasks where possible.

    Every task sees its own index set in a uniformly random order each epoch, whatever the other
    tasks do.

    seed: in [0, 2**64). A server that restarts while tasks are in the middle of an epoch should not
    reuse its seed.
    """

    def __init__(self, seed: int = 0) -> None:
        self._members = Members()
        self._random = Random(check_seed("Planner", seed))
        self._policy = Planned(self._members, self._random)
        self._tasks: dict[str, int] = {}  # slots
        self._names: dict[int, str] = {}

    def join(
        self,
        task: str,
        indices: range | npt.NDArray[np.integer],
        *,
        remaining: Indices | None = None,
    ) -> None:
        """Add a task at the beginning of an epoch, or in the middle of one.

        indices: the index set, int ``(n,)`` or a range: ascending, in [0, 2**31), and not empty.
        remaining: the indices that the epoch has yet to deliver, by default the whole set. Raises
        DataError for a name already in use, for more than 64 tasks, or for an invalid index set.
        """
        if task in self._tasks:
            raise DataError(f"Planner.join: task {task!r} has already joined; leave first")
        slot = next((i for i in range(MAX_TASKS) if i not in self._names), None)
        if slot is None:
            raise DataError(
                f"Planner.join: there may be at most {MAX_TASKS} tasks; start a second server"
            )
        own = np.asarray(indices).astype(np.int64, casting="safe")
        rising = own.ndim == 1 and len(own) and (np.diff(own, prepend=-1) > 0).all()
        if not rising or own[-1] >= MAX_INDEX:
            raise DataError(
                f"Planner.join: the index set of task {task!r} must be ascending, in [0, 2**31) "
                f"and not empty, got {indices}; use np.unique(indices)"
            )
        left = own if remaining is None else remaining
        assert np.isin(left, own).all(), "remaining indices are a part of the set"
        if len(left) < len(own):  # do not repeat the draws made before a restart
            digest = sha256(left.tobytes() + self._random.randbytes(32)).digest()
            self._random.seed(digest)
        self._tasks[task] = slot
        self._names[slot] = task
        self._members.enter(slot, left)
        self._policy.begin(slot, whole=len(left) == len(own))

    def leave(self, task: str) -> None:
        """Remove a task and the rest of its epoch."""
        slot = self._slot(task)
        self._policy.end(slot)
        self._members.drop(slot)
        del self._tasks[task], self._names[slot]

    def rounds(self, active: Collection[str], count: int) -> list[list[Draw]]:
        """Draw ``count`` rounds, or fewer if all active tasks reach the end of their epochs.

        A round gives one index to each active task that has any left. A task that is not in
        ``active`` (paused or slow) gets no index and loses none. The active tasks are chosen before
        the draws, so the choice cannot depend on them.
        """
        slots = sorted({self._slot(name) for name in active})
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

    def need(self, index: int) -> int:
        """Return the number of tasks that still need this index in their current epochs."""
        masks = self._members.masks
        return masks[index].bit_count() if 0 <= index < len(masks) else 0

    def _slot(self, name: str) -> int:
        if name not in self._tasks:
            raise unknown_name("task", name, self._tasks)
        return self._tasks[name]

    def _named(self, mask: int) -> tuple[str, ...]:
        return tuple(self._names[slot] for slot in range(mask.bit_length()) if mask >> slot & 1)
