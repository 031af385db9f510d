"""Test that values no gradient reads are freed early, without changing gradients or later reads."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import Tensor, TensorTuple, autograd, nn, optim
from needle.autograd import find_topo_sort, refs
from needle.autograd import value as value_file
from needle.autograd.discarding import Discarded
from needle.autograd.graph import Op
from needle.backend_selection import array_api as xp
from needle.errors import GraphError
from tests.nn_devices import needs_kernels
from tests.op_row import OpRow
from tests.op_table import ROWS
from tests.ops.test_op_table import drawn, results, tensor, typed

pytestmark = pytest.mark.skipif(not refs.TELL, reason="reference counts are turned off")


@pytest.fixture(autouse=True)
def small_values_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make needle discard values of any size."""
    monkeypatch.setattr(value_file, "SMALLEST", 1)


def tensors(*shapes: tuple[int, ...], seed: int = 0) -> Iterator[Tensor]:
    random = np.random.default_rng(seed)
    return (Tensor(random.standard_normal(shape).astype("float32")) for shape in shapes)


def is_discarded(node: Any) -> bool:
    return isinstance(node.cached_data, Discarded)


class ReadError(Exception):
    """Raised if a gradient reads a discarded value."""


def unreadable(data: Any, device: Any) -> Any:
    """Return a stand-in with the array's layout, or a tuple of them; its data cannot be read."""
    if isinstance(data, tuple):
        return tuple(unreadable(each, device) for each in data)
    return Discarded(data, device)


def nodes_of(row: OpRow, device: Any) -> list[Any]:
    outputs = results(row.call(*[tensor(typed(host, "float32"), device) for host in drawn(row)]))
    recorded = [out for out in outputs if out.requires_grad]
    return [node for node in find_topo_sort(recorded) if node.op is not None]


def reads(node: Any, device: Any) -> set[int | str]:
    """Return the values that a node's gradient reads, found by removing one after another."""
    data = node.realize_cached_data()
    ones = [xp.ones_like(each) for each in (data if isinstance(data, tuple) else [data])]
    grads = [Tensor.make_const(one) for one in ones]
    grad = ndl.make_tuple(*grads) if isinstance(data, tuple) else grads[0]
    found: set[int | str] = set()
    for which, value in [*enumerate(node.inputs), ("result", node)]:
        kept = value.realize_cached_data()
        value.cached_data = unreadable(kept, device)
        try:
            node.op.gradient_as_tuple(grad, node)
        except (ReadError, AttributeError, TypeError):  # items of tuples raise the last two errors
            found.add(which)
        finally:
            value.cached_data = kept
    return found


def test_each_op_declares_what_its_gradient_reads(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Discarded, node: Any) -> Any:
        raise ReadError

    monkeypatch.setattr(value_file, "discard_inputs", lambda node: None)
    monkeypatch.setattr(Discarded, "of", refuse)
    found: dict[tuple[type[Op], frozenset[int | str]], set[int | str]] = defaultdict(set)
    for row in (row for row in ROWS if row.order):
        for node in nodes_of(row, device):
            values = [*range(len(node.inputs)), "result"]
            declared = frozenset(each for each in values if node.op.reads_value(each, node))
            found[type(node.op), declared] |= reads(node, device)
    assert found == {(op, declared): set(declared) for op, declared in found}


def test_a_value_between_two_ops_that_do_not_read_it_is_discarded() -> None:
    (a,) = tensors((3, 4))
    y = ndl.relu(a + 1)
    assert not is_discarded(y.inputs[0])  # discarded only once y is used
    z = y * 2
    assert is_discarded(y.inputs[0]) and not is_discarded(y)
    middle = y.inputs[0]
    assert (middle.shape, middle.dtype, middle.size) == ((3, 4), np.float32, 12)
    assert middle.device == a.device
    assert is_discarded(middle)  # reading its layout needs no data
    z.sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), 2 * (a.numpy() > -1))


def test_a_discarded_value_is_computed_again_for_who_reads_it() -> None:
    (a,) = tensors((3, 4))
    y = ndl.relu((a + 1) * 3.0 + 2)
    z = y.sum()
    inner = y.inputs[0].inputs[0]
    assert is_discarded(y.inputs[0])
    np.testing.assert_allclose(inner.numpy(), (a.numpy() + 1) * 3)
    np.testing.assert_allclose((inner * 1).numpy(), (a.numpy() + 1) * 3)
    z.backward()
    np.testing.assert_allclose(inner.numpy(), (a.numpy() + 1) * 3)
    np.testing.assert_array_equal(a.grad.numpy(), 3 * (y.numpy() > 0))


def test_a_value_with_a_reference_is_kept() -> None:
    (a,) = tensors((3, 4))
    x = a + 1
    kept = [a + 2]
    z = ndl.relu(x) * ndl.relu(kept[0])
    z.sum()
    assert not is_discarded(x) and not is_discarded(kept[0])


def test_a_value_of_two_ops_is_kept() -> None:
    (a,) = tensors((3, 4))
    s = a + 1
    y = ndl.relu(s) + s
    del s
    (y * 2).sum()
    assert not any(is_discarded(node) for node in y.inputs)


def test_a_value_is_discarded_after_the_function_that_computed_it() -> None:
    (a,) = tensors((3, 4))

    def block(x: Tensor) -> Tensor:
        y = x + 1  # still referenced while relu and the sum are computed
        return ndl.relu(y + x)

    out = block(a) * 2
    total = out.sum()
    relu = out.inputs[0]
    assert is_discarded(relu.inputs[0]) and is_discarded(relu.inputs[0].inputs[0])
    total.backward()
    np.testing.assert_array_equal(a.grad.numpy(), 4 * (2 * a.numpy() + 1 > 0))


def test_a_value_that_was_computed_late_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "LAZY_MODE", True)
    (a,) = tensors((3, 4))
    y = ndl.relu(a + 1)
    z = (y * 2).sum()
    z.backward()
    np.testing.assert_array_equal(a.grad.numpy(), 2 * (a.numpy() > -1))


class Block(nn.Module):
    """A residual block as programs write it, without fused layers."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + x)


def resnet() -> tuple[nn.Module, tuple[int, ...]]:
    return nn.Sequential(Block(3), Block(3), nn.Flatten(), nn.Linear(3 * 36, 4)), (5, 3, 6, 6)


def transformer() -> tuple[nn.Module, tuple[int, ...]]:
    return nn.TransformerLayer(8, 2, 4, 16, dropout=0.3), (3, 5, 8)


def lstm() -> tuple[nn.Module, tuple[int, ...]]:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.lstm(x)[0]

    return Last(), (6, 2, 4)


@pytest.mark.parametrize("make", [resnet, transformer, lstm])
@pytest.mark.parametrize("retain", [None, True, False])
def test_gradients_have_the_same_bits_as_without_discarding(
    make: Any, retain: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gradients() -> list[bytes]:
        np.random.seed(0)
        model, shape = make()
        (x,) = tensors(shape)
        loss = (model(x) * model(x)).sum()
        count.append(sum(map(is_discarded, find_topo_sort([loss]))))
        loss.backward(retain_graph=retain)
        return [value.grad.numpy().tobytes() for value in [x, *model.parameters()]]

    count: list[int] = []
    early = gradients()
    monkeypatch.setattr(value_file, "discard_inputs", lambda node: None)
    assert early == gradients()
    assert count[0] > 0 == count[1]


def test_a_residual_block_keeps_what_its_gradients_read() -> None:
    """The only large arrays kept are the results of convolutions (for batch norm) and of relus."""
    np.random.seed(0)
    (x,) = tensors((5, 3, 6, 6))
    out = nn.Sequential(Block(3), Block(3))(x) * 1
    kept = {
        id(node.cached_data): type(node.op).__name__
        for node in find_topo_sort([out])
        if isinstance(node, Tensor) and node.op is not None and node is not out
        if node.shape == x.shape and not is_discarded(node)
    }
    assert sorted(kept.values()) == ["Conv2d"] * 4 + ["ReLU"] * 4


def test_a_tuple_gives_up_the_item_that_was_discarded() -> None:
    np.random.seed(0)
    (x,) = tensors((5, 3, 6, 6))
    y = nn.ReLU()(nn.BatchNorm2d(3)(x * 2)) * 1
    y.sum()
    item = y.inputs[0].inputs[0]
    whole = item.inputs[0]
    assert isinstance(whole, TensorTuple)
    assert is_discarded(item) and isinstance(whole.cached_data[0], Discarded)
    assert whole.shape == ((5, 3, 6, 6), (3,), (3,))
    host = 2 * x.numpy().astype(np.float64)
    mean, var = host.mean((0, 2, 3), keepdims=True), host.var((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(item.numpy(), (host - mean) / np.sqrt(var + 1e-5), atol=1e-5)


def test_a_discarded_value_is_not_computed_from_changed_inputs() -> None:
    (a,) = tensors((3, 4))
    y = ndl.relu(a + 1)
    y.sum()
    a.data = a.data * 2
    with pytest.raises(GraphError, match="value of AddScalar needs its input 0.*changed since"):
        y.inputs[0].numpy()


def test_a_discarded_value_of_a_released_graph_says_so() -> None:
    (a,) = tensors((3, 4))
    y = ndl.relu(a + 1)
    z = y.sum()
    middle = y.inputs[0]
    z.backward(retain_graph=False)
    with pytest.raises(GraphError, match="keep a reference"):
        middle.numpy()


CHANGES_OF_GRADIENTS: dict[str, Callable[[Tensor], Any]] = {
    "none": lambda w: None,
    "clipped": lambda w: optim.clip_grad_norm([w], 0.1),
    "scaled": lambda w: setattr(w, "grad", w.grad * 0.5),
    "accumulated": lambda w: (w.sum() * 2).backward(accumulate=True),
}


@needs_kernels
@pytest.mark.parametrize("change", CHANGES_OF_GRADIENTS)
def test_a_list_of_outputs_does_not_keep_the_weights_of_each_step(change: str) -> None:
    w = ndl.Tensor(np.ones((64, 64), np.float32), device=ndl.cpu())
    optimizer = optim.SGD([w], lr=0.1)
    x = ndl.Tensor(np.ones((1, 64), np.float32), device=ndl.cpu(), requires_grad=False)
    kept, used = [], []
    for _ in range(8):
        kept.append(x @ w)
        kept.append((kept[-1] * kept[-1]).sum())
        kept[-1].backward()
        CHANGES_OF_GRADIENTS[change](w)
        optimizer.step()
        used.append(ndl.cpu().backend.memory_stats()["in_use"])
    assert used[-1] - used[2] < w.numpy().nbytes
