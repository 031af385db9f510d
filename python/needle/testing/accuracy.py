"""Measure the error of elementwise functions on every device, in units in the last place (ulp).

``measure`` compares float32 results with float64 over the whole range of float32; ``python -m
needle.testing.accuracy`` prints the table of docs/internals/accuracy.md. In NumPy mode only
functions that are ops are measured, because the others are NumPy's own.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import ops
from ..accelerated import special
from ..array_namespace import BACKEND, all_devices, from_numpy, to_numpy
from ..array_namespace import array_api as xp
from ..autograd import Tensor
from ..backends.numpy_functions import unary
from ..ops import REGISTRY

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]

LIMIT = 2.0
"""The largest error that a function may have, in ulp."""
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 88.0, -88.0]
    + [-20.0, -87.5, -100.0, -103.9, -104.5, -14.2, -13.0, 88.7, 88.8, 3.4028235e38, -3.4028235e38]
    + [1e-45, -1e-45, 1.1754942e-38, -1.1754942e-38, 1.1754944e-38, 16777216.0, 16777217.0],
    np.float32,
)
"""Values that every measurement includes."""
_OVERFLOW, _LAST = 3.4028236692093846e38, 2.0**104
"""The number at which float32 continues beyond its largest one, and the distance between both."""


REFERENCES: dict[str, Callable[[Doubles], Any]] = {
    **{name: getattr(np, name) for name in "exp expm1 log log1p log2 log10 sqrt".split()},
    **{name: getattr(np, name) for name in "sin cos tan asin acos atan".split()},
    **{name: getattr(np, name) for name in "sinh cosh tanh asinh acosh atanh".split()},
    "erf": lambda x: unary("erf", x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "log_sigmoid": lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "normal_cdf": special.normal_cdf.definition,
    "gelu": special.gelu.definition,
    "gelu tanh": special.gelu_tanh.definition,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "hardswish": lambda x: x * (np.clip(x + 3, 0, 6) / 6),
    "power a**3": lambda x: x**3,
    "power a**-1": lambda x: 1 / x,
    "power a**0.3": lambda x: np.power(x, float(np.float32(0.3))),
    "power 2**a": lambda x: np.power(2.0, x),
}
"""The measured functions in float64. ``normal_cdf`` and ``gelu`` are tested against math.erfc."""
_CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu tanh": lambda a: ops.gelu(a, approximate="tanh"),
    "power a**3": lambda a: a**3,
    "power a**-1": lambda a: a**-1.0,
    "power a**0.3": lambda a: a**0.3,
    "power 2**a": lambda a: 2.0**a,
}


@dataclass(frozen=True)
class Worst:
    """The largest error of a function on a device, and its argument."""

    ulps: float
    at: float


def ulps(got: Floats, want: Doubles) -> Doubles:
    """Return the distance of each result from the true value, in float32 ulps at that value.

    The distance is 0 if both are NaN, or if the result underflows to a zero of either sign. It is
    infinite if only the result is NaN, or if a true zero has the other sign. Infinity counts as the
    number after the largest float32.
    """
    unit = np.ldexp(1.0, np.maximum(np.frexp(want)[1] - 24, -149))
    unit = np.where(np.isinf(want), _LAST, np.minimum(unit, _LAST))
    finite = np.clip(got.astype(np.float64), -_OVERFLOW, _OVERFLOW)
    error = np.abs(finite - np.clip(want, -_OVERFLOW, _OVERFLOW)) / unit
    error[np.isnan(got) & np.isnan(want)] = 0.0
    error[np.isnan(got) != np.isnan(want)] = np.inf
    error[(want == 0) & (np.signbit(got) != np.signbit(want))] = np.inf
    return error


def targets() -> dict[str, tuple[Any, str | None]]:
    """Return the devices of this machine by name, with cpu once for each instruction set."""
    found: dict[str, tuple[Any, str | None]] = {}
    for device in filter(lambda each: each.enabled(), all_devices()):
        name = str(device).removesuffix("()")
        if BACKEND == "nd" and name == "cpu":
            isas = device.backend.module.available_isas()
            found.update({f"cpu {isa}": (device, isa) for isa in isas})
        else:
            found["NumPy mode" if BACKEND == "np" else name] = device, None
    return found


def evaluated(name: str, host: Floats, device: Any, isa: str | None = None) -> Floats:
    """Return a function's results on a device, with the given or the current instruction set."""
    array = from_numpy(host, device, np.dtype("float32"))
    row = _CALLS.get(name) or (REGISTRY[name].function if name in REGISTRY else None)
    module = None if isa is None else device.backend.module
    before = None if module is None else module.isa
    try:
        if module is not None:
            module.select_isa(isa)
        if row is None:
            got = getattr(xp, name)(array)
        else:
            got = row(Tensor.make_const(array)).realize_cached_data()
    finally:
        if module is not None:
            module.select_isa(before)
    result: Floats = to_numpy(got)
    return result


def names() -> list[str]:
    """Return the functions that can be measured in this process."""
    return [n for n in REFERENCES if BACKEND == "nd" or n in _CALLS or n in REGISTRY]


def _blocks(stride: int, size: int = 1 << 20) -> Iterator[Floats]:
    """Yield, in blocks, the special values, then every ``stride``-th float32 in bit order."""
    yield SPECIAL
    for start in range(0, 1 << 32, size * stride):
        bits = np.arange(start, min(start + size * stride, 1 << 32), stride, dtype=np.uint64)
        yield bits.astype(np.uint32).view(np.float32)


def measure(name: str, stride: int = 997) -> dict[str, Worst]:
    """Return the largest error of a function on each device over every ``stride``-th float32."""
    worst = {target: Worst(0.0, 0.0) for target in targets()}
    for host in _blocks(stride):
        with np.errstate(all="ignore"):
            want = REFERENCES[name](host.astype(np.float64))
            for target, place in targets().items():
                error = ulps(evaluated(name, host, *place), want)
                i = int(np.argmax(error))
                if error[i] > worst[target].ulps:
                    worst[target] = Worst(float(error[i]), float(host[i]))
    return worst


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit status is 1 if an error exceeds the limit."""
    parser = argparse.ArgumentParser(prog="python -m needle.testing.accuracy")
    parser.add_argument(
        "--stride",
        type=int,
        default=997,
        help="distance of the measured numbers; 1 is every float32 (about a minute a function)",
    )
    parser.add_argument(
        "names", nargs="*", help=f"functions (default: all of {', '.join(names())})"
    )
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(names())):
        parser.error(f"unknown functions {', '.join(unknown)}; choose from {', '.join(names())}")
    devices = list(targets())
    print(f"| function | {' | '.join(devices)} | largest at |")
    print(f"|---|{'---:|' * len(devices)}---:|")
    largest = 0.0
    for name in options.names or names():
        worst = measure(name, options.stride)
        top = max(worst.values(), key=lambda each: each.ulps)
        largest = max(largest, top.ulps)
        cells = " | ".join(f"{worst[device].ulps:.2f}" for device in devices)
        print(f"| {name} | {cells} | {top.at:.6g} |", flush=True)
    return int(not largest <= LIMIT or math.isnan(largest))


if __name__ == "__main__":
    sys.exit(main())
