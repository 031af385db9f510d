"""Test which matrix products load their operands by TMA on the emulated GPU, and their results."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from needle import accelerated, config
from needle.shapes import Geometry
from tests.cuda_on_cpu import emulated
from tests.cuda_on_cpu.test_precision import bf16, uniform
from tests.cuda_on_cpu.test_stored_bfloat16 import assert_rounded, stored

pytest.importorskip("ml_dtypes")
pytestmark = emulated.NEEDED


@pytest.fixture(autouse=True)
def sm_90() -> Iterator[None]:
    """Emulate a GPU of compute capability 9 with NEEDLE_CUDA_SM90=on."""
    emulated.set_capability(9)
    yield
    emulated.set_capability(8)


TMA = {
    "one step a tap": ((2, 9, 8, 32), (3, 3, 32, 72), (1, 1), (1, 1), (1, 1), 1),
    "both gradients": ((2, 9, 8, 64), (3, 3, 64, 96), (1, 1), (1, 1), (1, 1), 1),
    "a stride": ((3, 9, 11, 64), (3, 3, 64, 64), (2, 2), (1, 1), (1, 1), 1),
    "dilation": ((2, 13, 12, 32), (3, 2, 32, 136), (1, 2), (2, 1), (2, 3), 1),
    "one tap": ((4, 8, 8, 32), (1, 1, 32, 64), (2, 2), (0, 0), (1, 1), 1),
    "no padding": ((1, 12, 15, 32), (5, 4, 32, 64), (1, 1), (0, 0), (1, 1), 1),
}
"""Convolutions whose operands TMA can load."""
OTHERS = {
    "48 channels": ((2, 9, 8, 48), (3, 3, 48, 72), (1, 1), (1, 1), (1, 1), 1),
    "groups": ((2, 9, 8, 64), (3, 3, 32, 144), (1, 1), (1, 1), (1, 1), 2),
    "far taps": ((1, 9, 300, 32), (1, 2, 32, 40), (1, 1), (0, 40), (1, 270), 1),
    "far padding": ((1, 9, 8, 32), (3, 3, 32, 40), (1, 150), (1, 150), (1, 1), 1),
    "a long stride": ((1, 9, 90, 32), (3, 3, 32, 40), (1, 9), (1, 1), (1, 1), 1),
}
"""Convolutions with the same tiles whose operands TMA cannot load."""


def check_convolution(shapes: Any, how: Geometry) -> list[bool]:
    """Check conv2d and its two gradients; return whether TMA loaded the operands of each."""
    counts = [emulated.module.tma_loads()]
    x, weight = (bf16(uniform(*s)) for s in shapes)
    wide_x, wide_weight = x.astype("float64"), weight.astype("float64")
    want = accelerated.conv2d.definition(wide_x, wide_weight, how)
    assert_rounded(accelerated.conv2d(stored(x), stored(weight), how), want)
    counts.append(emulated.module.tma_loads())
    grad = bf16(uniform(*want.shape))
    wide = grad.astype("float64")
    input_grad, weight_grad = accelerated.conv2d_input_grad, accelerated.conv2d_weight_grad
    assert_rounded(
        input_grad(stored(grad), stored(weight), shapes[0], how),
        input_grad.definition(wide, wide_weight, shapes[0], how),
    )
    counts.append(emulated.module.tma_loads())
    assert_rounded(
        weight_grad(stored(grad), stored(x), shapes[1], how),
        weight_grad.definition(wide, wide_x, shapes[1], how),
    )
    counts.append(emulated.module.tma_loads())
    return [after > before for before, after in pairwise(counts)]


@pytest.fixture(params=["forward", "reversed"])
def watched(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run each order of threads with race detection on one processor, which takes large tiles."""
    emulated.module.set_order(request.param)
    emulated.module.watch_races(True)
    emulated.module.set_processors(1)
    yield
    emulated.module.set_processors(2)
    emulated.module.watch_races(False)
    emulated.module.set_order("forward")


@pytest.mark.parametrize("case", TMA)
def test_tma_loads_the_operands_of_convolutions(case: str, watched: None) -> None:
    *shapes, stride, padding, dilation, groups = TMA[case]
    found = check_convolution(shapes, Geometry(stride, padding, dilation, groups))
    rows, columns, inputs, outputs = shapes[1]
    whole = outputs % 32 == 0
    assert found == [
        True,
        whole and inputs > 32,
        whole and outputs > 32 and rows * columns * inputs > 64,
    ]


@pytest.mark.parametrize("case", OTHERS)
def test_convolutions_whose_operands_tma_cannot_load(case: str) -> None:
    *shapes, stride, padding, dilation, groups = OTHERS[case]
    found = check_convolution(shapes, Geometry(stride, padding, dilation, groups))
    assert not any(found)


@pytest.mark.parametrize(("m", "k", "n"), [(136, 104, 136), (264, 72, 200), (128, 1056, 128)])
def test_tma_loads_the_operands_of_products(m: int, k: int, n: int, watched: None) -> None:
    a, b = bf16(uniform(m, k)), bf16(uniform(k, n))
    want = a.astype("float64") @ b
    left, right = (stored(np.ascontiguousarray(v.T)).T for v in (a, b))
    for x, y in ((stored(a), stored(b)), (stored(a), right), (left, stored(b))):
        before = emulated.module.tma_loads()
        assert_rounded(x @ y, want)
        assert emulated.module.tma_loads() > before


@pytest.mark.parametrize("switch", ["off", "sm_80"])
def test_without_the_switch_or_before_sm_90_nothing_uses_it(switch: str) -> None:
    emulated.set_capability(8 if switch == "sm_80" else 9)
    config.cuda_sm90.set("off" if switch == "off" else "on")
    before = emulated.module.tma_loads()
    *shapes, stride, padding, dilation, groups = TMA["one tap"]
    assert not any(check_convolution(shapes, Geometry(stride, padding, dilation, groups)))
    _ = stored(uniform(136, 104)) @ stored(uniform(104, 136))
    assert emulated.module.tma_loads() == before
