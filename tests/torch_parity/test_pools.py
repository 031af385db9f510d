"""Compare values and first and second gradients of pools with PyTorch's, for every option."""

from typing import Any

import numpy as np
import pytest

import needle as ndl
from tests.torch_parity.compare import F, compare_functions, torch

Random = np.random.Generator
SEEDS = range(40)


def images(r: Random, axes: int, equal: bool = True) -> Any:
    """Return x of random shape, half of them with equal elements and infinities."""
    shape = (*r.integers(1, 4, r.integers(1, 3)), *r.integers(3, 10, axes))
    if equal and r.integers(2):
        x = r.integers(-2, 3, shape) * 1.0
        x[r.random(shape) < 0.05] = -np.inf
        return x
    return r.standard_normal(shape)


def numbers(r: Random, low: int, high: int, axes: int) -> Any:
    values = tuple(int(n) for n in r.integers(low, high, axes))
    return values if axes > 1 and r.integers(2) else values[0]


def geometry(r: Random, x: Any, axes: int) -> dict[str, Any]:
    """Return options of max pooling that PyTorch accepts for x."""
    while True:
        kernel = numbers(r, 1, 5, axes)
        options = {
            "dilation": numbers(r, 1, 4, axes),
            "stride": numbers(r, 1, 5, axes) if r.integers(3) else None,
            "padding": numbers(r, 0, 3, axes),
            "ceil_mode": bool(r.integers(2)),
        }
        pool = getattr(F, f"max_pool{axes}d")
        try:
            y = pool(torch.tensor(np.zeros_like(x)), kernel, **options)
        except RuntimeError:
            continue
        if not torch.isinf(y).any():  # a dilated window may read only padding
            return {"kernel": kernel, **options}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("axes", [1, 2])
def test_max_pool(seed: int, axes: int, device: Any) -> None:
    r = np.random.default_rng([seed, axes])
    x = images(r, axes)
    options = geometry(r, x, axes)
    kernel = options.pop("kernel")
    name = f"max_pool{axes}d"
    compare_functions(name, [x], device, kernel, **options)
    ours = getattr(ndl, name)(
        ndl.Tensor(x, device=device, dtype="float64"), kernel, **options, return_indices=True
    )
    theirs = getattr(F, name)(torch.tensor(x), kernel, **options, return_indices=True)
    for got, want in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    assert ours[1].dtype == "int64" and not ours[1].requires_grad


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "name", [f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2)]
)
def test_adaptive_pool(seed: int, name: str, device: Any) -> None:
    r = np.random.default_rng(seed)
    axes = int(name[-2])
    x = images(r, axes, equal="max" in name)
    size: Any = int(r.integers(1, 12))
    if axes == 2 and r.integers(2):
        size = (size, None) if r.integers(2) else (None, size)
    compare_functions(name, [x], device, size)
    if "max" in name:
        y = ndl.Tensor(x, device=device, dtype="float64")
        ours = getattr(ndl, name)(y, size, return_indices=True)[1]
        theirs = getattr(F, name)(torch.tensor(x), size, return_indices=True)[1]
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("seed", range(10))
def test_max_unpool(seed: int, device: Any) -> None:
    r = np.random.default_rng(seed)
    shape = (2, 3, *r.integers(4, 9, 2)) if r.integers(2) else (3, *r.integers(4, 9, 2))
    stride, padding = int(r.integers(1, 4)), int(r.integers(0, 2))
    x = torch.tensor(r.standard_normal(shape))
    y, where = F.max_pool2d(x, 3, stride, padding, return_indices=True)
    size = tuple(int(n) for n in shape[-2:])
    a = ndl.Tensor(y.numpy(), device=device, dtype="float64")
    ours = ndl.max_unpool2d(a, where.numpy(), 3, stride, padding, size)
    theirs = F.max_unpool2d(y, where, 3, stride, padding, size)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    if stride == 3:  # windows do not overlap
        geometry = (3, stride, padding, size)
        compare_functions("max_unpool2d", [y.numpy()], device, where.numpy(), *geometry)


def test_nan_is_the_maximum(device: Any) -> None:
    x = np.arange(48.0).reshape(1, 1, 6, 8)
    x[0, 0, [1, 1, 4], [2, 3, 6]] = np.nan
    for options in (
        {},
        {"dilation": 2, "stride": 1},
        {"padding": 1, "ceil_mode": True, "stride": 2},
    ):
        a = ndl.Tensor(x, device=device, dtype="float64")
        ours = ndl.max_pool2d(a, 3, **options, return_indices=True)
        theirs = F.max_pool2d(torch.tensor(x), 3, **options, return_indices=True)
        np.testing.assert_array_equal(ours[0].numpy(), theirs[0].numpy())
        plain = ndl.max_pool2d(a, 3, **options)
        np.testing.assert_array_equal(plain.numpy(), theirs[0].numpy())


def test_layers_that_undo_each_other(device: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 8)).astype("float32")
    y, where = ndl.nn.MaxPool2d(2, return_indices=True)(ndl.Tensor(x, device=device))
    unpooled = ndl.nn.MaxUnpool2d(2)(y, where).numpy()
    np.testing.assert_array_equal(unpooled[unpooled != 0], x[unpooled != 0])


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(4, 5), (1, 6), (1, 1)], ids=str)
def test_grid_sample(size: Any, mode: str, padding: str, align_corners: bool, device: Any) -> None:
    r = np.random.default_rng(8)
    grid = r.uniform(-3, 3, (2, 3, 4, 2))
    grid[0, 0, :2] = [[-1, 1], [1, -1]]  # corners, where the gradient jumps
    grid[1, 0] = 0.0
    values = [r.standard_normal((2, 3, *size)), grid]
    compare_functions("grid_sample", values, device, mode, padding, align_corners, order=1)
