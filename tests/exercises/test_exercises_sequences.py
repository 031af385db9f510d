"""Part 10 of the course: recurrent cells, their steps over a sequence, attention."""

import math
from typing import Any

import numpy as np
import pytest
from by_hand import softmax_of
from toy_graph import DEVICE, tensor

from apps.course.compare import expect
from needle import Tensor
from needle.nn import AttentionLayer, LSTMCell, MultiHeadAttention, RNNCell
from needle.nn.attention import causal_mask
from needle.nn.recurrent import _run_cell

Array = np.ndarray[Any, Any]


def constant(values: Any) -> Tensor:
    return tensor(values, requires_grad=False)


def with_weights(cell: Any, **weights: Any) -> Any:
    """Return the cell with these parameters."""
    for name, values in weights.items():
        setattr(cell, name, constant(values))
    return cell


# ---- cells ---------------------------------------------------------------------------------------

X, H = np.array([[1.0, 2.0]]), np.array([[1.0, -1.0]])
W_IH, W_HH = np.array([[1.0, 0.0], [2.0, 1.0]]), np.array([[0.0, 3.0], [1.0, 1.0]])
B_IH, B_HH = np.array([1.0, 0.0]), np.array([0.0, -9.0])


def rnn_cell(nonlinearity: str) -> RNNCell:
    cell = RNNCell(2, 2, nonlinearity=nonlinearity, device=DEVICE, dtype="float64")
    made: RNNCell = with_weights(cell, W_ih=W_IH, W_hh=W_HH, bias_ih=B_IH, bias_hh=B_HH)
    return made


@pytest.mark.exercise("rnn-cell")
def test_one_step_of_an_rnn() -> None:
    given = {"X": X, "h": H, "W_ih": W_IH, "W_hh": W_HH, "bias_ih": B_IH, "bias_hh": B_HH}
    cell = rnn_cell("relu")
    from_x = X @ W_IH + B_IH
    expect(
        "from_inputs(X)",
        cell.from_inputs(constant(X)),
        from_x,
        given=given,
        mistakes={
            "W_ih is transposed": X @ W_IH.T + B_IH,
        },
    )
    gates = from_x + H @ W_HH + B_HH
    expect(
        "gate_inputs(from_inputs(X), h)",
        cell.gate_inputs(constant(from_x), constant(H)),
        gates,
        given={**given, "from_inputs(X)": from_x},
        mistakes={
            "the bias of the state is missing": from_x + H @ W_HH,
            "the contribution of the inputs is missing": H @ W_HH + B_HH,
            "W_hh is transposed": from_x + H @ W_HH.T + B_HH,
        },
    )
    state = cell.advance(constant(from_x), (constant(H),))
    expect("the number of tensors in the state of advance", len(state), 1)
    expect(
        "h' with nonlinearity='relu'",
        state[0],
        np.maximum(gates, 0.0),
        given={**given, "the gates": gates},
        mistakes={
            "no nonlinearity": gates,
            "tanh, whatever self.nonlinearity says": np.tanh(gates),
        },
    )


@pytest.mark.exercise("rnn-cell")
def test_a_cell_called_without_a_state() -> None:
    got = rnn_cell("tanh")(constant(X))
    gates = X @ W_IH + B_IH + B_HH
    mistakes = {
        "no nonlinearity": gates,
    }
    given = {"X": X, "the gates": gates}
    what = "cell(X), h = 0, nonlinearity='tanh'"
    expect(what, got, np.tanh(gates), given=given, mistakes=mistakes)


def sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


GATES = np.array([[1.0, -1.0, 2.0, 0.5]])
"""Pre-activations of the gates i, f, g, o of one unit."""


@pytest.mark.exercise("lstm-cell")
def test_one_step_of_an_lstm() -> None:
    nothing = {"W_hh": np.zeros((1, 4)), "bias_hh": np.zeros(4)}
    cell = with_weights(LSTMCell(1, 1, device=DEVICE, dtype="float64"), **nothing)
    c = np.array([[3.0]])
    state = cell.advance(constant(GATES), (constant([[9.0]]), constant(c)))
    expect("the number of tensors in the state", len(state), 2)

    def step(i: Array, f: Array, g: Array, o: Array) -> tuple[Array, Array]:
        new = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(new), new

    i, f, g, o = np.split(GATES, 4, 1)
    h, new = step(i, f, g, o)
    expect(
        "c'",
        state[1],
        new,
        given={"i, f, g, o": GATES[0], "c": 3.0},
        mistakes={
            "the order of the gates is i, f, g, o": step(f, i, g, o)[1],
            "g is a candidate in -1 ... 1: tanh, not sigmoid": sigmoid(f) * c
            + sigmoid(i) * sigmoid(g),
        },
    )
    expect(
        "h'",
        state[0],
        h,
        given={"o": 0.5, "c'": new},
        mistakes={
            "h' uses the new c, not the old one": sigmoid(o) * np.tanh(c),
        },
    )


@pytest.mark.exercise("lstm-cell")
def test_the_state_enters_the_gates_and_a_projection_leaves() -> None:
    weights = np.array([[1.0, 2.0, 3.0, 4.0]])
    cell = with_weights(
        LSTMCell(1, 1, device=DEVICE, dtype="float64"), W_hh=weights, bias_hh=np.zeros(4)
    )
    state = constant([[1.0]]), constant([[0.0]])
    c = sigmoid(weights[:, :1] + 1) * np.tanh(weights[:, 2:3] + 2)
    expect(
        "c' with h = 1, c = 0",
        cell.advance(constant(GATES), state)[1],
        c,
        given={"from_inputs(X)": GATES, "W_hh": weights},
        mistakes={"h does not enter the gates": sigmoid(GATES[:, :1]) * np.tanh(GATES[:, 2:3])},
    )
    projected = LSTMCell(1, 3, device=DEVICE, dtype="float64", proj_size=2)
    state = constant(np.zeros((1, 2))), constant(np.zeros((1, 3)))
    shapes = [each.shape for each in projected.advance(constant(np.ones((1, 12))), state)]
    given = {"hidden_size": 3, "proj_size": 2}
    expect("the shapes of h' and c' with W_hr", shapes, [(1, 2), (1, 3)], given=given)


class Digits:
    """A cell that appends a digit: h' = 10 h + x."""

    def from_inputs(self, x: Tensor) -> Tensor:
        return x

    def advance(self, part: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (state[0] * 10.0 + part,)


def steps(backward: bool, lengths: Any = None) -> tuple[Array, Array]:
    """Return the outputs and the final state of Digits on sequences 1, 2, 3 and 4, 5, 6."""
    x = constant([[[1.0], [4.0]], [[2.0], [5.0]], [[3.0], [6.0]]])
    valid = None
    if lengths is not None:
        inside = (np.arange(3)[:, None] < np.array(lengths))[..., None]
        masks = [Tensor(row, device=DEVICE, dtype="bool", requires_grad=False) for row in inside]
        valid = masks
    cell: Any = Digits()
    outputs, state = _run_cell(cell, x, (constant([[0.0], [0.0]]),), backward, valid)
    return outputs.numpy()[..., 0], state[0].numpy()[:, 0]


@pytest.mark.exercise("recurrent-steps")
def test_the_steps_of_a_sequence() -> None:
    given = {"the cell": "h' = 10 h + x", "X": "sequences 1, 2, 3 and 4, 5, 6", "h": 0}
    outputs, state = steps(backward=False)
    want = np.array([[1.0, 4.0], [12.0, 45.0], [123.0, 456.0]])
    mistakes = {
        "the state does not go on: each step begins with the first one": [[1, 4], [2, 5], [3, 6]],
    }
    named = {cause: np.array(values, float) for cause, values in mistakes.items()}
    expect("outputs[t, b]", outputs, want, given=given, mistakes=named)
    expect("the final state", state, want[-1], given=given)


@pytest.mark.exercise("recurrent-steps")
def test_the_steps_backward() -> None:
    given = {"the cell": "h' = 10 h + x", "X": "sequences 1, 2, 3 and 4, 5, 6", "backward": True}
    outputs, state = steps(backward=True)
    want = np.array([[321.0, 654.0], [32.0, 65.0], [3.0, 6.0]])
    mistakes = {
        "output t belongs to step t: put them in the order of the steps": want[::-1],
    }
    expect("outputs[t, b]", outputs, want, given=given, mistakes=mistakes)
    mistakes = {"the state after the last step that was made, at t = 0": want[-1]}
    expect("the final state", state, want[0], given=given, mistakes=mistakes)


@pytest.mark.exercise("recurrent-steps")
def test_sequences_that_end_earlier() -> None:
    given = {"the cell": "h' = 10 h + x", "X": "sequences 1, 2, 3 and 4, 5, 6", "lengths": (3, 1)}
    mistakes = {
        "a state stays as it is where valid is False": np.array([123.0, 456.0]),
        "a state that has ended stays; it does not become 0": np.array([123.0, 0.0]),
    }
    got = steps(False, (3, 1))[1]
    expect("the final state", got, np.array([123.0, 4.0]), given=given, mistakes=mistakes)
    got = steps(True, (3, 1))[1]
    given["backward"] = True
    expect("the final state", got, np.array([321.0, 4.0]), given=given)


# ---- attention -----------------------------------------------------------------------------------


Q = np.array([[[[1.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]]]])
K = np.array([[[[2.0, 0.0, 0.0, 0.0], [0.0, 4.0, 0.0, 0.0]]]])
V = np.array([[[[1.0], [3.0]]]])
"""One head with two queries, two keys of width 4 and two values of width 1."""


@pytest.mark.exercise("attention")
def test_attention_of_one_head() -> None:
    layer = MultiHeadAttention(dropout=0.0).eval()
    y, weights = layer(constant(Q), constant(K), constant(V))
    products = Q @ K.swapaxes(-1, -2)
    want = softmax_of(products / 2)
    given = {"q": Q[0, 0], "k": K[0, 0], "v": V[0, 0], "D": 4}
    expect(
        "the weights",
        weights,
        want,
        given=given,
        mistakes={
            "the division by sqrt(D) is missing": softmax_of(products),
            "divided by D, not by its square root": softmax_of(products / 4),
            "the softmax is missing": products / 2,
        },
    )
    expect("the result", y, want @ V, given={**given, "the weights": want[0, 0]})
    expect(
        "the shape of the result for q (2, 3, 2, 4), k (2, 3, 5, 4), v (2, 3, 5, 6)",
        layer(*(constant(np.ones((2, 3, *end))) for end in ((2, 4), (5, 4), (5, 6))))[0].shape,
        (2, 3, 2, 6),
    )


@pytest.mark.exercise("attention")
def test_no_query_sees_the_future() -> None:
    for queries, keys in ((3, 3), (2, 3)):
        got = causal_mask(queries, keys, DEVICE, "float64").numpy()
        hidden = np.arange(keys) > np.arange(queries)[:, None] + keys - queries
        least = -np.finfo("float32").max
        expect("the mask's shape", got.shape, (1, 1, queries, keys))
        what = "where the mask hides a key (1), for each query and key"
        mistakes = {
            "the last query sees all keys: count from the end": np.tri(queries, keys) == 0,
            "a query sees its own key: the diagonal is 0": np.tri(queries, keys, -1) == 0,
        }
        named = {cause: each.astype(float) for cause, each in mistakes.items()}
        shown = (got[0, 0] != 0).astype(float)
        given = {"queries": queries, "keys": keys}
        expect(what, shown, hidden.astype(float), given=given, mistakes=named)
        infinite = {"infinity makes NaN of a row in which every key is hidden": -math.inf}
        expect("its hidden entries", got.min(), float(least), mistakes=infinite)
    layer = MultiHeadAttention(causal=True).eval()
    y, weights = layer(constant(Q), constant(K), constant(V))
    given = {"q": Q[0, 0], "k": K[0, 0], "causal": True}
    mistakes = {"the mask is not added": softmax_of(Q @ K.swapaxes(-1, -2) / 2)[0, 0, 0]}
    what = "the weights of query 0, which sees key 0 alone"
    expect(what, weights.numpy()[0, 0, 0], np.array([1.0, 0.0]), given=given, mistakes=mistakes)
    expect("its result", y.numpy()[0, 0, 0], np.array([1.0]), given=given)


@pytest.mark.exercise("attention")
def test_dropout_of_the_weights() -> None:
    layer = MultiHeadAttention(dropout=0.5)
    layer.dropout = lambda x: x * 10.0  # type: ignore[assignment, misc]
    y, weights = layer(constant(Q), constant(K), constant(V))
    want = softmax_of(Q @ K.swapaxes(-1, -2) / 2)
    given = {"q": Q[0, 0], "k": K[0, 0], "self.dropout": "x -> 10 x, to be seen"}
    mistakes = {"self.dropout is not applied to the weights": want}
    expect("the weights, after dropout", weights, want * 10, given=given, mistakes=mistakes)
    mistakes = {"the values are summed by weights before dropout": want @ V}
    expect("the result", y, want @ V * 10, given=given, mistakes=mistakes)


class Times:
    """A layer that multiplies by a constant, and by a permutation of the columns if given."""

    def __init__(self, factor: float, columns: list[int] | None = None) -> None:
        self.factor, self.columns = factor, columns

    def __call__(self, x: Tensor) -> Tensor:
        host = x.numpy() * self.factor
        return constant(host if self.columns is None else host[..., self.columns])


class Recorder:
    """Attention that keeps q, k and v, and returns v."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.seen = {"q": q.numpy(), "k": k.numpy(), "v": v.numpy()}
        return v, v


def layer_of_factors() -> tuple[Any, Recorder]:
    """Return attention with two heads of width 2; its layers multiply by small integers."""
    layer: Any = AttentionLayer(4, 2, 2, device=DEVICE, dtype="float64")
    for number, name in enumerate("qkv"):
        setattr(layer, f"prenorm_{name}", Times(10.0))
        setattr(layer, f"{name}_projection", Times(float(number + 1)))
    layer.attn, layer.out_projection = Recorder(), Times(0.1)
    return layer, layer.attn


def heads(x: Array) -> Array:
    """Return (B, T, 4) as (B, 2, T, 2)."""
    return np.stack([x[..., :2], x[..., 2:]], 1)


@pytest.mark.exercise("attention-layer")
def test_heads_are_split_and_joined() -> None:
    layer, attention = layer_of_factors()
    x = np.arange(8.0).reshape(1, 2, 4)
    given = {"x[0]": x[0], "num_head": 2, "dim_head": 2}
    expect(
        "_heads(x)[0], for each head its steps",
        layer._heads(constant(x)).numpy()[0],
        heads(x)[0],
        given=given,
        mistakes={
            "a reshape alone mixes steps and heads": x.reshape(2, 2, 2),
        },
    )
    y = layer(constant(x)).numpy()
    for number, name in enumerate("qkv"):
        expect(
            f"{name} of self.attn, {number + 1} * 10 * x in heads",
            attention.seen[name],
            heads(x) * 10 * (number + 1),
            given={**given, "prenorm": "10 x", "projections of q, k, v": "x, 2 x, 3 x"},
            mistakes={
                f"prenorm_{name} is not called": heads(x) * (number + 1),
                f"{name}_projection is not called": heads(x) * 10,
            },
        )
    given["self.attn"] = "returns v"
    want = x * 3
    mistakes = {
        "a reshape alone does not bring the heads of a step together": (heads(x) * 3).reshape(
            1, 2, 4
        ),
    }
    expect("the result", y, want, given=given, mistakes=mistakes)


@pytest.mark.exercise("attention-layer")
def test_cross_attention() -> None:
    layer, attention = layer_of_factors()
    q, k, v = np.ones((1, 2, 4)), np.full((1, 3, 4), 2.0), np.full((1, 3, 4), 5.0)
    layer(constant(q), constant(k), constant(v))
    got = np.array([attention.seen[name].max() for name in "qkv"])
    given = {"q, k, v": "full of 1, 2, 5", "prenorm": "10 x", "projections": "x, 2 x, 3 x"}
    mistakes = {
        "k and v are made of q": np.array([10.0, 20.0, 30.0]),
    }
    want = np.array([10.0, 40.0, 150.0])
    expect("the values in q, k and v of self.attn", got, want, given=given, mistakes=mistakes)
