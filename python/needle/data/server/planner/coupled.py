"""The policy ``coupled``: sequential residual coupling, as few reads a round as a greedy can have.

A pivot draws from its law; another task joins it as often as its own law allows; those that refuse
go on with what their law has left over, residual to the pivot's, whatever the pivot drew.
"""

from __future__ import annotations

from .policy import Policy, policy

NEGLIGIBLE = 1e-12
"""A residual of less mass than this is rounding: the laws are equal."""


@policy("coupled")
class Coupled(Policy):
    """Each task's next index is uniform on what it misses, given everything drawn before.

    Proof: j takes y by joining pivot p with q_p(y) min(1, q_j(y) / q_p(y)) = min(q_p, q_j)(y); it
    refuses with 1 - sum min, and then draws from (q_j - min) / (1 - sum min). The sum is q_j(y).
    The pivot is the task whose law has most in common with the others': a function of the past.
    """

    def draw(self, slots: list[int]) -> dict[int, int]:
        atoms, left, random = self.members.atoms, self.members.left, self.random.random
        drawn: dict[int, int] = {}
        masks = list(atoms)
        laws = {
            j: [len(atoms[mask]) / left[j] if mask >> j & 1 else 0.0 for mask in masks]
            for j in slots
        }
        while laws:
            p = _pivot(laws)
            law = laws.pop(p)
            row = _choose(law, random())
            items = atoms[masks[row]]
            index = items[int(random() * len(items))]
            share = random() * law[row]
            taken = 1 << p
            for j, other in list(laws.items()):
                if share < other[row]:
                    taken |= 1 << j
                    del laws[j]
                else:
                    rest = [max(b - a, 0.0) for a, b in zip(law, other)]
                    mass = sum(rest)
                    laws[j] = [b / mass for b in rest]
            drawn[index] = drawn.get(index, 0) | taken
        return drawn


def _pivot(laws: dict[int, list[float]]) -> int:
    """The slot whose law has the largest sum of overlaps with the others'; the first of equals."""
    if len(laws) < 3:
        return next(iter(laws))
    return max(
        laws,
        key=lambda p: sum(sum(map(min, laws[p], laws[j])) for j in laws if j != p),
    )


def _choose(law: list[float], u: float) -> int:
    """A row with the probability that the law gives it."""
    last = 0
    for row, mass in enumerate(law):
        if mass > 0.0:
            last = row
            u -= mass
            if u < 0.0:
                break
    return last
