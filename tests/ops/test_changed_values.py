"""Change values between the forward pass and backward: an error, never a wrong gradient.

For every row of the op table, each input and each result is changed after the forward pass. The
gradients are those of the unchanged values, or backward raises GraphError.
"""

import functools
import operator
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import Tensor, autograd, nn, optim
from needle.autograd import TensorOp
from needle.backend_selection import BACKEND
from needle.errors import GraphError
from tests.nn_devices import needs_kernels
from tests.op_row import OpRow
from tests.op_table import ROWS
from tests.ops.test_op_table import drawn, results, tensor, typed

NP = BACKEND == "np"


def assign(value: Tensor) -> None:
    """Assign other values through ``data``."""
    value.data = Tensor(value.numpy()[...] * 3 + 1, device=value.device, dtype=value.dtype)


def write(value: Tensor) -> None:
    """Write other values into the array."""
    value.cached_data[...] = np.asarray(value.numpy() * 3 + 1, value.dtype)


def write_to_a_view(value: Tensor) -> None:
    """Write one other value through a view of the array."""
    flat = value.data.realize_cached_data().reshape((-1,))
    flat[:1] = np.asarray(flat.numpy()[:1] * 3 + 1, value.dtype)


CHANGES: list[Callable[[Tensor], None]] = [assign] if NP else [assign, write, write_to_a_view]


def forward(row: OpRow, device: Any) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Return inputs, floating results, and a loss with gradients that need none of them."""
    inputs = [tensor(typed(host, "float64"), device) for host in drawn(row)]
    outputs = [out for out in results(row.call(*inputs)) if out.dtype.kind == "f"]
    sums = [(out * 0.5).sum() for out in outputs if out.requires_grad]
    return inputs, outputs, functools.reduce(operator.add, [each * each for each in sums])


def changes(row: OpRow, device: Any) -> Iterator[tuple[int, Callable[[Tensor], None]]]:
    """Yield each input and result (by number) with each way in which it can be changed."""
    inputs, outputs, _ = forward(row, device)
    for position, value in enumerate([*inputs, *outputs]):
        strides = () if NP else value.cached_data.strides
        repeats = any(step == 0 and n > 1 for step, n in zip(strides, value.shape))
        if value.size and value.dtype != "bool":
            yield from ((position, change) for change in (CHANGES[:1] if repeats else CHANGES))


def gradients(inputs: list[Tensor]) -> list[Any]:
    return [None if each.grad is None else each.grad.numpy() for each in inputs]


def assert_error_or(expected: list[Any], run: Callable[[], list[Any]]) -> None:
    try:
        found = run()
    except GraphError as error:
        assert "changed" in str(error) or "recomputes a released graph" in str(error)
        return
    for got, want in zip(found, expected, strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


DIFFERENTIABLE = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.order], ids=lambda row: row.id
)


@DIFFERENTIABLE
def test_first_gradients(row: OpRow, device: Any) -> None:
    def run(position: int = -1, change: Any = None) -> list[Any]:
        inputs, outputs, loss = forward(row, device)
        if change is not None:
            change([*inputs, *outputs][position])
        loss.backward()
        return gradients(inputs)

    expected = run()
    for case in changes(row, device):
        assert_error_or(expected, functools.partial(run, *case))


@DIFFERENTIABLE
@pytest.mark.parametrize("retain_graph", [None, True], ids=["released", "retained"])
def test_second_gradients(row: OpRow, retain_graph: Any, device: Any) -> None:
    """Test values that change before the first backward, or between the first and the second."""

    def run(early: bool, position: int = -1, change: Any = None) -> list[Any]:
        inputs, outputs, loss = forward(row, device)
        chosen = [*inputs, *outputs][position]
        if change is not None and early:
            change(chosen)
        loss.backward(retain_graph=retain_graph)
        if change is not None and not early:
            change(chosen)
        squares = [(each.grad * each.grad).sum() for each in inputs if each.grad is not None]
        for each in inputs:
            each.grad = None
        functools.reduce(operator.add, squares).backward()
        return gradients(inputs)

    if row.order < 2:
        return
    expected = run(False)
    for position, change in changes(row, device):
        if change is not write_to_a_view:
            for early in (False, True):
                assert_error_or(expected, functools.partial(run, early, position, change))


@pytest.mark.parametrize("declared", [(1,), MappingProxyType({0: (1,), 1: ()})])
def test_an_op_declares_what_may_not_change(declared: Any) -> None:
    """A gradient may read the shape of every value; without ``reads`` no value may change."""

    class Scaled(TensorOp):
        reads: Any = declared

        def compute(self, a: Any, b: Any) -> Any:
            return a * b

        def gradient(self, out_grad: Tensor, node: Tensor) -> Any:
            a, b = node.inputs
            assert a.shape == (2,) and a.dtype == "float32" and len(a) == 2 and a.size == 2
            return out_grad * b, out_grad.broadcast_to(a.shape)

    a, b = Tensor([1.0, 2.0], dtype="float32"), Tensor([3.0, 4.0], dtype="float32")
    y = Scaled()(a, b)
    a.data = Tensor(np.ones(2, "float32"))
    y.backward()
    np.testing.assert_array_equal(a.grad.numpy(), [3, 4])
    y = Scaled()(a, b)
    a.data = Tensor(np.ones(5, "float32"))
    with pytest.raises(GraphError, match=r"Scaled needs its input 0, of shape \(2,\), as in the"):
        y.backward()
    y = Scaled()(a[:2], b)
    b.data = b.data * 2
    with pytest.raises(GraphError, match=r"the gradient of Scaled needs its input 1, of shape \(2"):
        y.backward()
    Scaled.reads = None
    y = Scaled()(a[:2], b)
    y.data = y.data * 2
    with pytest.raises(GraphError, match="Scaled needs its result.* set `reads`"):
        y.backward()


# ---- what may change -----------------------------------------------------------------------------


def make(*shape: int, **options: Any) -> Tensor:
    host = np.random.default_rng(sum(shape)).uniform(1, 2, shape)
    return Tensor(host, dtype="float64", **options)


def test_values_that_no_gradient_needs_may_change() -> None:
    x, w, c = make(2, 3), make(3, 4), make(3, 4, requires_grad=False)
    cases = [
        (lambda: w + c, w, lambda: np.ones((3, 4))),
        (lambda: w * c, w, lambda: c.numpy()),
        (lambda: w / c, w, lambda: 1 / c.numpy()),
        (lambda: x @ c, x, lambda: np.broadcast_to(c.numpy().sum(1), (2, 3))),
        (lambda: w.sum() * 2, w, lambda: np.full((3, 4), 2.0)),
        (lambda: w.reshape((4, 3)).transpose() * 2, w, lambda: np.full((3, 4), 2.0)),
        (lambda: ndl.where(c, w, 1.0 * w), w, lambda: np.ones((3, 4))),
    ]
    for compute, value, expected in cases:
        loss = compute().sum()
        assign(value)
        loss.backward()
        np.testing.assert_allclose(value.grad.numpy(), expected())
    w = make(3, 4)
    expected_slope = np.exp(w.numpy())
    y = w.exp() + 1
    assign(y)  # the gradient of exp reads its result; that of + reads none
    y.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), expected_slope)


def test_a_matrix_product_needs_the_operand_whose_counterpart_requires_grad() -> None:
    x, w = make(2, 3, requires_grad=False), make(3, 4)
    y = (x @ w).sum()
    assign(w)
    y.backward()
    y = (x @ w).sum()
    assign(x)
    with pytest.raises(GraphError, match=r"MatMul needs its input 0, of shape \(2, 3\), as in the"):
        y.backward()


def test_direct_gradients_are_not_checked() -> None:
    """Programs of the course compare ``gradient_as_tuple`` with differences of live buffers."""
    x = make(3)
    y = x * x
    x.realize_cached_data().reshape((-1,))[:1] = 5.0
    (by_x, _) = y.op.gradient_as_tuple(make(3), y)
    np.testing.assert_allclose(by_x.numpy()[0], 5.0 * make(3).numpy()[0])


# ---- ways to change ------------------------------------------------------------------------------

OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: optim.Adam(p),
    "AdamW": lambda p: optim.AdamW(p),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_of_optimizers(name: str, dtype: str, device: Any) -> None:
    """Test interleaved updates: a loss's graph is alive while a step changes its parameters."""
    params = [Tensor(np.full((2, 2), i + 1.0), dtype=dtype, device=device) for i in range(3)]
    x = Tensor(np.ones((2, 2)), dtype=dtype, device=device)
    optimizer = OPTIMIZERS[name](params)
    for _ in range(2):
        waiting = ((x * params[0]) * params[1]).sum()
        functools.reduce(operator.add, [(p * p).sum() for p in params]).backward()
        optimizer.step()
        with pytest.raises(GraphError, match=rf"changed since by {name.split()[0]}\.step\(\)"):
            waiting.backward()
    before = [p.numpy() for p in params]
    ((x * params[0]) * params[1]).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), before[0] * before[1], rtol=1e-6)


@pytest.mark.parametrize(
    "make_layer", [lambda: nn.Linear(3, 4), lambda: nn.Conv2d(3, 4, 1)], ids=["Linear", "Conv2d"]
)
def test_a_step_between_two_losses_of_one_layer(make_layer: Any) -> None:
    """The gradient of a weight reads the samples; that of the samples is not needed."""
    layer = make_layer()
    shape = (2, 3) if isinstance(layer, nn.Linear) else (2, 3, 2, 2)
    x = Tensor(np.ones(shape), dtype="float32", requires_grad=False)
    optimizer = optim.SGD(layer.parameters(), lr=0.1)
    losses = [(layer(x) * scale).sum() for scale in (1.0, 2.0)]
    slopes = []
    for loss in losses:
        loss.backward()
        optimizer.step()
        slopes.append(layer.weight.grad.numpy())
    np.testing.assert_array_equal(slopes[1], 2 * slopes[0])


def test_a_retained_graph_after_a_step() -> None:
    w = make(3)
    optimizer = optim.SGD([w], lr=0.1)
    y = (w * w).sum()
    y.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(GraphError, match=r"SGD\.step"):
        y.backward()
    y = (w * w).sum()
    y.backward()
    optimizer.step()
    if not NP:  # the optimiser changed w in place: a loss does not keep the earlier weights
        with pytest.raises(GraphError, match="recomputes a released graph"):
            y.backward()
    y = (w * w * w).sum()
    y.backward()
    slope = (w.grad * w.grad).sum()
    expected = 36 * w.numpy() ** 3
    assign(w)
    slope.backward()
    np.testing.assert_allclose(w.grad.numpy(), expected)


@pytest.mark.parametrize("name", [*OPTIMIZERS, "data"])
def test_a_hidden_state_that_is_carried_over_steps(name: str, device: Any) -> None:
    """A gradient through earlier steps is computed at the weights that those steps used."""
    make_on = functools.partial(make, device=device)
    params = [make_on(3, 3), make_on(3, 4), make_on(4, 4)]

    def forward(state: Any, step: int, w: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return ndl.tanh(make_on(2, 3, requires_grad=False) * (0.1 * step) @ w @ u + state @ v * 0.1)

    optimizer = OPTIMIZERS[name](params) if name != "data" else None
    used: list[list[Tensor]] = []
    state = make_on(2, 4, requires_grad=False)
    for step in range(5):
        used.append([Tensor(p.numpy().copy(), device=device, dtype="float64") for p in params])
        unrolled = make_on(2, 4, requires_grad=False)
        for number, earlier in enumerate(used):
            unrolled = forward(unrolled, number, *earlier)
        (unrolled * unrolled).sum().backward()
        state = forward(state, step, *params)
        loss = (state * state).sum()
        loss.backward()
        for i, p in enumerate(params):
            parts = [weights[i].grad.numpy() for weights in used]
            np.testing.assert_allclose(p.grad.numpy(), sum(parts), rtol=1e-9, atol=1e-12)
            if optimizer is None:
                p.data = p.data - p.grad.data * 0.1
        if optimizer is not None:
            optimizer.step()


def test_a_change_before_the_first_of_two_derivatives() -> None:
    """+ needs no value, but the second derivative would recompute its result."""
    w, x = make(3), make(3)
    y = w + x
    z = (y * y * y).sum()
    assign(w)
    z.backward()
    with pytest.raises(GraphError, match="input of EWiseAdd was changed before the first backward"):
        x.grad.sum().backward()


def test_models() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    state = {name: value.numpy() * 2 for name, value in model.state_dict().items()}
    x = Tensor(np.ones((5, 3)), dtype="float32")
    y = model(x).sum()
    model.load_state_dict(state)
    with pytest.raises(GraphError, match="MatMul needs its input 1"):
        y.backward()
    average = optim.ExponentialAverage(model)
    average.update()
    model.load_state_dict(state)
    y = model(x).sum()
    with average.applied(), pytest.raises(GraphError, match="changed since"):
        y.backward()
    model(x).sum().backward()


def test_running_statistics() -> None:
    """A step replaces the running statistics between a forward pass and its backward."""
    norm = nn.BatchNorm1d(3)
    x = Tensor(np.random.default_rng(0).standard_normal((4, 3)), dtype="float32")
    norm.eval()
    loss = (norm(x) * norm(x)).sum()
    loss.backward(retain_graph=True)
    expected = [p.grad.numpy() for p in (x, norm.weight, norm.bias)]
    norm.train()
    trained = [(norm(x) * norm(x)).sum() for _ in range(2)]
    loss.backward()
    for p, want in zip((x, norm.weight, norm.bias), expected):
        np.testing.assert_array_equal(p.grad.numpy(), want)
    for each in trained:
        each.backward()


def test_indices_and_labels_may_change() -> None:
    a, index = make(4), np.array([0, 1, 1])
    picked = a[index].sum()
    index[:] = 3
    picked.backward()
    np.testing.assert_array_equal(a.grad.numpy(), [1, 2, 0, 0])
    ids = Tensor(np.array([0, 1, 1]), dtype="int64")
    losses = [a[ids].sum(), ndl.embedding(make(4, 2), ids).sum()]
    logits = make(3, 2)
    loss = ndl.cross_entropy(logits, ids)
    loss.backward(retain_graph=True)
    expected = logits.grad.numpy()
    ids.cached_data[...] = 0
    for each in losses:
        each.backward()
    np.testing.assert_array_equal(a.grad.numpy(), [1, 2, 0, 0])
    loss.backward()
    np.testing.assert_array_equal(logits.grad.numpy(), expected)


@pytest.mark.skipif(NP, reason="NumPy's arrays do not tell when they are written to")
def test_views_of_one_buffer(device: Any) -> None:
    def changed_by(change: Callable[[Tensor], Any]) -> bool:
        w = Tensor(np.ones((2, 3)), dtype="float64", device=device)
        y = (w * w).sum()
        change(w)
        try:
            y.backward()
        except GraphError as error:
            assert "a write into its array" in str(error)
            return True
        return False

    zero = np.zeros((2, 3))
    assert changed_by(lambda w: w.cached_data.__setitem__(..., 0.0))
    assert changed_by(lambda w: w.cached_data.fill(2.0))
    assert changed_by(lambda w: w.cached_data.__iadd__(1.0))
    assert changed_by(lambda w: w.data.cached_data.__setitem__(0, 1.0))
    assert changed_by(lambda w: w.detach().cached_data.T.__setitem__((0, 0), 1.0))
    assert changed_by(lambda w: w.cached_data.flat.__setitem__(2, 1.0))
    assert changed_by(lambda w: w.cached_data.T.flat.__setitem__(2, 1.0))
    assert changed_by(lambda w: w.cached_data.__setitem__(w.cached_data > 0, 2.0))
    assert changed_by(lambda w: w.cached_data.__setitem__(np.array([1]), zero[:1]))
    assert changed_by(lambda w: w.cached_data.assign(w.cached_data * 2))
    assert changed_by(lambda w: w.reshape((6,)).cached_data.__setitem__(0, 2.0))
    assert not changed_by(lambda w: w.cached_data.copy().__setitem__(..., 0.0))
    assert not changed_by(lambda w: np.array(w.numpy()).__setitem__(..., 0.0))
    assert not changed_by(lambda w: w.cached_data.__setitem__(..., 0.0) if False else None)


@pytest.mark.skipif(NP, reason="NumPy's arrays do not tell when they are written to")
def test_items_of_a_tuple() -> None:
    """Batch norm needs its mean and variance, not its result."""
    x, weight, bias = make(4, 3), make(3), make(3, requires_grad=False)
    y, mean, _ = ndl.batch_norm(x, weight, bias)
    loss = (y * 1.0).sum()
    y.cached_data[...] = 0.0
    loss.backward(retain_graph=True)
    mean.cached_data[...] = 0.0
    with pytest.raises(GraphError, match="BatchNorm needs its result, of a tuple"):
        loss.backward()
    parts = ndl.split(make(2, 3))
    parts[0].cached_data[...] = 0.0
    (parts[0] * 1.0).sum().backward()


def test_lazy_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "LAZY_MODE", True)
    a = make(2)
    y, z = a * 3, (a * a).exp()
    assign(a)
    with pytest.raises(GraphError, match="the value of MulScalar needs its input 0"):
        y.numpy()
    with pytest.raises(GraphError, match="the value of EWiseMul needs its input 0"):
        z.backward()
    b = a * 3
    c = b * 2
    assign(b)
    with pytest.raises(GraphError, match="the value of MulScalar needs its input 0"):
        c.numpy()
    (a * a).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), 2 * a.numpy())


@needs_kernels
def test_captured_steps() -> None:
    """A replay changes values as the step itself does, by the optimiser or by writing to them."""
    for write_in_place in (False, True):
        w = Tensor(np.ones(3), device=ndl.cpu(), dtype="float32")
        optimizer = optim.SGD([w], lr=0.1)

        def step(x: Tensor, w: Tensor = w, optimizer: Any = optimizer, put: Any = write_in_place):
            loss = (x * w).sum()
            loss.backward()
            if put:
                w.cached_data[...] = w.cached_data - w.grad.cached_data * 0.5
            else:
                optimizer.step()
            return loss

        captured = ndl.capture(step, state=[w, optimizer])
        x = Tensor(np.ones(3), device=ndl.cpu(), dtype="float32", requires_grad=False)
        for _ in range(3):
            waiting = (w * w).sum()
            captured(x)
            with pytest.raises(GraphError, match="changed since"):
                waiting.backward()
        assert captured.replays == 2
