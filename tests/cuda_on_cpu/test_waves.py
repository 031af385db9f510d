"""Numbers of blocks that ResNet-18's convolutions on CIFAR-10 launch, for an H100's processors.

The launches are listed, not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

import needle
from needle import accelerated, config
from needle.backend_selection import BACKEND
from needle.shapes import Geometry
from tests.cuda_on_cpu import emulated

pytestmark = [
    pytest.mark.skipif(BACKEND == "np", reason="plain NumPy arrays have no backends"),
    pytest.mark.skipif(emulated.module is None, reason="not built: CMake target cuda_on_cpu"),
]

PROCESSORS = 132


class Layer(NamedTuple):
    """A convolution of square images and kernels."""

    size: int
    inputs: int
    outputs: int
    kernel: int
    stride: int


LAYERS = [
    Layer(32, 3, 64, 3, 1),
    Layer(32, 64, 64, 3, 1),
    *(
        layer
        for size, inputs in ((32, 64), (16, 128), (8, 256))
        for layer in (
            Layer(size, inputs, 2 * inputs, 3, 2),
            Layer(size, inputs, 2 * inputs, 1, 2),
            Layer(size // 2, 2 * inputs, 2 * inputs, 3, 1),
        )
    ),
]


@pytest.fixture(autouse=True)
def h100() -> Iterator[None]:
    """Emulate a GPU of compute capability 9 with 132 processors."""
    emulated.set_capability(9)
    emulated.module.set_processors(PROCESSORS)
    yield
    emulated.module.list_launches(False)
    emulated.module.set_processors(2)
    emulated.set_capability(8)


def blocks_of(op: Any, *arguments: Any) -> list[tuple[str, int]]:
    """Return the convolution kernels that a call launches, and their numbers of blocks."""
    emulated.module.list_launches(True)
    op(*arguments)
    emulated.module.list_launches(False)
    listed = emulated.module.listed_launches()
    return [(name, blocks) for name, blocks, _ in listed if name.startswith("conv2d")]


@pytest.mark.parametrize("batch", [128, 256])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16", "stored in bf16"])
def test_convolutions_of_resnet18_fill_the_processors(precision: str, batch: int) -> None:
    """Each has at least 0.9 blocks per processor; wide bf16 layers load operands by TMA."""
    stored = precision.startswith("stored")
    if stored:
        pytest.importorskip("ml_dtypes")
    empty = partial(needle.device(emulated.NAME).empty, dtype="bfloat16" if stored else "float32")
    for layer in LAYERS:
        of_x = (batch, layer.size, layer.size, layer.inputs)
        of_weight = (layer.kernel, layer.kernel, layer.inputs, layer.outputs)
        half, pad = layer.size // layer.stride, layer.kernel // 2
        how = Geometry((layer.stride, layer.stride), (pad, pad), (1, 1), 1)
        x, weight, grad = empty(of_x), empty(of_weight), empty((batch, half, half, layer.outputs))
        with config.matmul_precision.using(precision.split()[-1]):
            launches = [
                *blocks_of(accelerated.conv2d, x, weight, how),
                *blocks_of(accelerated.conv2d_input_grad, grad, weight, of_x, how),
                *blocks_of(accelerated.conv2d_weight_grad, grad, x, of_weight, how),
            ]
        assert len(launches) == 2 + layer.stride**2
        few = [each for each in launches if each[1] < 0.9 * PROCESSORS]
        assert not few, (layer, few)
        if layer.stride == 1 and layer.inputs > 3:
            assert stored == all("tma" in name for name, _ in launches), (layer, launches)
