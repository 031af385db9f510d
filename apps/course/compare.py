"""``expect``: what the exercises' tests compare with, and what a wrong answer says.

A WrongAnswer carries a small case (given, expected, got) and the likely cause where the answer is
one of the mistakes known: those of the table below, or those that the test names itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A failing case as text: what was looked at, the inputs, both values, the cause or ""."""

    what: str
    given: str
    expected: str
    got: str
    cause: str

    def lines(self) -> list[str]:
        """The case as aligned lines, empty entries left out."""
        rows = {k: v for k, v in asdict(self).items() if v}
        rows["likely cause"] = rows.pop("cause", "")
        width = max(map(len, rows))
        found = []
        for name, value in rows.items():
            if value:
                first, *more = value.split("\n")
                found += [f"{name:>{width}}  {first}", *(" " * (width + 2) + line for line in more)]
        return found


class WrongAnswer(AssertionError):
    """An exercise's test found another value than it expected."""

    def __init__(self, case: Case) -> None:
        super().__init__("\n" + "\n".join(case.lines()))
        self.case = case


def expect(
    what: str,
    got: Any,
    expected: Any,
    *,
    given: Mapping[str, Any] | None = None,
    mistakes: Mapping[str, Any] | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-9,
) -> None:
    """WrongAnswer unless ``got`` equals ``expected`` (numbers within rtol and atol, shapes too).

    Both may be Tensors, arrays, numbers, or lists and tuples of anything. ``mistakes``: the likely
    cause -> the value that it would give.
    """
    if _same(got, expected, rtol, atol):
        return
    cause = next((text for text, wrong in (mistakes or {}).items() if _same(got, wrong)), "")
    raise WrongAnswer(
        Case(
            what,
            "\n".join(f"{name} = {_shown(value)}" for name, value in (given or {}).items()),
            _shown(expected),
            _shown(got),
            cause or _likely_cause(got, expected),
        )
    )


def _same(got: Any, expected: Any, rtol: float = 1e-6, atol: float = 1e-9) -> bool:
    if not _numeric(expected):
        return type(got) is type(expected) and bool(got == expected)
    left, right = _numbers(got), _numbers(expected)
    if left is None or right is None or left.shape != right.shape:
        return False
    return bool(np.allclose(left, right, rtol=rtol, atol=atol, equal_nan=True))


def _numeric(value: Any) -> bool:
    found = _numbers(value)
    return found is not None and not isinstance(value, (list, tuple, str, bool))


def _numbers(value: Any) -> Array | None:
    """A Tensor, array or number as float64; None for anything else."""
    if value is None or isinstance(value, str):
        return None
    try:
        host = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        return host.astype("float64") if host.dtype.kind in "biuf" else None
    except (TypeError, ValueError):
        return None


def _shown(value: Any) -> str:
    """A value in a few lines."""
    if not _numeric(value) or isinstance(value, int):
        text = value if isinstance(value, str) else repr(value)
        return text if len(text) < 300 else text[:300] + " ..."
    numbers = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    text = np.array2string(numbers, precision=4, threshold=24, edgeitems=2, suppress_small=True)
    return f"{text}   shape {numbers.shape}" if numbers.ndim else text


def _likely_cause(got: Any, expected: Any) -> str:
    if got is None:
        return "None came back: a return is missing"
    left, right = _numbers(got), _numbers(expected)
    if left is None or right is None or not _numeric(expected):
        return ""
    return next((text for text, holds in CAUSES.items() if holds(left, right)), "")


def _is_multiple(got: Array, expected: Array) -> bool:
    """Whether ``got`` is ``expected`` times one number that is neither 0 nor 1."""
    nonzero = np.abs(expected) > 1e-9
    if got.shape != expected.shape or nonzero.sum() < 2:
        return False
    with np.errstate(all="ignore"):
        ratio = got[nonzero] / expected[nonzero]
    still = bool(np.all(np.abs(got[~nonzero]) < 1e-9))
    return still and bool(np.isfinite(ratio[0]) and np.allclose(ratio, ratio[0]) and ratio[0] != 0)


CAUSES: dict[str, Callable[[Array, Array], bool]] = {
    "NaN or infinity: something overflowed, or 0 was divided by 0": lambda got, expected: bool(
        np.isfinite(expected).all() and not np.isfinite(got).all()
    ),
    "the transpose of the answer": lambda got, expected: (
        got.ndim > 1 and got.T.shape == expected.shape and np.allclose(got.T, expected)
    ),
    "the right numbers in another shape": lambda got, expected: (
        got.shape != expected.shape
        and got.size == expected.size
        and np.allclose(got.reshape(-1), expected.reshape(-1))
    ),
    "more elements than expected: axes that were broadcast are not summed": lambda got, expected: (
        got.size > expected.size
    ),
    "fewer elements than expected: an axis was summed or dropped too many": lambda got, expected: (
        got.size < expected.size
    ),
    "the sign is turned round": lambda got, expected: (
        got.shape == expected.shape and np.allclose(got, -expected)
    ),
    "all zeros: the contribution was never added": lambda got, expected: (
        got.shape == expected.shape and not got.any()
    ),
    "the answer times a constant: a factor, or a division by a count": _is_multiple,
}
"""What is likely wrong -> whether it looks so, from (got, expected); the first one is said."""
