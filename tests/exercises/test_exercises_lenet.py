"""Part 7 of the course: pooling, batch norm, LeNet-5 and a block of ResNet."""

from typing import Any

import drawn_windows as drawing
import numpy as np
import pytest
from drawn_windows import expect_elements
from small_convolutions import (
    POOLS,
    counted,
    draw_pooled,
    padded,
    reads,
)
from test_exercises_images import RNG, Array
from toy_graph import tensor

from apps.course.compare import expect
from apps.models.resnet import BasicBlock
from apps.models.small import LeNet5
from needle import Tensor, accelerated, nn, ops
from tests.exercises.native_programs import expect_fine


@pytest.mark.exercise("max-pool")
def test_max_pooling() -> None:
    for what, shape, kernel, stride, padding in POOLS:
        x = -counted(shape)[:, ::-1, ::-1] if padding != (0, 0) else counted(shape)
        settings = (stride, padding, (1, 1), 1)
        where = reads(shape, (*kernel, 1, 1), settings)
        rows, columns = max(where)[0] + 1, max(where)[1] + 1

        def pooled(
            function: Any, value: float, at: Any = where, size: Any = (rows, columns)
        ) -> Any:
            image = padded(x, padding, value)  # noqa: B023
            out = np.empty((len(image), *size, image.shape[3]))
            for p, q in np.ndindex(*size):
                pixels = [image[:, r, c] for key, (r, c) in at.items() if key[:2] == (p, q)]
                out[:, p, q] = function(np.stack(pixels), axis=0)
            return out

        want = pooled(np.max, -np.inf)
        every = reads(shape, (*kernel, 1, 1), ((1, 1), padding, (1, 1), 1))
        steps = max(every)[0] + 1, max(every)[1] + 1
        mistakes = {
            "padding must never be the maximum: it is -infinity": pooled(np.max, 0.0),
            "the maximum of the window, not the mean": pooled(np.mean, 0.0),
            "the stride is not used": pooled(np.max, -np.inf, every, steps),
            "a channel of the output is the maximum of this channel alone": want.max(3),
        }
        got = accelerated.max_pool2d(x, kernel, stride, padding)
        given = {"case": what, "kernel": kernel, "stride": stride, "padding": padding}
        drawn = draw_pooled(x, where, padding)
        expect_elements("max_pool2d(x, ...)", got, want, drawn, given=given, mistakes=mistakes)
    x = counted((1, 2, 2, 2))
    x[0, 1, 0, 0] = np.nan
    out = accelerated.max_pool2d(x, (2, 2), (1, 1), (0, 0))
    mistakes = {"a NaN in the window is the maximum": np.array([[[[False, False]]]])}
    expect("is NaN", np.isnan(out), np.array([[[[True, False]]]]), mistakes=mistakes)


@pytest.mark.exercise("max-pool-grad")
def test_gradient_of_max_pooling() -> None:
    def check(what: str, x: Any, grad: Any, want: Any, kernel: Any, **more: Any) -> None:
        x, grad, want = (np.array(each, float)[None, :, :, None] for each in (x, grad, want))
        stride, padding = more.pop("stride", (1, 1)), more.pop("padding", (0, 0))
        where = reads(x.shape, (*kernel, 1, 1), (stride, padding, (1, 1), 1))

        def drawn(index: tuple[int, ...]) -> str:
            place = index[1] + padding[0], index[2] + padding[1]
            by = [key[:2] for key, pixel in where.items() if pixel == place]
            image = padded(x, padding)[0, :, :, 0]
            return drawing.beside(
                ("x, dots are padding", drawing.plane(image, [place], padding)),
                ("grad of its windows", drawing.plane(grad[0, :, :, 0], by)),
                ("the gradient", drawing.plane(want[0, :, :, 0])),
            )

        got = accelerated.max_pool2d_grad(grad, x, kernel, stride, padding)
        wrong = {key: np.array(v, float)[None, :, :, None] for key, v in more.items()}
        mistakes = {CAUSES_OF_POOLING[key]: value for key, value in wrong.items()}
        if padding != (0, 0) and np.shape(got) == padded(x, padding).shape:
            mistakes["the padding must be cropped off again"] = got
        given = {"case": what, "kernel": kernel, "stride": stride, "padding": padding}
        what = "max_pool2d_grad(grad, x, ...)"
        expect_elements(what, got, want, drawn, given=given, mistakes=mistakes)

    check(
        "one window",
        [[1, 2], [4, 3]],
        [[10]],
        [[0, 0], [10, 0]],
        (2, 2),
        every=[[10, 10], [10, 10]],
        mean=[[2.5, 2.5], [2.5, 2.5]],
        value=[[0, 0], [4, 0]],
        one=[[0, 0], [1, 0]],
    )
    check(
        "equal maxima",
        [[1, 3], [3, 2]],
        [[10]],
        [[0, 10], [0, 0]],
        (2, 2),
        ties=[[0, 10], [10, 0]],
        shared=[[0, 5], [5, 0]],
        last=[[0, 0], [10, 0]],
    )
    check(
        "windows that overlap",
        [[1, 3, 2], [0, 2, 1]],
        [[10, 20]],
        [[0, 30, 0], [0, 0, 0]],
        (2, 2),
        stored=[[0, 20, 0], [0, 0, 0]],
        kept=[[0, 10, 0], [0, 0, 0]],
    )
    check(
        "windows that overlap and have equal maxima",
        [[1, 3, 3, 0], [3, 2, 1, 5]],
        [[10, 20, 30]],
        [[0, 30, 0, 0], [0, 0, 0, 30]],
        (2, 2),
        ties=[[0, 30, 20, 0], [10, 0, 0, 30]],
        columns=[[0, 20, 0, 0], [10, 0, 0, 30]],
    )
    inf = np.inf
    check(
        "all values are -infinity, as is the padding",
        [[-inf, -inf], [-inf, -inf]],
        [[10]],
        [[10, 0], [0, 0]],
        (4, 4),
        padding=(1, 1),
        padded=[[0, 0], [0, 0]],
    )
    check(
        "padding, and all pixels below 0",
        [[-1, -2], [-3, -4]],
        [[1, 2], [3, 4]],
        [[1, 2], [3, 4]],
        (2, 2),
        stride=(2, 2),
        padding=(1, 1),
        padded=[[0, 0], [0, 0]],
    )
    check(
        "a NaN",
        [[5, 1], [np.nan, 2]],
        [[10]],
        [[0, 0], [10, 0]],
        (2, 2),
        nan=[[10, 0], [0, 0]],
        lost=[[0, 0], [0, 0]],
    )


CAUSES_OF_POOLING = {
    "every": "only the maximum of the window gets the gradient",
    "mean": "this is the gradient of a mean: only the maximum gets it, and all of it",
    "value": "the gradient of the window, not the value of the pixel",
    "one": "the mask was not multiplied by grad",
    "ties": "only the first maximum of a window in row-major order gets it",
    "shared": "the first maximum gets all of it: equal ones do not share it",
    "last": "the first maximum in row-major order gets it, not the last one",
    "columns": "the first maximum in row-major order gets it, not by columns",
    "stored": "windows overlap: add to the gradient of a pixel, do not store",
    "kept": "windows overlap: add to the gradient of a pixel, do not store it once",
    "padded": "a pixel gets it, never the padding",
    "nan": "a NaN in the window is the maximum",
    "lost": "a NaN equals nothing, itself included: no pixel got the gradient",
}


@pytest.mark.exercise("kernel-max-pool")
def test_max_pooling_in_cpp() -> None:
    expect_fine("course_images_test", "max_pool")


@pytest.mark.exercise("kernel-max-pool-grad")
def test_gradient_of_max_pooling_in_cpp() -> None:
    expect_fine("course_images_test", "max_pool_grad")


@pytest.mark.exercise("running-statistics")
def test_batch_norm_in_evaluation() -> None:
    layer = nn.BatchNorm2d(2, dtype="float64", momentum=0.25)
    running = tensor([1.0, 2.0], requires_grad=True)
    mixed = layer._mixed(running, tensor([3.0, -2.0]))
    expect(
        "running statistics (1, 2), observed (3, -2), momentum 0.25",
        mixed,
        np.array([1.5, 1.0]),
        mistakes={
            "momentum is the share of the observed value": np.array([2.5, -1.0]),
        },
    )
    linked = {"_mixed recorded its operations: make a constant of the result": True}
    expect("the statistics require a gradient", mixed.requires_grad, False, mistakes=linked)
    half = tensor([1.0, 2.0], requires_grad=False).detach()
    single = Tensor(half.numpy(), dtype="float32", device=half.device, requires_grad=False)
    dtypes = {"the result has the dtype of running": "float64"}
    got = str(layer._mixed(single, half).dtype)
    expect("dtype of float32 mixed with float64", got, "float32", mistakes=dtypes)
    layer.weight.data, layer.bias.data = tensor([2.0, 3.0]), tensor([0.5, -0.5])
    layer.running_mean, layer.running_var = tensor([1.0, -1.0]), tensor([4.0, 0.25])
    x = counted((1, 2, 2, 2))

    def normalised(mean: Any, var: Any, eps: float = 1e-5) -> Array:
        mean, var, weight, bias = (
            np.reshape(each, (1, 2, 1, 1))
            for each in (mean, var, layer.weight.numpy(), layer.bias.numpy())
        )
        return np.asarray((x - mean) / np.sqrt(var + eps) * weight + bias)

    mean, var = np.array([1.0, -1.0]), np.array([4.0, 0.25])
    want = normalised(mean, var)
    expect(
        "BatchNorm2d in evaluation",
        layer.eval()(tensor(x)),
        want,
        given={"x": x, "running_mean": mean, "running_var": var, "weight, bias": "2 3, 0.5 -0.5"},
        mistakes={
            "divided by the variance: its square root is missing": normalised(
                mean, (var + 1e-5) ** 2, 0
            ),
            "eps is added to the variance before the root": normalised(mean, var, 0.0),
        },
    )
    added = nn.BatchNorm2d(2, dtype="float64", activation="relu").eval()
    expect(
        "with activation='relu' and something added",
        added(tensor(x), tensor(x)),
        np.maximum(x / np.sqrt(1 + 1e-5) + x, 0),
    )


def _of(values: Tensor) -> Array:
    return values.numpy().reshape(1, 2, 1, 1)


@pytest.mark.exercise("lenet5")
def test_lenet_is_as_in_the_paper() -> None:
    model = LeNet5()
    names = [name for name, _ in model.named_parameters()]
    expect(
        "its trained layers",
        sorted({name.rpartition(".")[0] for name in names}),
        ["classifier.1", "classifier.3", "classifier.5", "features.0", "features.3"],
        given={
            "features": "convolution, relu, pool, convolution, relu, pool",
            "classifier": "flatten, linear, relu, linear, relu, linear",
        },
        mistakes={
            "a relu is missing between the linear layers": [
                *("classifier.1", "classifier.2", "classifier.3", "features.0", "features.3")
            ],
            "a relu is missing after the convolutions": [
                *("classifier.1", "classifier.3", "classifier.5", "features.0", "features.2")
            ],
        },
    )
    sizes = {name.rpartition(".")[0]: tuple(p.shape) for name, p in model.named_parameters()}
    sizes |= {name[:-7]: tuple(p.shape) for name, p in model.named_parameters() if p.ndim > 1}
    for name, shape, cause in (
        ("features.0", (5, 5, 1, 6), "(KH, KW, C, O) of 6 maps by 5 x 5"),
        ("features.3", (5, 5, 6, 16), "(KH, KW, C, O) of 16 maps by 5 x 5"),
        ("classifier.1", (400, 120), "without padding 32 becomes 28, 14, 10, 5: 16 * 5 * 5 inputs"),
        ("classifier.3", (120, 84), "linear to 84"),
        ("classifier.5", (84, 10), "num_classes outputs"),
    ):
        wrong = {cause: sizes[name]}
        expect(f"shape of the weight of {name}", sizes[name], shape, mistakes=wrong)
    x = images(1)
    want = logits_of(model, x, ops.max_pool2d)
    mistakes = {
        "max pooling, not the mean": logits_of(model, x, ops.avg_pool2d),
        "no relu after the last layer: logits may be negative": np.maximum(want.numpy(), 0),
    }
    expect("logits of images (2, 1, 32, 32)", model(x), want, mistakes=mistakes, rtol=1e-4)
    wide = LeNet5(in_channels=3, num_classes=7)
    for name, got, expected in (
        ("features.0", wide.features.modules[0].weight.shape[2], 3),
        ("classifier.5", wide.classifier.modules[5].weight.shape[1], 7),
    ):
        what = f"LeNet5(in_channels=3, num_classes=7): the arguments are not used in {name}"
        expect(f"channels of {name} of LeNet5(3, 7)", got, expected, mistakes={what: got})
    expect("logits of images (2, 3, 32, 32), 7 classes", wide(images(3)).shape, (2, 7))
    other = LeNet5(dtype="float64")
    dtypes = sorted({str(p.dtype) for p in other.parameters()})
    cause = {"every layer takes device and dtype": dtypes}
    expect("dtypes of LeNet5(dtype='float64')", dtypes, ["float64"], mistakes=cause)


def logits_of(model: LeNet5, x: Tensor, pool: Any) -> Tensor:
    """Return the logits that LeNet-5 has with the parameters of ``model``."""
    for layer in (model.features.modules[0], model.features.modules[3]):
        x = pool(ops.relu(layer(x)), 2)
    x = ops.reshape(x, (x.shape[0], -1))
    first, second, last = (model.classifier.modules[i] for i in (1, 3, 5))
    found: Tensor = last(ops.relu(second(ops.relu(first(x)))))
    return found


def images(channels: int) -> Tensor:
    return Tensor(
        RNG.standard_normal((2, channels, 32, 32)),
        dtype="float32",
        device=LeNet5().parameters()[0].device,
    )


@pytest.mark.exercise("basic-block")
def test_a_residual_block() -> None:
    same = BasicBlock(4, 4, 1, dtype="float64").eval()
    same.downsample = lambda x: x * 2
    check_block(same, counted((1, 4, 2, 2)), "BasicBlock(4, 4, stride 1), its shortcut doubles x")
    block = BasicBlock(4, 8, 2, dtype="float64").eval()
    check_block(block, RNG.standard_normal((2, 4, 6, 6)), "BasicBlock(4, 8, stride 2)")


def check_block(block: BasicBlock, pixels: Array, what: str) -> None:
    channels = block.bn2.dim
    plain = nn.BatchNorm2d(channels, dtype="float64").eval()
    for norm in (block.bn1, block.bn2, plain):
        norm.running_mean = tensor([0.25] * channels)
        norm.running_var = tensor([4.0] * channels)
    x = tensor(pixels)
    image, shortcut = block.conv1(x), block.downsample(x).numpy()
    inner = block.bn1(image).numpy()

    def second(y: Any) -> Array:
        return plain(block.conv2(tensor(y))).numpy()

    y = second(inner)
    mistakes = {
        "the shortcut is missing": np.maximum(y, 0),
        "bn2 has its relu: give it the shortcut, bn2(y, shortcut), to add before it": np.maximum(
            np.maximum(y, 0) + shortcut, 0
        ),
        "bn2 has its relu, and the shortcut was added after it": np.maximum(y, 0) + shortcut,
        "bn1 is missing": np.maximum(second(image.numpy()) + shortcut, 0),
        "the batch norm bn1 is missing, only its relu is there": np.maximum(
            second(np.maximum(image.numpy(), 0)) + shortcut, 0
        ),
        "bn2 is missing": np.maximum(block.conv2(tensor(inner)).numpy() + shortcut, 0),
    }
    if shortcut.shape == pixels.shape:
        mistakes["the shortcut is self.downsample(x), not x"] = np.maximum(y + pixels, 0)
    expect(what, block(x), np.maximum(y + shortcut, 0), mistakes=mistakes)
