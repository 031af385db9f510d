"""A conformance case (inputs, an oracle and a call), and the check of a backend against it.

The cases themselves are in ``required`` and ``optional``, the table of results in ``report``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.base import Backend, View
from ...errors import DTypeError
from .placement import HostArray, Placed, repeated

Call = Callable[[Backend, Sequence[View], Sequence[View]], None]

PAIRS = (
    ("compact", "compact"),
    ("permuted", "compact"),
    ("compact", "permuted"),
    ("offset", "sliced"),
    ("sliced", "offset"),
    ("negative", "negative"),
    ("broadcast", "compact"),
)
"""Pairs (layout of the inputs, layout of the outputs)."""


class Mismatch(Exception):
    """Raised if a result differs from the oracle's, or if memory that must not change does."""


@dataclass(frozen=True)
class Case:
    """A requirement: a call with views of the inputs leaves ``oracle(*inputs)`` in ``outs``.

    ``row`` is the backend's function; for ``unary``, ``binary`` and ``reduce`` the operation
    follows after a dot. The arguments are the inputs, the outputs and the settings, unless there is
    a ``call``. ``tolerance`` is both relative and absolute and applies to float32; for float64 it
    is multiplied by 1e-7; 0 means equal. ``initial``: the contents of outs before the call, for
    kernels that update.
    """

    row: str
    label: str
    inputs: tuple[HostArray, ...]
    oracle: Callable[..., Any]
    settings: tuple[Any, ...] = ()
    tolerance: float = 0.0
    pairs: tuple[tuple[str, str], ...] = (("compact", "compact"),)
    initial: tuple[HostArray, ...] = ()
    in_place: bool = False
    """True if the first output is the input ``target`` itself."""
    target: int = 0
    absolute: float | None = None
    """The absolute tolerance, in place of ``tolerance``; for results that are small."""
    signed_zeros: bool = False
    """True if zeros must have the sign of the oracle's."""
    call: Call | None = None
    """The call, where it is not the function of the row with the arguments in this order."""

    def applies(self, backend: Backend) -> bool:
        """Return True if the backend can hold the values of the inputs and of the results."""
        hosts = [*self.inputs, *self.initial]
        if any(host.dtype.name not in backend.dtypes for host in hosts):
            return False
        hosts += self._expected(self.inputs)
        return all(_holds(backend, host) for host in hosts)

    def check(self, backend: Backend) -> None:
        """Raise Mismatch, or the backend's own error, at the first layout that fails."""
        for in_layout, out_layout in self.pairs:
            try:
                inputs = self._inputs(in_layout)
                for want, got in self.results(backend, in_layout, out_layout):
                    self._compare(want, got, inputs)
            except Exception as error:
                place = f"{self.label}, {in_layout} inputs, {out_layout} output"
                raise Mismatch(f"{place}: {_described(error)}") from error

    def results(
        self, backend: Backend, in_layout: str = "compact", out_layout: str = "compact"
    ) -> list[tuple[HostArray, HostArray]]:
        """Return (expected, got) of each output; raise Mismatch if other memory changed."""
        inputs = self._inputs(in_layout)
        expected = self._expected(inputs)
        sources = [Placed(backend, host, in_layout) for host in inputs]
        before = self.initial or tuple(np.full_like(host, 77) for host in expected)
        outs = [Placed(backend, host, out_layout) for host in before]
        if self.in_place:
            outs[0] = sources[self.target]
        self._run(backend, [source.view for source in sources], [out.view for out in outs])
        backend.synchronize()
        found = [(want, out.read()) for want, out in zip(expected, outs, strict=True)]
        if not all(out.outside_is_intact() for out in outs):
            raise Mismatch("memory outside the output view was written")
        if not all(source.is_intact() for source in sources if source not in outs):
            raise Mismatch("an input was modified")
        return found

    def _run(self, backend: Backend, ins: Sequence[View], outs: Sequence[View]) -> None:
        if self.call is not None:
            self.call(backend, ins, outs)
            return
        function, *operation = self.row.split(".")
        getattr(backend, function)(*operation, *ins, *outs, *self.settings)

    def _expected(self, inputs: Sequence[HostArray]) -> tuple[HostArray, ...]:
        with np.errstate(all="ignore"):
            return as_tuple(self.oracle(*inputs))

    def _inputs(self, layout: str) -> tuple[HostArray, ...]:
        return tuple(map(repeated, self.inputs)) if layout == "broadcast" else self.inputs

    def _compare(self, want: HostArray, got: HostArray, inputs: tuple[HostArray, ...]) -> None:
        compare(want, got, self.tolerance, inputs, self.absolute)
        zeros = (want == 0) & (np.signbit(want) != np.signbit(got)) if self.signed_zeros else None
        if zeros is not None and zeros.any():
            raise Mismatch("sign of zero: " + _first_difference(zeros, want, got, inputs))


def _holds(backend: Backend, host: HostArray) -> bool:
    """Return False if the backend lacks the dtype or refuses these int64 values."""
    if host.dtype.name not in backend.dtypes:
        return False
    if host.dtype == np.int64 and np.any(host != host.astype(np.int32)):
        try:
            Placed(backend, host, "compact")
        except DTypeError:
            return False
        except Exception:  # the backend is faulty; the check of the case reports it
            return True
    return True


def compare(
    expected: HostArray,
    got: HostArray,
    tolerance: float,
    inputs: Sequence[HostArray] = (),
    absolute: float | None = None,
) -> None:
    """Raise Mismatch unless ``got`` is ``expected`` within the tolerance; NaN equals NaN.

    A bool must be stored as the byte 0 or 1.
    """
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise Mismatch(f"expected {expected.dtype} {expected.shape}, got {got.dtype} {got.shape}")
    if expected.dtype == np.bool_:
        wrong = np.asarray(got).view(np.uint8) != np.asarray(expected).view(np.uint8)
    elif expected.dtype.kind != "f":
        wrong = got != expected
    else:
        bound = tolerance * (1e-7 if expected.dtype == np.float64 else 1.0)
        least = bound if absolute is None else absolute
        near = np.isclose(got, expected, rtol=bound, atol=least, equal_nan=True)
        wrong = ~near
    if wrong.any():
        raise Mismatch(_first_difference(wrong, expected, got, inputs))


def _first_difference(
    wrong: HostArray, expected: HostArray, got: HostArray, inputs: Sequence[HostArray]
) -> str:
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    values = [
        f"{host[place].item()!r}" if host.shape == expected.shape else _short(host)
        for host in inputs
    ]
    return (
        f"{int(wrong.sum())} of {expected.size} elements differ, first at {place}: "
        f"inputs {'; '.join(values) or 'none'}, "
        f"expected {expected[place].item()!r}, got {got[place].item()!r}"
    )


def _short(host: HostArray) -> str:
    text = np.array2string(host, threshold=8, edgeitems=2, separator=",").replace("\n", "")
    return f"{host.dtype}{list(host.shape)} {text[:120]}"


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, Mismatch) else f"{type(error).__name__}: {error}"


def as_tuple(result: Any) -> tuple[HostArray, ...]:
    """Return an oracle's result, one array or several, as a tuple of arrays."""
    if isinstance(result, (tuple, list)):
        return tuple(np.asarray(item) for item in result)
    return (np.asarray(result),)
