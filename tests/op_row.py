"""A row of the op table: how an op is called and its expected result; calls that must fail.

``op_table`` gathers the rows of the families; ``ops/test_op_table`` generates the tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from needle import ops
from needle.errors import ShapeError

FLOATS = ("float32", "float64")
NUMBERS = (*FLOATS, "int32", "int64")


@dataclass(frozen=True)
class Failure:
    """A call that must raise ``error`` with a message that contains ``message``."""

    call: Callable[[Any], Any]
    """Called with a function that converts a NumPy array to a Tensor on the device under test."""
    error: type[Exception]
    message: str


@dataclass(frozen=True)
class OpRow:
    """One way to call an op; arrays are NumPy, floating ones are drawn in float64."""

    name: str
    """The op's name in REGISTRY."""
    call: Callable[..., Any]
    """The op applied to Tensors, one for each input."""
    oracle: Callable[..., Any]
    """The reference in NumPy, in float64."""
    inputs: Callable[[np.random.Generator], tuple[Any, ...]]
    case: str = ""
    """The name that distinguishes this row from others of the op."""
    dtypes: tuple[str, ...] = FLOATS
    """Input dtypes for which the result must have the dtype of the oracle's rule ``out_dtype``."""
    out_dtype: str | None = None
    """The result's dtype; None: that of the inputs."""
    order: int = 2
    """The highest order of derivatives compared with differences; 0: not differentiable."""
    resize: bool = True
    """True if the call stays valid when axis 0 of every input is cut to size 1 and to size 0."""
    empty: bool = True
    """True if size 0 is valid at all."""
    rtol: float = 2e-5
    """The relative tolerance of float32 compared with float64."""

    def __repr__(self) -> str:
        return f"<row {self.id} of {self.name}>"  # short, because pytest prints it above a failure

    @property
    def id(self) -> str:
        return f"{self.name}-{self.case}" if self.case else self.name


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    """Return standard normal inputs of these shapes."""
    return lambda random: tuple(random.standard_normal(shape) for shape in shapes)


def positive(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    """Return inputs in [0.5, 2)."""
    return lambda random: tuple(random.uniform(0.5, 2.0, shape) for shape in shapes)


def apart(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    """Return distinct inputs on a shuffled grid of 0.1 without 0, away from kinks (max, relu)."""

    def make(random: np.random.Generator) -> tuple[Any, ...]:
        total = sum(int(np.prod(shape)) for shape in shapes)
        grid = random.permutation(np.arange(total) * 0.1 - total * 0.05 + 0.03)
        parts = np.split(grid, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
        return tuple(part.reshape(shape) for part, shape in zip(parts, shapes))

    return make


def called(
    name: str,
    oracle: Callable[..., Any],
    inputs: Callable[[np.random.Generator], tuple[Any, ...]],
    *args: Any,
    options: Mapping[str, Any] | None = None,
    **fields: Any,
) -> OpRow:
    """Return the row that calls the op of this name on its inputs, ``args`` and ``options``."""
    call, named = getattr(ops, name), options or {}
    return OpRow(name, lambda *a: call(*a, *args, **named), oracle, inputs, **fields)


def alike(name: str, oracle: Callable[..., Any], inputs: Any, *args: Any, **fields: Any) -> OpRow:
    """Return the row of an op; its oracle takes the same ``args`` after the inputs."""
    return called(name, lambda *a: oracle(*a, *args), inputs, *args, **fields)


S = (3, 4)
"""The shape of most inputs."""


def refused(
    call: Any, message: str, *shapes: tuple[int, ...], error: type[Exception] = ShapeError
) -> Failure:
    """Return a call on ones of these shapes, by default ``S``, that must raise ``error``."""
    return Failure(lambda t: call(*[t(np.ones(s)) for s in shapes or (S,)]), error, message)


def wrong(
    name: str,
    message: str,
    *args: Any,
    on: tuple[tuple[int, ...], ...] = (S,),
    error: type[Exception] = ShapeError,
    **options: Any,
) -> Failure:
    """Return a call of the op on ones of the shapes ``on`` and ``args`` that must raise."""
    call = getattr(ops, name)
    return Failure(
        lambda t: call(*[t(np.ones(shape)) for shape in on], *args, **options),
        error,
        f"{name}: {message}",
    )


def bad_axis(name: str, *args: Any, **options: Any) -> Failure:
    return wrong(name, "axis 2 is out of range for 2 dimensions", *args, **options)
