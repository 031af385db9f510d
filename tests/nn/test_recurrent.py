"""Test RNN, LSTM, their cells and Embedding: draws, formulas, errors."""

from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import init, nn
from needle.errors import DTypeError, IndexingError, ShapeError
from tests.nn_devices import close, tensor

CELLS: dict[str, tuple[Any, int]] = {
    "tanh": (lambda *sizes, **o: nn.RNNCell(*sizes, **o), 1),
    "relu": (lambda *sizes, **o: nn.RNNCell(*sizes, nonlinearity="relu", **o), 1),
    "lstm": (lambda *sizes, **o: nn.LSTMCell(*sizes, **o), 4),
}
LAYERS: dict[str, Any] = {
    "tanh": lambda *sizes, **o: nn.RNN(*sizes, **o),
    "relu": lambda *sizes, **o: nn.RNN(*sizes, nonlinearity="relu", **o),
    "lstm": lambda *sizes, **o: nn.LSTM(*sizes, **o),
}


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def cells_of(layer: Any) -> Any:
    return layer.lstm_cells if isinstance(layer, nn.LSTM) else layer.rnn_cells


def states_of(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def step_by_hand(kind: str, weights: list[Any], x: Any, state: list[Any]) -> list[Any]:
    """Return one step in float64; without biases the list of weights has two entries."""
    gates = x @ weights[0] + state[0] @ weights[1] + sum(weights[2:])
    if kind != "lstm":
        return [np.tanh(gates) if kind == "tanh" else np.maximum(gates, 0)]
    i, f, g, o = np.split(gates, 4, axis=1)
    c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
    return [sigmoid(o) * np.tanh(c), c]


def values_of(cell: Any) -> list[Any]:
    return [p.numpy().astype("float64") for p in cell.parameters()]


@pytest.mark.parametrize("kind", CELLS)
def test_cells_draw_in_the_order_of_the_course(kind: str, device: Any) -> None:
    make, gates = CELLS[kind]
    np.random.seed(3)
    cell = make(3, 5, device=device)
    np.random.seed(3)
    bound, width = 1 / np.sqrt(5), 5 * gates
    for shape, got in zip([(3, width), (5, width), (width,), (width,)], cell.parameters()):
        close(got, np.random.rand(*shape) * 2 * bound - bound)
    assert [name for name, _ in cell.named_parameters()] == ["W_ih", "W_hh", "bias_ih", "bias_hh"]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("kind", LAYERS)
def test_sequences_are_cells_one_after_another(
    kind: str, layers: int, given: bool, device: Any
) -> None:
    layer = LAYERS[kind](3, 5, layers, device=device)
    x, count = normal(4, 2, 3), 2 if kind == "lstm" else 1
    starts = [normal(layers, 2, 5, seed=i + 1) * given for i in range(count)]
    tensors = tuple(tensor(each, device) for each in starts)
    out, last = layer(tensor(x, device), (tensors if count == 2 else tensors[0]) if given else None)
    expected = list(x)
    for k, cell in enumerate(cells_of(layer)):
        state, weights = [each[k] for each in starts], values_of(cell)
        for t, row in enumerate(expected):
            state = step_by_hand(kind, weights, row, state)
            expected[t] = state[0]
        for got, wanted in zip(states_of(last), state, strict=True):
            close(got.numpy()[k], wanted, atol=1e-5)
    close(out, np.stack(expected), atol=1e-5)
    out.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    assert len(layer.parameters()) == 4 * layers


def test_training_through_a_carried_state(device: Any) -> None:
    """Training on chunks that start from the detached h equals training on the whole sequence."""
    layer = nn.LSTM(3, 4, 2, device=device)
    x = normal(6, 2, 3)
    whole, (h_whole, c_whole) = layer(tensor(x, device))
    first, (h, c) = layer(tensor(x[:2], device))
    second, (h, c) = layer(tensor(x[2:], device), (h.detach(), c.detach()))
    close(ndl.ops.concatenate((first, second)), whole.numpy())
    close(h, h_whole.numpy())
    close(c, c_whole.numpy())


def test_outputs_beyond_the_lengths_are_0(device: Any) -> None:
    layer, x = nn.LSTM(3, 4, device=device), tensor(normal(5, 2, 3), device)
    out, (h, _) = layer(x, lengths=[5, 2])
    whole = layer(x)[0].numpy()
    close(out[:, 0], whole[:, 0])
    close(out[:, 1], np.where(np.arange(5)[:, None] < 2, whole[:, 1], 0.0))
    close(h[0, 1], whole[1, 1])


def test_dropout_acts_between_the_layers_in_training(device: Any) -> None:
    layer = nn.GRU(3, 4, 2, device=device, dropout=0.5)
    first, second = nn.GRU(3, 4, device=device), nn.GRU(4, 4, device=device)
    first.gru_cells, second.gru_cells = layer.gru_cells[:1], layer.gru_cells[1:]
    x = tensor(normal(5, 2, 3), device)
    for training in (True, False):
        drop = nn.Dropout(0.5).train(training)
        np.random.seed(4)
        wanted = second(drop(first(x)[0]))[0]
        np.random.seed(4)
        close(layer.train(training)(x)[0], wanted.numpy())


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_embedding_is_the_product_with_one_hot_vectors(dtype: str, device: Any) -> None:
    np.random.seed(5)
    layer = nn.Embedding(7, 3, device=device)
    np.random.seed(5)
    close(layer.weight, np.random.randn(7, 3))
    ids = np.array([[0, 6, 2], [2, 2, 5]])
    slope = normal(2, 3, 3).astype("float32")
    out = layer(tensor(ids, device, dtype))
    one_hot = np.eye(7)[ids]
    close(out, one_hot @ layer.weight.numpy())
    (out * tensor(slope, device)).sum().backward()
    close(layer.weight.grad, np.einsum("tbv,tbe->ve", one_hot, slope), atol=1e-5)
    assert repr(layer) == "Embedding(7, 3)  # 21 parameters"


@pytest.mark.parametrize("padding_idx", [2, -5])
def test_a_padding_row_is_zeros_and_gets_no_gradient(padding_idx: int, device: Any) -> None:
    np.random.seed(4)
    layer = nn.Embedding(7, 3, device=device, padding_idx=padding_idx)
    np.random.seed(4)
    weight = np.random.randn(7, 3).astype("float32")
    weight[2] = 0
    np.testing.assert_array_equal(layer.weight.numpy(), weight)
    ids, slopes = np.array([[2, 1, 2], [6, 6, 0]]), np.arange(18.0).reshape(2, 3, 3)
    weight = np.arange(21.0).reshape(7, 3)  # row padding_idx is not zero here
    layer.load_state_dict({"weight": weight})
    y = layer(ids)
    np.testing.assert_array_equal(y.numpy(), weight[ids])
    (y * y * ndl.Tensor(slopes, device=device)).sum().backward()
    wanted = np.zeros((7, 3))
    np.add.at(wanted, ids, 2 * slopes * weight[ids])
    wanted[2] = 0
    np.testing.assert_array_equal(layer.weight.grad.numpy(), wanted)
    again = ndl.grad(lambda w: ndl.grad(lambda v: (ndl.embedding(v, ids, 2) ** 3).sum())(w).sum())
    twice = again(ndl.Tensor(weight, device=device)).numpy()
    counts = np.array([1, 1, 0, 0, 0, 0, 2])[:, None]
    np.testing.assert_allclose(twice, 6 * weight * counts)
    assert repr(layer) == "Embedding(7, 3, padding_idx=2)  # 21 parameters"


def test_a_padding_row_must_exist() -> None:
    for make in (
        lambda: nn.Embedding(4, 2, padding_idx=4),
        lambda: ndl.embedding(init.zeros(4, 2), [0], -5),
    ):
        with pytest.raises(IndexingError, match=r"mbedding: padding_idx must be in \[-4, 4\), got"):
            make()


def test_embedding_refuses_invalid_ids() -> None:
    layer = nn.Embedding(4, 2)
    with pytest.raises(DTypeError, match=r"Embedding: ids must be whole numbers, got 0\.5"):
        layer(tensor([0.5]))
    with pytest.raises(ShapeError, match=r"embedding: ids must be in \[0, 4\), got 4"):
        layer(tensor([4.0]))
