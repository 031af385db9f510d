"""The policy ``tree``: dependent sampling along a chain of intersections, the earlier work's rule.

Joader (Xu et al., NeurIPS 2022) in its exact form: kept as the baseline that ``coupled`` is
measured against, for it shares by the common part of all remaining tasks only.
"""

from __future__ import annotations

from collections.abc import Sequence

from .policy import Policy, policy


@policy("tree")
class Tree(Policy):
    """Tasks in order of what they have left; a node offers what all tasks from it on have in
    common and no node before it has offered. Task j accepts with |offered| / |what j has left|,
    decided in turn by one chain of draws that ends at the first refusal; those that accept share
    one index. Where the first refuses, it takes an index outside the offer; the others go on.
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
        """A uniform one of all the indices in these rows."""
        place = int(self.random.random() * sum(map(len, rows)))
        for items in rows:
            if place < len(items):
                return items[place]
            place -= len(items)
        raise AssertionError("the rows are empty")
