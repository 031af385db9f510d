"""The policy ``tree`` of Joader (Xu et al., NeurIPS 2022): the baseline of ``coupled``.

Importing this module registers the policy. ``python -m apps.bench.data.tree_policy`` is
``python -m needle.sharing`` with this policy added. It shares only through the common part of
all remaining tasks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from needle.sharing.__main__ import main
from needle.sharing.planner.policy import DrawPolicy, policy


@policy("tree")
class Tree(DrawPolicy):
    """Chain of intersections over the tasks, in the order of what they have left.

    A node offers the indices that all tasks from it on have in common and that no earlier node
    has offered. Task j accepts with probability |offered| / |what j has left|, decided in turn by
    one chain of draws that ends at the first refusal. The tasks that accept share one index. If
    the first task refuses, it takes an index outside the offer, and the others continue.
    """

    def draw(self, slots: list[int]) -> dict[int, int]:
        members, random = self.members, self.random.random
        tasks = sorted(slots, key=members.left.__getitem__)
        atoms = {mask: members.items[row] for mask, row in members.rows.items()}
        left = {j: members.left[j] for j in tasks}
        drawn: dict[int, int] = {}
        while tasks:
            together = sum(1 << j for j in tasks)
            offered = [mask for mask in atoms if mask & together == together]
            common = last = sum(len(atoms[mask]) for mask in offered)
            accepted = 0
            for j in tasks:
                if random() * left[j] >= last:
                    break
                accepted, last = accepted + 1, left[j]
            if accepted:
                index = self._any([atoms[mask] for mask in offered])
            else:
                bit, refused = 1 << tasks[0], set(offered)
                index = self._any([atoms[m] for m in atoms if m & bit and m not in refused])
            served = tasks[: max(accepted, 1)]
            drawn[index] = drawn.get(index, 0) | sum(1 << j for j in served)
            tasks = tasks[len(served) :]
            atoms = {mask: items for mask, items in atoms.items() if mask not in offered}
            for j in tasks:
                left[j] -= common
        return drawn

    def _any(self, rows: Sequence[Sequence[int]]) -> int:
        """Return a uniformly random index of these rows."""
        place = int(self.random.random() * sum(map(len, rows)))
        for items in rows:
            if place < len(items):
                return items[place]
            place -= len(items)
        raise AssertionError("the rows are empty")


if __name__ == "__main__":
    sys.exit(main())
