"""Part 7 of the course: convolution, pooling, batch norm, LeNet-5 and a block of ResNet."""

from typing import Any

import drawn_windows as drawing
import numpy as np
import pytest
from drawn_windows import expect_elements
from small_convolutions import (
    SMALL,
    adjoint,
    convolved,
    counted,
    draw_input_grad,
    draw_output,
    draw_weight_grad,
    last_tap,
    mistaken,
    padded,
    reads,
    rows_of,
    settings_of,
    unordered,
)
from toy_graph import tensor

from apps.course.compare import expect
from needle import accelerated, ops
from needle.accelerated import convolution
from needle.accelerated.windows import Windows, view_windows
from needle.shapes import Geometry

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


@pytest.mark.exercise("windows")
def test_all_windows_as_a_view() -> None:
    for what, shape, kernel, settings in SMALL:
        stride, _, dilation, _ = settings
        x = counted(shape)
        windows = Windows("conv2d", shape[1:3], kernel[:2], Geometry(stride, dilation=dilation))
        view = view_windows(x, windows)
        where = reads(shape, kernel, (stride, (0, 0), dilation, 1))
        want = np.empty((shape[0], *windows.out, *kernel[:2], shape[3]))
        plain, swapped, turned = want.copy(), want.copy(), want.copy()
        for (p, q, i, j), place in where.items():
            want[:, p, q, i, j] = x[:, place[0], place[1]]
            plain[:, p, q, i, j] = x[:, p + i, q + j]
            across = p * dilation[0] + i * stride[0], q * dilation[1] + j * stride[1]
            swapped[:, p, q, i, j] = x[:, across[0] % shape[1], across[1] % shape[2]]
            down, along = p * stride[0] + j * dilation[1], q * stride[1] + i * dilation[0]
            turned[:, p, q, i, j] = x[:, down % shape[1], along % shape[2]]

        def drawn(index: tuple[int, ...], x: Array = x, where: Any = where) -> str:
            n, p, q, i, j, c = index
            marked = [place for (r, s, *_), place in where.items() if (r, s) == (p, q)]
            lines = drawing.plane(x[n, :, :, c], marked)
            return drawing.beside((f"window ({p}, {q}) of channel {c}", lines)) + (
                f"\nits element ({i}, {j}) is pixel {where[p, q, i, j]}"
            )

        mistakes = {
            "element (i, j) of a window is i rows down and j columns across": turned,
            "windows are stride pixels apart, pixels in a window dilation apart": plain,
            "stride moves the window, dilation the pixels in it, not the other way": swapped,
        }
        given = settings_of(what, (stride, (0, 0), dilation, 1)) | {"kernel": kernel[:2]}
        name = "view_windows(...)[n, p, q, i, j, c]"
        expect_elements(name, view, want, drawn, given=given, mistakes=mistakes)
        expect(
            "the view shares the image's memory",
            bool(np.shares_memory(view, x)),
            True,
            mistakes={"the windows were copied; a view has the image's memory": False},
        )


@pytest.mark.exercise("im2col")
def test_windows_as_rows_of_a_matrix() -> None:
    for what, shape, kernel, settings in SMALL:
        x, groups = counted(shape), settings[3]
        windows = Windows("conv2d", shape[1:3], kernel[:2], Geometry(*settings))
        want = rows_of(x, kernel, settings)
        count = shape[0] * windows.out[0] * windows.out[1]
        matrix = want.reshape(groups, count, -1)

        def drawn(index: tuple[int, ...], x: Array = x, matrix: Array = matrix) -> str:
            g, row, column = index
            numbers = " ".join(map(drawing.number, matrix[g, row]))
            return f"row {row} of group {g} is {numbers}; element {column} of it is wrong"

        last, by_channel = want.ndim - 1, want.ndim - 3
        mistakes = {
            "the elements of a row are in the order (i, j, channel), channels innermost": (
                np.moveaxis(want, last, by_channel).reshape(matrix.shape)
            ),
            "a group has neighbouring channels: split C into (groups, C/groups)": rows_of(
                np.moveaxis(x.reshape(*shape[:3], -1, groups), 4, 3).reshape(shape),
                kernel,
                settings,
            ).reshape(matrix.shape),
            "the groups come first: move their axis to the front": np.moveaxis(want, 0, 5).reshape(
                matrix.shape
            ),
        }
        rows = convolution._rows(x, windows)
        given = settings_of(what, settings) | {"x": x[0, :, :, 0], "kernel": kernel[:2]}
        unpadded = np.shape(rows)[1:2] < (count,) and settings[1] != (0, 0)
        if np.shape(rows) != matrix.shape and unpadded:
            mistakes["x must be padded first"] = rows
        expect_elements("_rows(x, windows)", rows, matrix, drawn, given=given, mistakes=mistakes)


@pytest.mark.exercise("conv2d")
def test_convolution() -> None:
    for what, shape, kernel, settings in SMALL:
        x, weight = counted(shape), counted(kernel)
        want = convolved(x, weight, *settings)
        n, rows, columns, o = want.shape
        groups = settings[3]
        product = want.reshape(n * rows * columns, groups, o // groups).transpose(1, 0, 2)
        mistakes = mistaken(x, weight, settings) | {
            "the groups are the first axis of the product: move them to the channels": (
                product.reshape(want.shape)
            ),
        }
        expect_elements(
            "conv2d(x, weight)",
            accelerated.conv2d(x, weight, Geometry(*settings)),
            want,
            draw_output(x, weight, settings),
            given=settings_of(what, settings),
            mistakes=mistakes,
        )


@pytest.mark.exercise("conv2d-weight-grad")
def test_gradient_of_the_weights() -> None:
    for what, shape, kernel, settings in SMALL:
        shape, kernel = (*shape[:1], *(min(s, 4) for s in shape[1:3]), shape[3]), kernel
        x, weight = counted(shape), counted(kernel)
        grad = counted(convolved(x, weight, *settings).shape)
        want = adjoint(grad, x, weight, settings, True)
        mistakes = {
            "the mean over the images is not taken here: it is a sum": want / len(x),
            "rows and columns of the kernel are exchanged": want.transpose(1, 0, 2, 3),
            "the kernel is not flipped": want[::-1, ::-1],
        }
        inner = want.shape[:3] + (settings[3], -1)
        apart = np.moveaxis(want.reshape(inner), 3, 0)
        mistakes["the groups are the first axis of the product: move them to the outputs"] = (
            apart.reshape(want.shape)
        )
        if settings[3] == 1:
            joined = want.reshape(-1, kernel[3])
            mistakes["R^T G has the order (i, j, channel), output"] = joined.T.reshape(want.shape)
        expect_elements(
            "conv2d_weight_grad(grad, x, ...)",
            accelerated.conv2d_weight_grad(grad, x, kernel, Geometry(*settings)),
            want,
            draw_weight_grad(grad, x, kernel, settings),
            given=settings_of(what, settings),
            mistakes=mistakes,
        )


@pytest.mark.exercise("conv2d-input-grad")
def test_gradient_of_the_image() -> None:
    for what, shape, kernel, settings in SMALL:
        shape = (*shape[:1], *(min(s, 4) for s in shape[1:3]), shape[3])
        x, weight = counted(shape), counted(kernel)
        grad = counted(convolved(x, weight, *settings).shape)
        want = adjoint(grad, x, weight, settings, False)
        mistakes = {
            "the kernel was flipped: each tap adds to the pixels that it has read": adjoint(
                grad, x, weight[::-1, ::-1], settings, False
            ),
            "a pixel is read by several taps: add to its gradient, do not store": adjoint(
                grad, x, weight, settings, False, last_tap
            ),
            "rows and columns of the kernel are exchanged": (
                adjoint(grad, x, weight.transpose(1, 0, 2, 3), settings, False)
                if kernel[0] == kernel[1]
                else want
            ),
        }
        got = accelerated.conv2d_input_grad(grad, weight, shape, Geometry(*settings))
        mistakes[
            "the taps are the last axes of the rows: bring them to the front by permute_dims"
        ] = unordered(grad, weight, shape, settings)
        if settings[1] != (0, 0) and np.shape(got) == padded(x, settings[1]).shape:
            mistakes["the padding must be cropped off again"] = got
        expect_elements(
            "conv2d_input_grad(grad, weight, ...)",
            got,
            want,
            draw_input_grad(grad, weight, shape, settings),
            given=settings_of(what, settings),
            mistakes=mistakes,
        )


@pytest.mark.exercise("conv2d-op-grad")
def test_gradients_of_the_op() -> None:
    x, weight = counted((2, 3, 4, 4)), counted((2, 3, 3, 3))
    grad = counted((2, 2, 4, 4))
    op = ops.convolution.Conv2d(Geometry(padding=(1, 1)))
    hwio = weight.transpose(2, 3, 1, 0)
    out = op(tensor(x), tensor(hwio), tensor([0.0, 0.0]))
    by_x, by_weight, *by_bias = out.op.gradient_as_tuple(tensor(grad), out)  # type: ignore[union-attr]
    settings = ((1, 1), (1, 1), (1, 1), 1)
    last = grad.transpose(0, 2, 3, 1), x.transpose(0, 2, 3, 1), hwio
    want_bias = grad.sum((0, 2, 3))
    expect(
        "gradient for bias (O,), with grad (2, 2, 4, 4)",
        by_bias[0] if by_bias else None,
        want_bias,
        mistakes={
            "bias was added to every pixel too: sum over axes 2 and 3": grad.sum(0),
            "channels are axis 1 of (N, C, H, W), not the last one": grad.sum((0, 1, 2)),
            "node has a third input, bias, which needs a gradient": None,
        },
    )
    want_weight = adjoint(*last, settings, True)
    want_x = adjoint(*last, settings, False).transpose(0, 3, 1, 2)
    swapped = {"the gradients are returned in the order of the inputs: x, weight, bias": want_x}
    expect("gradient for weight (KH, KW, C, O)", by_weight, want_weight, mistakes=swapped)
    expect("gradient for x (N, C, H, W)", by_x, want_x)
    out = op(tensor(x, requires_grad=False), tensor(hwio))
    parts = out.op.gradient_as_tuple(tensor(grad), out)  # type: ignore[union-attr]
    mistakes = {"there is no bias here, and so no gradient for it": 3}
    expect("number of gradients without bias", len(parts), 2, mistakes=mistakes)
    unwanted = {"x requires no gradient, which self._for_x knows": parts[0]}
    expect("gradient for x that requires none", parts[0], None, mistakes=unwanted)
