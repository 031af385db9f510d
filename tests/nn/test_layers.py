"""Test layers: the course's numbers (order of draws, formulas), further options, error messages."""

import math

import numpy as np
import pytest

import needle as ndl
from needle import nn, ops
from needle.errors import DTypeError, ShapeError, UnknownNameError
from tests.nn_devices import NUMPY_MODE, close, tensor
from tests.nn_oracles import conv2d, cross_entropy


def randn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


# ---- linear and containers -----------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (2, 3), (0,), (1, 2, 2)])
def test_linear_takes_any_leading_axes(lead, device):
    layer = nn.Linear(4, 3, device=device)
    x = randn(*lead, 4)
    y = layer(tensor(x, device))
    expected = x @ layer.weight.numpy() + layer.bias.numpy().reshape(3)
    close(y, expected, atol=1e-5)
    y.sum().backward()
    rows = math.prod(lead)
    close(layer.bias.grad, np.full((1, 3), rows))


def test_containers(device):
    x = randn(2, 3, 4)
    t = tensor(x, device)
    assert nn.Identity()(t) is t
    close(nn.Flatten()(t), x.reshape(2, 12))
    close(nn.Flatten()(tensor(x[0, 0], device)), x[0, 0][:, None])
    close(nn.Flatten()(tensor(x[:0], device)), x[:0].reshape(0, 12))
    close(nn.Sequential(nn.ReLU(), nn.Tanh())(t), np.tanh(np.maximum(x, 0)))
    residual = nn.Residual(nn.ReLU())
    close(residual(t), np.maximum(x, 0) + x)
    assert isinstance(residual.fn, nn.ReLU)
    with pytest.raises(ShapeError, match="Flatten: the input must have a batch axis"):
        nn.Flatten()(tensor(1.0, device))


# ---- normalisation -------------------------------------------------------------------------------


def normalised(x, axes, eps=1e-5):
    x = x.astype("float64")
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


@pytest.mark.parametrize(
    ("layer", "shape", "axes"),
    [
        (nn.BatchNorm1d, (6, 3), (0,)),
        (nn.BatchNorm1d, (6, 3, 5), (0, 2)),
        (nn.BatchNorm2d, (4, 3, 5, 2), (0, 2, 3)),
    ],
)
def test_batch_norm_in_training_and_evaluation(layer, shape, axes, device):
    x = randn(*shape) * 2 + 1
    module = layer(3, eps=0.1, momentum=0.3, device=device)
    for name, value in [("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)]:
        close(getattr(module, name), np.full(3, value))
    along = (1, 3) + (1,) * (len(shape) - 2)
    weight, bias = randn(3, seed=1), randn(3, seed=2)
    module.weight.data, module.bias.data = tensor(weight, device), tensor(bias, device)
    y = module(tensor(x, device))
    w, b = weight.reshape(along), bias.reshape(along)
    close(y, normalised(x, axes, eps=0.1) * w + b, atol=2e-6)
    mean, var = 0.3 * x.mean(axes), 0.7 + 0.3 * x.var(axes)  # the biased variance
    close(module.running_mean, mean)
    close(module.running_var, var)
    assert module.running_mean.is_leaf() and not module.running_mean.requires_grad
    assert module.running_var.dtype == "float32"
    module.eval()
    expected = (x - mean.reshape(along)) / np.sqrt(var.reshape(along) + 0.1) * w + b
    close(module(tensor(x, device)), expected, atol=2e-6)
    close(module.running_mean, mean)  # evaluation leaves the statistics unchanged


def residual(*modules):
    return nn.Residual(nn.Sequential(*modules))


ALWAYS, TRAINING, NEVER = (True, False), (True,), ()
FUSIBLE = {
    "convolution": (lambda **o: nn.Conv2d(3, 4, 3, **o), (2, 3, 5, 4), ALWAYS),
    "without bias": (lambda **o: nn.Conv2d(3, 4, 3, bias=False, **o), (2, 3, 5, 4), ALWAYS),
    "the course's": (lambda **o: nn.Conv(3, 4, 3, **o), (2, 3, 5, 4), ALWAYS),
    "linear": (lambda **o: nn.Linear(3, 5, **o), (2, 4, 3), ALWAYS),
    "batch norm of columns": (lambda **o: nn.BatchNorm1d(3, **o), (5, 3), TRAINING),
    "batch norm of images": (lambda **o: nn.BatchNorm2d(3, **o), (4, 3, 5, 2), TRAINING),
    "residual": (
        lambda **o: residual(nn.Linear(3, 3, **o), nn.ReLU(), nn.BatchNorm1d(3, **o)),
        (5, 3),
        TRAINING,
    ),
    "residual of batch norm": (lambda **o: residual(nn.BatchNorm1d(3, **o)), (5, 3), TRAINING),
    "residual of batch norm with relu": (
        lambda **o: residual(nn.BatchNorm1d(3, activation="relu", **o)),
        (5, 3),
        NEVER,
    ),
    "residual that broadcasts": (
        lambda **o: residual(nn.Conv2d(1, 3, 1, **o), nn.BatchNorm2d(3, **o)),
        (2, 1, 4, 4),
        NEVER,
    ),
    "residual of linear": (lambda **o: residual(nn.Linear(3, 3, **o)), (5, 3), NEVER),
    "residual, no sequential": (lambda **o: nn.Residual(nn.BatchNorm1d(3, **o)), (5, 3), NEVER),
    "residual of nothing": (lambda **o: residual(), (5, 3), NEVER),
}


@pytest.mark.parametrize("kind", FUSIBLE)
@pytest.mark.parametrize("training", [True, False])
def test_a_layer_and_relu_in_a_sequential_are_one_step_of_the_same_values(kind, training, device):
    make, shape, modes = FUSIBLE[kind]
    found = []
    for fused in (True, False):
        np.random.seed(1)
        model = nn.Sequential(make(device=device), nn.ReLU())
        model.train() if training else model.eval()
        x = tensor(randn(*shape), device)
        y = model(x) if fused else model[1].forward(model[0].forward(x))
        assert (type(y.op) is not ops.ReLU) is (fused and training in modes)
        (y * tensor(randn(*y.shape, seed=4), device)).sum().backward()
        statistics = [value for name, value in model.state_dict().items() if "running" in name]
        found.append((y, x.grad, *(p.grad for p in model.parameters()), *statistics))
        assert len(model.modules) == 2
        assert all(name.startswith("0.") for name, _ in model.named_parameters())
    np.testing.assert_array_equal(found[0][0].numpy(), found[1][0].numpy())
    for ours, wanted in zip(*found, strict=True):
        close(ours, wanted.numpy(), atol=2e-5)


class OwnForward(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class OwnCall(nn.Linear):
    def __call__(self, x):
        return super().__call__(x) * 2


class OwnReLU(nn.ReLU):
    def forward(self, x):
        return x + 1


def test_who_watches_or_changes_a_layer_sees_it_called_by_itself(device, monkeypatch):
    x = tensor(randn(4, 3), device)
    linear, relu = nn.Linear(3, 3, device=device), nn.ReLU()

    def kind(*modules):
        return type(nn.Sequential(*modules)(x).op)

    assert kind(linear, relu) is ops.elementwise.BiasReLU
    for other in (OwnForward(3, 3, device=device), OwnCall(3, 3, device=device)):
        assert kind(other, relu) is ops.ReLU
    assert kind(linear, OwnReLU()) is ops.AddScalar
    for watched in (linear, relu):
        watched.forward = watched.forward  # set on the instance, as a profiler does
        assert kind(linear, relu) is ops.ReLU
        del watched.forward
    with monkeypatch.context() as patch:
        patch.setattr(nn.Linear, "forward", lambda self, y: y)
        assert kind(linear, relu) is ops.ReLU
    with monkeypatch.context() as patch:
        plain = nn.Module.__call__
        patch.setattr(nn.Module, "__call__", lambda self, *args: plain(self, *args))
        assert kind(linear, relu) is ops.ReLU
    assert kind(linear, ops.relu) is ops.ReLU  # a plain function may follow a layer
    assert kind(linear, relu) is ops.elementwise.BiasReLU


def test_batch_norm_refuses_unknown_options():
    with pytest.raises(UnknownNameError, match="BatchNorm2d: activation must be None or 'relu'"):
        nn.BatchNorm2d(3, activation="gelu")
    x = tensor(np.zeros((2, 3, 1, 1)))
    with pytest.raises(ValueError, match="BatchNorm2d: a second input requires activation='relu'"):
        nn.BatchNorm2d(3)(x, x)


# ---- dropout and losses --------------------------------------------------------------------------


def test_dropout_draws_one_mask_and_scales(device):
    x = randn(20, 10)
    layer = nn.Dropout(0.25)
    np.random.seed(7)
    y = layer(tensor(x, device))
    after = np.random.rand()
    np.random.seed(7)
    mask = np.random.rand(20, 10) <= 0.75
    close(y, x * mask / 0.75)
    assert after == np.random.rand()  # dropout made exactly one draw of this shape
    layer.eval()
    close(layer(tensor(x, device)), x, rtol=0, atol=0)
    np.random.seed(7)
    nn.Dropout(0.0)(tensor(x[:1], device))  # p = 0 draws a mask as well
    assert np.random.rand() == np.random.RandomState(7).rand(11)[10]
    with pytest.raises(ValueError, match=r"Dropout: p must be in \[0, 1\], got 1.5"):
        nn.Dropout(1.5)


def test_dropout2d_draws_one_number_a_channel(device):
    x = randn(6, 5, 3, 4)
    layer = nn.Dropout2d(0.25)
    np.random.seed(7)
    y, after = layer(tensor(x, device)), np.random.rand()
    np.random.seed(7)
    mask = np.random.rand(6, 5, 1, 1) <= 0.75
    assert 0 < mask.sum() < mask.size
    close(y, x * mask / 0.75)
    assert after == np.random.rand()
    close(layer.eval()(tensor(x, device)), x, rtol=0, atol=0)
    with pytest.raises(ShapeError, match=r"Dropout2d: the input must be \(N, C, H, W\), got"):
        layer(tensor(x[0], device))


@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout2d])
def test_dropout_of_everything_gives_zeros_and_no_gradient(kind, device):
    x = tensor(np.full((2, 3, 2, 2), np.inf), device)
    layer = kind(1.0)
    y = layer(x)
    y.sum().backward()
    for zeros in (y, x.grad):
        np.testing.assert_array_equal(zeros.numpy(), np.zeros((2, 3, 2, 2)))
    close(layer.eval()(x), x.numpy())


@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout2d])
@pytest.mark.parametrize("p", [0.5, 1.0])
def test_dropout_takes_arrays_and_no_lists(kind, p):
    y = kind(p)(np.ones((2, 3, 2, 2), np.float32)).numpy()
    assert y.shape == (2, 3, 2, 2) and set(y.reshape(-1)) <= {0, 2}
    with pytest.raises(TypeError, match="the input must be a Tensor or an array, got list"):
        kind(p)([1.0])


def test_softmax_loss_takes_lists_and_arrays(device):
    logits = tensor(randn(3, 4), device)
    expected = nn.SoftmaxLoss()(logits, tensor([2, 0, 1], device, "int64")).item()
    for labels in ([2, 0, 1], np.array([2, 0, 1]), np.array([2.0, 0.0, 1.0])):
        assert nn.SoftmaxLoss()(logits, labels).item() == expected


def test_softmax_loss_takes_float_labels(device):
    logits, labels = randn(6, 4), np.array([0, 3, 1, 2, 2, 0])
    expected = cross_entropy(logits, labels).mean()
    for dtype in ("float32", "int64"):
        loss = nn.SoftmaxLoss()(tensor(logits, device), tensor(labels, device, dtype))
        assert loss.numpy().reshape(-1) == pytest.approx([expected], rel=1e-6)
    with pytest.raises(DTypeError, match=r"SoftmaxLoss: labels must be whole numbers, got 0\.5"):
        nn.SoftmaxLoss()(tensor(logits[:1], device), tensor([0.5], device))
    with pytest.raises(DTypeError, match="got nan"):
        nn.SoftmaxLoss()(tensor(logits[:1], device), tensor([math.nan], device))


def test_cross_entropy_refuses_bad_options():
    logits, labels = tensor(np.zeros((2, 4))), [0, 1]
    with pytest.raises(
        ValueError, match=r"reduction must be 'mean', 'sum' or 'none', got 'average'"
    ):
        ndl.cross_entropy(logits, labels, reduction="average")
    with pytest.raises(ValueError, match=r"label_smoothing must be in \[0, 1\], got 2"):
        ndl.cross_entropy(logits, labels, label_smoothing=2)
    with pytest.raises(ShapeError, match=r"logits must be \(N, C\), .* got shape \(\)"):
        ndl.cross_entropy(tensor(np.zeros(())), labels)
    with pytest.raises(ValueError, match="class weights are weight="):
        nn.CrossEntropyLoss(tensor(np.ones(4)))(logits, labels)


# ---- images --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2), (5, 4), (2, 1)])
def test_conv_of_the_course(kernel, stride, device):
    layer = nn.Conv(3, 4, kernel, stride=stride, device=device)
    x, weight = randn(2, 3, 8, 7), layer.weight.numpy().transpose(3, 2, 0, 1)
    y = layer(tensor(x, device))
    close(y, conv2d(x, weight, layer.bias.numpy(), stride, kernel // 2), rtol=1e-4, atol=1e-5)
    y.sum().backward()
    assert layer.weight.grad.shape == layer.weight.shape and layer.bias.grad.shape == (4,)


def test_conv_takes_tuples_by_their_first_item_and_keyword_options():
    layer = nn.Conv(4, 6, (3, 3), (2, 2), bias=False)
    assert layer.kernel_size == (3, 3) and layer.stride == (2, 2) and layer.bias is None
    layer = nn.Conv(4, 6, 3, padding=0, dilation=2, groups=2)
    assert layer.weight.shape == (3, 3, 2, 6) and layer.padding == (0, 0)
    assert nn.Conv(1, 1, 3, dilation=2).padding == (2, 2)  # the default keeps the image's size
    x = tensor(randn(1, 4, 9, 9), layer.weight.device)
    assert layer(x).shape == (1, 6, 5, 5)


def test_float32_stays_float32_through_a_training_step(device):
    model = nn.Sequential(
        nn.Conv(1, 2, 3, device=device),
        nn.BatchNorm2d(2, device=device),
        nn.Dropout(0.1),
        nn.GELU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(8, device=device),
        nn.Linear(8, 3, device=device),
    )
    for optimizer in (ndl.optim.SGD, ndl.optim.Adam):
        step = optimizer(model.parameters(), lr=np.float64(0.1), weight_decay=np.float64(0.1))
        loss = nn.SoftmaxLoss()(model(tensor(randn(2, 1, 4, 4), device)), tensor([0, 2]))
        loss.backward()
        step.clip_grad_norm(0.1)
        step.step()
    kept = [loss, *model.parameters(), *model.buffers()]
    assert {str(t.dtype) for t in kept} == {"float32"}
    assert NUMPY_MODE or model.parameters()[0].device == device


def test_float64_input_leaves_float32_state_float32(device):
    """In NumPy mode, a program that passes plain NumPy arrays has float64 inputs."""
    model = nn.Sequential(
        nn.Conv(1, 2, 3, device=device),
        nn.BatchNorm2d(2, device=device),
        nn.Flatten(),
        nn.Linear(32, 3, device=device),
        nn.BatchNorm1d(3, device=device),
        nn.LayerNorm(3, device=device),
    )
    optimizer = ndl.optim.Adam(model.parameters())
    loss = nn.SoftmaxLoss()(model(tensor(randn(2, 1, 4, 4), device, "float64")), tensor([0, 2]))
    loss.backward()
    optimizer.step()
    assert {str(t.dtype) for t in [*model.parameters(), *model.buffers()]} == {"float32"}
