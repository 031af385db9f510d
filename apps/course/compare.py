"""Compare values (``expect``) and errors (``expect_error``) in the tests of exercises.

A wrong answer raises WrongAnswer with a small case (given, expected, got). It names a likely cause
if the answer is a known mistake, from the table below or from the test itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MOST_LINES = 12
"""Lines of a value that a failing case shows."""


@dataclass(frozen=True)
class Case:
    """A failing case as text: what was compared, the inputs, both values, and the cause or ""."""

    what: str
    given: str
    expected: str
    got: str
    cause: str

    def lines(self) -> list[str]:
        """Return the case as aligned lines, without the empty entries."""
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
    """Raised if a test of an exercise gets a value that it does not expect."""

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
    """Raise WrongAnswer unless ``got`` equals ``expected``, numbers within rtol and atol.

    Both may be Tensors, arrays, numbers, or lists and tuples of anything; shapes must agree.
    mistakes: maps each likely cause, in words, to the value that it would give.
    """
    if _same(got, expected, rtol, atol):
        return
    cause = next((text for text, wrong in (mistakes or {}).items() if _same(got, wrong)), "")
    raise WrongAnswer(
        Case(
            what,
            inputs_of(given),
            _shown(expected),
            _shown(got),
            cause or _likely_cause(got, expected),
        )
    )


@contextmanager
def expect_error(
    what: str, kind: type[Exception], message: str = "", given: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Raise WrongAnswer unless the block raises ``kind`` with text that matches ``message``.

    message: a regular expression, searched for in the error's text. given: the inputs to show.
    """
    inputs = inputs_of(given)
    wanted = f"{kind.__name__}: ...{message}..." if message else kind.__name__
    try:
        yield
    except kind as error:
        if not re.search(message, str(error)):
            got = f"{type(error).__name__}: {error}"
            raise WrongAnswer(Case(what, inputs, wanted, got, "")) from error
    else:
        raise WrongAnswer(Case(what, inputs, wanted, "no error", "a check is missing"))


def inputs_of(given: Mapping[str, Any] | None) -> str:
    """Return the inputs of a case as text, a line or more for each name."""
    return "\n".join(f"{name} = {_shown(value)}" for name, value in (given or {}).items())


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
    """Return a Tensor, array or number as float64, and None for anything else."""
    if value is None or isinstance(value, str):
        return None
    try:
        host = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        return host.astype("float64") if host.dtype.kind in "biuf" else None
    except (TypeError, ValueError):
        return None


def _shown(value: Any) -> str:
    """Return a value as text of a few lines."""
    if not _numeric(value) or isinstance(value, int):
        text = value if isinstance(value, str) else repr(value)
        return text if len(text) < 300 else text[:300] + " ..."
    numbers = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    text = np.array2string(numbers, precision=4, threshold=24, edgeitems=2, suppress_small=True)
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        text = "\n".join([*lines[:MOST_LINES], "..."])
    return f"{text}   shape {numbers.shape}" if numbers.ndim else text


def _likely_cause(got: Any, expected: Any) -> str:
    if got is None:
        return "the result is None: a return is missing"
    left, right = _numbers(got), _numbers(expected)
    if left is None or right is None or not _numeric(expected):
        return ""
    return next((text for text, holds in CAUSES.items() if holds(left, right)), "")


def _is_multiple(got: Array, expected: Array) -> bool:
    """Return True if ``got`` is ``expected`` times a constant that is not 0."""
    nonzero = np.abs(expected) > 1e-9
    if got.shape != expected.shape or nonzero.sum() < 2:
        return False
    with np.errstate(all="ignore"):
        ratio = got[nonzero] / expected[nonzero]
    still = bool(np.all(np.abs(got[~nonzero]) < 1e-9))
    return still and bool(np.isfinite(ratio[0]) and np.allclose(ratio, ratio[0]) and ratio[0] != 0)


CAUSES: dict[str, Callable[[Array, Array], bool]] = {
    "NaN or infinity: an overflow, or a division of 0 by 0": lambda got, expected: bool(
        np.isfinite(expected).all() and not np.isfinite(got).all()
    ),
    "the transpose of the answer": lambda got, expected: (
        got.ndim > 1 and got.T.shape == expected.shape and np.allclose(got.T, expected)
    ),
    "the right numbers in a wrong shape": lambda got, expected: (
        got.shape != expected.shape
        and got.size == expected.size
        and np.allclose(got.reshape(-1), expected.reshape(-1))
    ),
    "more elements than expected: broadcast axes are not summed": lambda got, expected: (
        got.size > expected.size
    ),
    "fewer elements than expected: one axis too many was summed or dropped": lambda got, expected: (
        got.size < expected.size
    ),
    "the sign is wrong": lambda got, expected: (
        got.shape == expected.shape and np.allclose(got, -expected)
    ),
    "all zeros: the contribution was never added": lambda got, expected: (
        got.shape == expected.shape and not got.any()
    ),
    "the right answer times a constant: a wrong factor, or a count to divide by": _is_multiple,
}
"""A test of (got, expected) for each likely cause; the first one that holds is reported."""
