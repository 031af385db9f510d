"""Test attention and transformers: float64 formulas, gradients, initial draws, errors."""

from typing import Any

import numpy as np
import pytest

from needle import nn
from tests.nn_devices import close, tensor


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def attention(q: Any, k: Any, v: Any, causal: bool) -> tuple[Any, Any]:
    """Return attention by its definition, in float64, one query at a time over its visible keys."""
    q, k, v = (each.astype("float64") for each in (q, k, v))
    probabilities = np.zeros((*q.shape[:3], k.shape[2]))
    for place in np.ndindex(*q.shape[:3]):
        seen = k.shape[2] - (q.shape[2] - 1 - place[2] if causal else 0)
        scores = k[place[:2]][:seen] @ q[place] / np.sqrt(q.shape[3])
        weights = np.exp(scores - scores.max())
        probabilities[place][:seen] = weights / weights.sum()
    return probabilities @ v, probabilities


def norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [4, 6])
def test_heads(keys: int, causal: bool, device: Any) -> None:
    q, k, v = normal(2, 3, 4, 5), normal(2, 3, keys, 5, seed=1), normal(2, 3, keys, 7, seed=2)
    layer = nn.MultiHeadAttention(causal=causal)
    result, probabilities = layer(*(tensor(each, device) for each in (q, k, v)))
    wanted, weights = attention(q, k, v, causal)
    close(result, wanted, atol=1e-5)
    close(probabilities, weights)


def test_dropout_of_probabilities_is_one_draw(device: Any) -> None:
    q = normal(2, 3, 4, 5)
    layer = nn.MultiHeadAttention(dropout=0.3)
    np.random.seed(9)
    result, probabilities = layer(*[tensor(q, device)] * 3)
    np.random.seed(9)
    mask = np.random.rand(2, 3, 4, 4) <= 0.7
    close(probabilities, attention(q, q, q, False)[1] * mask / 0.7)
    close(result, probabilities.numpy() @ q, atol=1e-5)
    layer.eval()
    close(layer(*[tensor(q, device)] * 3)[0], attention(q, q, q, False)[0], atol=1e-5)


def test_dropout_of_weights_as_in_pytorch(device: Any) -> None:
    x = tensor(normal(2, 4, 6), device)
    plain = nn.MultiheadAttention(6, 2, batch_first=True, device=device)
    layer = nn.MultiheadAttention(6, 2, dropout=0.3, batch_first=True, device=device)
    layer.load_state_dict(plain.state_dict())
    wanted, weights = plain(x, x, x, average_attn_weights=False)
    assert [y.numpy().tolist() for y in layer.eval()(x, x, x, average_attn_weights=False)] == [
        y.numpy().tolist() for y in (wanted, weights)
    ]
    np.random.seed(9)
    result, dropped = layer.train()(x, x, x, average_attn_weights=False)
    np.random.seed(9)
    close(dropped, weights.numpy() * (np.random.rand(2, 2, 4, 4) <= 0.7) / 0.7)
    values = x.numpy() @ plain.in_proj_weight.numpy()[:, 12:]
    heads = dropped.numpy() @ values.reshape(2, 4, 2, 3).transpose(0, 2, 1, 3)
    joined = heads.transpose(0, 2, 1, 3).reshape(2, 4, 6)
    close(result, joined @ plain.out_proj.weight.numpy(), atol=1e-5)
    gone = nn.MultiheadAttention(6, 2, dropout=1.0, device=device)(x, x, x)[0]
    np.testing.assert_array_equal(gone.numpy(), np.zeros((2, 4, 6)))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_layer(causal: bool, device: Any) -> None:
    layer = nn.AttentionLayer(
        6, 2, 4, k_features=3, v_features=5, out_features=7, causal=causal, device=device
    )
    q, k, v = normal(2, 3, 6), normal(2, 3, 3, seed=1), normal(2, 3, 5, seed=2)
    projections = [layer.q_projection, layer.k_projection, layer.v_projection]
    heads = []
    for x, projection in zip((q, k, v), projections):
        rows = norm(x.astype("float64")) @ projection.weight.numpy()
        heads.append(rows.reshape(2, 3, 2, 4).transpose(0, 2, 1, 3))
    wanted = attention(*heads, causal)[0].transpose(0, 2, 1, 3).reshape(2, 3, 8)
    wanted = wanted @ layer.out_projection.weight.numpy()
    out = layer(*(tensor(each, device) for each in (q, k, v)))
    close(out, wanted, atol=2e-5)
    out.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_keys_and_values_are_the_queries_unless_given(device: Any) -> None:
    layer = nn.AttentionLayer(6, 2, 4, device=device)
    q, k = tensor(normal(2, 3, 6), device), tensor(normal(2, 3, 6, seed=1), device)
    close(layer(q), layer(q, q, q).numpy())
    close(layer(q, k), layer(q, k, k).numpy())


def kaiming(fan_in: int, fan_out: int) -> Any:
    return (np.random.rand(fan_in, fan_out) * 2 - 1) * np.sqrt(6 / fan_in)


def test_draws_of_the_transformer(device: Any) -> None:
    """Parameters are drawn in order: positions, then per layer the projections and two linears."""
    np.random.seed(2)
    model = nn.Transformer(6, 10, 2, num_head=2, dim_head=4, sequence_len=5, device=device)
    np.random.seed(2)
    close(model.positions.weight, np.random.randn(5, 6))
    for layer in model.layers:
        attn, mlp = layer.attention.fn[0], layer.mlp.fn
        for projection in (attn.q_projection, attn.k_projection, attn.v_projection):
            close(projection.weight, kaiming(6, 8))
        close(attn.out_projection.weight, kaiming(8, 6))
        for linear, sizes in ((mlp[1], (6, 10)), (mlp[4], (10, 6))):
            close(linear.weight, kaiming(*sizes))
            close(linear.bias, kaiming(sizes[1], 1).reshape(1, -1))
    defaults = nn.Transformer(6, 10, 1)
    assert defaults.positions.weight.shape == (2048, 6)
    assert defaults.layers[0].attention.fn[0].q_projection.weight.shape == (6, 8 * 32)


@pytest.mark.parametrize("batch_first", [False, True])
def test_transformer(batch_first: bool, device: Any) -> None:
    """The output equals that of the layers by hand: positions, residuals, no final norm."""
    model = nn.Transformer(6, 10, 2, num_head=2, dim_head=4, batch_first=batch_first, device=device)
    host = normal(3, 4, 6)
    out, state = model(tensor(host if batch_first else host.transpose(1, 0, 2), device))
    x = tensor(host + model.positions.weight.numpy()[:4], device)
    for layer in model.layers:
        x = x + layer.attention.fn[0](x)
        rows = norm(x.numpy().astype("float64"))
        hidden = np.maximum(rows @ layer.mlp.fn[1].weight.numpy() + layer.mlp.fn[1].bias.numpy(), 0)
        step = hidden @ layer.mlp.fn[4].weight.numpy() + layer.mlp.fn[4].bias.numpy()
        x = tensor(x.numpy() + step, device)
    wanted = x.numpy() if batch_first else x.numpy().transpose(1, 0, 2)
    close(out, wanted, rtol=1e-4, atol=1e-4)
    assert state.shape == out.shape and not state.numpy().any()
    out.sum().backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())


def test_a_causal_transformer_does_not_see_the_future(device: Any) -> None:
    x = normal(5, 2, 6)
    for causal in (True, False):
        model = nn.Transformer(6, 8, 2, num_head=2, dim_head=3, causal=causal, device=device)
        before = model(tensor(x, device))[0].numpy()
        changed = x.copy()
        changed[3:] = normal(2, 2, 6, seed=1)  # not a shift, which layer norm would cancel
        after = model(tensor(changed, device))[0].numpy()
        assert np.allclose(before[:3], after[:3], atol=1e-6) == causal
        assert not np.allclose(before[3:], after[3:], atol=1e-3)


def test_dropout_of_a_transformer_layer_draws_four_times(device: Any) -> None:
    layer = nn.TransformerLayer(6, 2, 3, 8, dropout=0.5, device=device)
    np.random.seed(0)
    layer(tensor(normal(2, 4, 6), device))
    after = np.random.rand()
    np.random.seed(0)
    sizes = 2 * 2 * 4 * 4 + 2 * 4 * 6 + 2 * 4 * 8 + 2 * 4 * 6
    np.random.rand(sizes)
    assert after == np.random.rand()


@pytest.mark.parametrize("norm_first", [False, True])
def test_dropout_of_an_encoder_and_a_decoder_layer(norm_first: bool, device: Any) -> None:
    x, memory = (tensor(normal(2, n, 6, seed=n), device) for n in (4, 5))
    options = {"dim_feedforward": 8, "norm_first": norm_first, "batch_first": True}
    own, seen, hidden = 2 * 2 * 4 * 4, 2 * 2 * 4 * 5, 2 * 4 * 8
    for kind, inputs, norms, draws in (
        (nn.TransformerEncoderLayer, (x,), 2, own + hidden + 2 * 48),
        (nn.TransformerDecoderLayer, (x, memory), 3, own + seen + hidden + 3 * 48),
    ):
        layer = kind(6, 2, dropout=0.5, device=device, **options)
        np.random.seed(0)
        layer(*inputs)
        after = np.random.rand()
        np.random.seed(0)
        np.random.rand(draws)
        assert after == np.random.rand()
        wanted = x.numpy().astype("float64")
        for _ in range(0 if norm_first else norms):
            wanted = norm(wanted)
        close(kind(6, 2, dropout=1.0, device=device, **options)(*inputs), wanted, atol=1e-5)


def test_a_causal_encoder_layer_does_not_see_the_future(device: Any) -> None:
    x = normal(5, 2, 6)
    changed = x.copy()
    changed[3:] = normal(2, 2, 6, seed=1)
    layer = nn.TransformerEncoderLayer(6, 2, 8, activation=nn.SiLU(), device=device).eval()
    for causal in (True, False):
        before, after = (
            layer(tensor(each, device), is_causal=causal).numpy() for each in (x, changed)
        )
        assert np.allclose(before[:3], after[:3], atol=1e-6) == causal
