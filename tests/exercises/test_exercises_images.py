"""Part 7 of the course: convolution, pooling, batch norm, LeNet-5 and a block of ResNet."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from toy_graph import tensor

from apps.course.compare import expect
from apps.models.resnet import BasicBlock
from apps.models.small import LeNet5
from needle import Tensor, accelerated, nn, ops
from needle.accelerated import convolution
from needle.accelerated.windows import Windows, view_windows
from needle.shapes import Geometry
from tests.exercises.native_programs import expect_fine

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
SETTINGS = [((1, 1), (0, 0), (1, 1), 1), ((2, 1), (1, 2), (1, 1), 1), ((1, 2), (2, 1), (2, 1), 2)]
"""Stride, padding, dilation, groups."""


def convolved(
    x: Array, weight: Array, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """Return the convolution by its definition: x (N, H, W, C), weight (KH, KW, C/groups, O)."""
    kh, kw, per_group, o = weight.shape
    x = np.pad(x, ((0, 0), (padding[0],) * 2, (padding[1],) * 2, (0, 0)))
    rows = (x.shape[1] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    columns = (x.shape[2] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((len(x), rows, columns, o))
    for p, q, i, j in itertools.product(range(rows), range(columns), range(kh), range(kw)):
        pixel = x[:, p * stride[0] + i * dilation[0], q * stride[1] + j * dilation[1]]
        for g in range(groups):
            of = slice(g * o // groups, (g + 1) * o // groups)
            out[:, p, q, of] += pixel[:, g * per_group : (g + 1) * per_group] @ weight[i, j, :, of]
    return out


def operands(groups: int) -> tuple[Array, Array]:
    return RNG.standard_normal((2, 5, 6, 4)), RNG.standard_normal((3, 2, 4 // groups, 6))


@pytest.mark.exercise("windows")
def test_all_windows_as_a_view() -> None:
    x = np.arange(2 * 5 * 6 * 2.0).reshape(2, 5, 6, 2)
    for stride, dilation in (((1, 1), (1, 1)), ((2, 3), (1, 1)), ((1, 2), (2, 1))):
        windows = Windows("conv2d", (5, 6), (2, 3), Geometry(stride, dilation=dilation))
        view = view_windows(x, windows)
        rows, columns = windows.out
        want = np.empty((2, rows, columns, 2, 3, 2))
        for p, q, i, j in itertools.product(range(rows), range(columns), range(2), range(3)):
            want[:, p, q, i, j] = x[
                :, p * stride[0] + i * dilation[0], q * stride[1] + j * dilation[1]
            ]
        given = {"padded": "(2, 5, 6, 2)", "kernel": (2, 3), "stride": stride, "dilation": dilation}
        expect("view_windows(...)[n, p, q, i, j, c]", view, want, given=given)
        expect("the view shares the image's memory", bool(np.shares_memory(view, x)), True)


@pytest.mark.exercise("im2col")
def test_windows_as_rows_of_a_matrix() -> None:
    for stride, padding, dilation, groups in SETTINGS:
        x, weight = operands(groups)
        geometry = Geometry(stride, padding, dilation, groups)
        windows = Windows("conv2d", (5, 6), (3, 2), geometry)
        rows = convolution._rows(x, windows)
        count = 2 * windows.out[0] * windows.out[1]
        given = {"stride, padding, dilation, groups": (stride, padding, dilation, groups)}
        expect("the shape of rows", rows.shape, (groups, count, 3 * 2 * 4 // groups), given=given)
        product = rows @ convolution._matrix(weight, groups)
        want = convolved(x, weight, stride, padding, dilation, groups)
        want = want.reshape(count, groups, -1).transpose(1, 0, 2)
        expect("rows @ the weights' matrix of each group", product, want, given=given)


@pytest.mark.exercise("conv2d")
def test_convolution() -> None:
    for settings in SETTINGS:
        x, weight = operands(settings[3])
        given = {"stride, padding, dilation, groups": settings}
        want = convolved(x, weight, *settings)
        flipped = convolved(x, weight[::-1, ::-1], *settings)
        expect(
            "conv2d(x, weight)",
            accelerated.conv2d(x, weight, Geometry(*settings)),
            want,
            given=given,
            mistakes={"the kernel is not flipped in this convolution": flipped},
        )


def adjoint(grad: Array, x: Array, weight: Array, settings: Any, of_weight: bool) -> Array:
    """Return the gradients of sum(grad * conv2d(x, weight)), which is linear in both."""
    point = weight if of_weight else x
    found = np.zeros_like(point)
    for place in np.ndindex(*point.shape):
        unit = np.zeros_like(point)
        unit[place] = 1.0
        pair = (x, unit) if of_weight else (unit, weight)
        found[place] = (grad * convolved(*pair, *settings)).sum()
    return found


@pytest.mark.exercise("conv2d-weight-grad")
def test_gradient_of_the_weights() -> None:
    for settings in SETTINGS:
        x, weight = operands(settings[3])
        x, weight = x[:, :4, :4], weight[..., :2]
        grad = RNG.standard_normal(convolved(x, weight, *settings).shape)
        got = accelerated.conv2d_weight_grad(grad, x, weight.shape, Geometry(*settings))
        given = {"stride, padding, dilation, groups": settings}
        expect("the gradient of weight", got, adjoint(grad, x, weight, settings, True), given=given)


@pytest.mark.exercise("conv2d-input-grad")
def test_gradient_of_the_image() -> None:
    for settings in SETTINGS:
        x, weight = operands(settings[3])
        x, weight = x[:1, :4, :4], weight[..., :2]
        grad = RNG.standard_normal(convolved(x, weight, *settings).shape)
        got = accelerated.conv2d_input_grad(grad, weight, x.shape, Geometry(*settings))
        given = {"stride, padding, dilation, groups": settings}
        want = adjoint(grad, x, weight, settings, False)
        expect("the gradient of x", got, want, given=given)


@pytest.mark.exercise("conv2d-op-grad")
def test_gradients_of_the_op() -> None:
    x, weight = RNG.standard_normal((2, 3, 4, 4)), RNG.standard_normal((2, 3, 3, 3))
    grad = RNG.standard_normal((2, 2, 4, 4))
    op = ops.convolution.Conv2d(Geometry(padding=(1, 1)))
    hwio = weight.transpose(2, 3, 1, 0)
    out = op(tensor(x), tensor(hwio), tensor([0.0, 0.0]))
    by_x, by_weight, by_bias = out.op.gradient_as_tuple(tensor(grad), out)  # type: ignore[union-attr]
    settings = ((1, 1), (1, 1), (1, 1), 1)
    last = grad.transpose(0, 2, 3, 1), x.transpose(0, 2, 3, 1), hwio
    expect("gradient for bias", by_bias, grad.sum((0, 2, 3)))
    expect("gradient for weight (KH, KW, C, O)", by_weight, adjoint(*last, settings, True))
    expect(
        "gradient for x (N, C, H, W)", by_x, adjoint(*last, settings, False).transpose(0, 3, 1, 2)
    )
    out = op(tensor(x, requires_grad=False), tensor(hwio))
    parts = out.op.gradient_as_tuple(tensor(grad), out)  # type: ignore[union-attr]
    expect("number of gradients without bias", len(parts), 2)
    expect("gradient for images that require none", parts[0], None)


@pytest.mark.exercise("max-pool")
def test_max_pooling() -> None:
    x = -1.0 - RNG.random((1, 5, 5, 2))
    out = accelerated.max_pool2d(x, (2, 3), (2, 1), (1, 1))
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    want = np.array(
        [[padded[0, 2 * p : 2 * p + 2, q : q + 3].max((0, 1)) for q in range(5)] for p in range(3)]
    )
    zeros = np.maximum(want, 0.0)
    expect(
        "max_pool2d, kernel (2, 3), stride (2, 1), padding (1, 1), all pixels below 0",
        out,
        want[None],
        mistakes={"padding must never be the maximum: it is -infinity": zeros[None]},
    )
    x[0, 2, 2, 0] = np.nan
    out = accelerated.max_pool2d(x, (5, 5), (1, 1), (0, 0))
    expect("a NaN in the first channel", np.isnan(out), np.array([[[[True, False]]]]))


@pytest.mark.exercise("max-pool-grad")
def test_gradient_of_max_pooling() -> None:
    x = np.array([[1.0, 3.0, 3.0, 0.0], [3.0, 2.0, 1.0, 5.0]]).reshape(1, 2, 4, 1)
    grad = np.array([10.0, 20.0, 30.0]).reshape(1, 1, 3, 1)
    got = accelerated.max_pool2d_grad(grad, x, (2, 2), (1, 1), (0, 0))
    want = np.array([[0.0, 30.0, 0.0, 0.0], [0.0, 0.0, 0.0, 30.0]]).reshape(1, 2, 4, 1)
    every = np.array([[0.0, 30.0, 20.0, 0.0], [10.0, 0.0, 0.0, 30.0]]).reshape(1, 2, 4, 1)
    given = {"x": x[0, :, :, 0], "grad": grad.reshape(-1), "kernel": (2, 2), "stride": (1, 1)}
    expect(
        "the gradient of x, with equal maxima",
        got,
        want,
        given=given,
        mistakes={"only the first maximum of a window in row-major order gets it": every},
    )
    low = np.full((1, 2, 2, 1), -np.inf)
    got = accelerated.max_pool2d_grad(np.ones((1, 1, 1, 1)), low, (4, 4), (1, 1), (1, 1))
    expect("if all values are -infinity, a pixel gets it, not the padding", got.sum(), 1.0)


@pytest.mark.exercise("kernel-max-pool")
def test_max_pooling_in_cpp() -> None:
    expect_fine("course_images_test", "max_pool")


@pytest.mark.exercise("kernel-max-pool-grad")
def test_gradient_of_max_pooling_in_cpp() -> None:
    expect_fine("course_images_test", "max_pool_grad")


@pytest.mark.exercise("running-statistics")
def test_batch_norm_in_evaluation() -> None:
    layer = nn.BatchNorm2d(2, dtype="float64", momentum=0.25)
    mixed = layer._mixed(tensor([1.0, 2.0]), tensor([3.0, -2.0]))
    expect(
        "running statistics (1, 2), observed (3, -2), momentum 0.25",
        mixed,
        np.array([1.5, 1.0]),
        mistakes={"momentum is the share of the observed value": np.array([2.5, -1.0])},
    )
    expect("the statistics require no gradient", mixed.requires_grad, False)
    layer.weight.data, layer.bias.data = tensor([2.0, 3.0]), tensor([0.5, -0.5])
    layer.running_mean, layer.running_var = tensor([1.0, -1.0]), tensor([4.0, 0.25])
    x = RNG.standard_normal((2, 2, 3, 3))
    at = (None, slice(None), None, None)
    want = (x - np.array([1.0, -1.0])[at]) / np.sqrt(np.array([4.0, 0.25])[at] + 1e-5)
    want = want * np.array([2.0, 3.0])[at] + np.array([0.5, -0.5])[at]
    expect("BatchNorm2d in evaluation", layer.eval()(tensor(x)), want)
    added = nn.BatchNorm2d(2, dtype="float64", activation="relu").eval()
    expect(
        "with activation='relu' and something added",
        added(tensor(x), tensor(x)),
        np.maximum(x / np.sqrt(1 + 1e-5) + x, 0),
    )


@pytest.mark.exercise("lenet5")
def test_lenet_is_as_in_the_paper() -> None:
    model = LeNet5()
    names = [name for name, _ in model.named_parameters()]
    expect(
        "its trained layers",
        sorted({name.rpartition(".")[0] for name in names}),
        ["classifier.1", "classifier.3", "classifier.5", "features.0", "features.3"],
    )
    count = sum(p.size for p in model.parameters())
    expect("its number of trained parameters", count, 61706)
    wide = LeNet5(in_channels=3, num_classes=7)
    expect("logits of images (2, 3, 32, 32), 7 classes", wide(images(3)).shape, (2, 7))


def images(channels: int) -> Tensor:
    return Tensor(
        RNG.standard_normal((2, channels, 32, 32)),
        dtype="float32",
        device=LeNet5().parameters()[0].device,
    )


@pytest.mark.exercise("basic-block")
def test_a_residual_block() -> None:
    block = BasicBlock(4, 8, 2, dtype="float64").eval()
    x = tensor(RNG.standard_normal((2, 4, 6, 6)))
    first = np.maximum(block.bn1(block.conv1(x)).numpy(), 0)
    plain = nn.BatchNorm2d(8, dtype="float64").eval()
    second = plain(block.conv2(tensor(first))).numpy()
    shortcut = block.downsample(x).numpy()
    mistakes = {"the shortcut is missing": np.maximum(second, 0)}
    expect(
        "BasicBlock(4, 8, stride 2)(x)",
        block(x),
        np.maximum(second + shortcut, 0),
        mistakes=mistakes,
    )
