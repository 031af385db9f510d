"""Compare attention masks and sequences of several lengths with PyTorch."""

from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import nn
from needle.nn import torch_mapping
from tests.nn_devices import close

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
F = torch.nn.functional


def loaded(ours: Any, theirs: Any) -> Any:
    """Return ``ours`` with the weights of ``theirs``."""
    torch_mapping.from_torch_state_dict(
        ours, {name: value.numpy() for name, value in theirs.state_dict().items()}
    )
    return ours


def made(random: Any, mask: str, shape: tuple[int, ...]) -> Any:
    """Return a mask in which key 0 is visible."""
    hidden = random.random(shape) < 0.4
    hidden[..., 0] = False
    if mask == "bool":
        return hidden
    return np.where(hidden, -np.inf, random.standard_normal(shape))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("padding", [None, "bool", "float"])
@pytest.mark.parametrize("mask", [None, "bool", "float", "bool, each head"])
def test_masks_of_attention(mask: str | None, padding: str | None, seed: int, device: Any) -> None:
    if mask and padding and mask[:4] != padding[:4]:
        pytest.skip("PyTorch warns of masks of two dtypes")
    random = np.random.default_rng(seed)
    n, t, s = (int(v) for v in random.integers(2, 6, 3))
    theirs = torch.nn.MultiheadAttention(6, 3, dtype=torch.float64, batch_first=True)
    torch.nn.init.normal_(theirs.in_proj_bias)
    ours = nn.MultiheadAttention(6, 3, batch_first=True, device=device, dtype="float64")
    loaded(ours, theirs)
    given = {}
    if padding:
        given["key_padding_mask"] = made(random, padding, (n, s))
    if mask:
        shape = (n * 3, t, s) if "each" in mask else (t, s)
        given["attn_mask"] = made(random, mask.partition(",")[0], shape)
    x, y = random.standard_normal((n, t, 6)), random.standard_normal((n, s, 6))
    a, b = (ndl.Tensor(v, device=device, dtype="float64") for v in (x, y))
    c, d = (torch.tensor(v, requires_grad=True) for v in (x, y))
    got = ours(a, b, b, **given)
    wanted = theirs(c, d, d, **{name: torch.tensor(value) for name, value in given.items()})
    for mine, other in zip(got, wanted, strict=True):
        close(mine, other.detach().numpy(), rtol=1e-9, atol=1e-9)
    (got[0] * got[0]).sum().backward()
    (wanted[0] * wanted[0]).sum().backward()
    close(a.grad, c.grad.numpy(), rtol=1e-9, atol=1e-9)
    close(b.grad, d.grad.numpy(), rtol=1e-9, atol=1e-9)


def test_the_hint_of_causality_is_the_mask(device: Any) -> None:
    theirs = torch.nn.MultiheadAttention(4, 2)
    ours = loaded(nn.MultiheadAttention(4, 2, device=device), theirs)
    x = np.random.default_rng(0).standard_normal((5, 2, 4)).astype("float32")
    hidden = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    wanted, weights = theirs(*[torch.tensor(x)] * 3, attn_mask=hidden, is_causal=True)
    got, shown = ours(*[ndl.Tensor(x, device=device)] * 3, is_causal=True)
    close(got, wanted.detach().numpy(), atol=1e-5)
    close(shown, weights.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("mask", ["bool", "float"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_masks_of_an_encoder_and_a_decoder(norm_first: bool, mask: str, device: Any) -> None:
    random = np.random.default_rng(7)
    options = {"dim_feedforward": 5, "batch_first": True, "norm_first": norm_first}
    theirs = [
        kind(6, 2, dtype=torch.float64, **options).eval()
        for kind in (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer)
    ]
    ours = [
        loaded(kind(6, 2, device=device, dtype="float64", **options).eval(), other)
        for kind, other in zip((nn.TransformerEncoderLayer, nn.TransformerDecoderLayer), theirs)
    ]
    hosts = random.standard_normal((2, 4, 6)), random.standard_normal((2, 3, 6))
    masks = [made(random, mask, shape) for shape in ((4, 4), (2, 4), (3, 3), (3, 4), (2, 3))]
    a, b = (ndl.Tensor(host, device=device, dtype="float64") for host in hosts)
    c, d = (torch.tensor(host, requires_grad=True) for host in hosts)

    def run(pair: list[Any], src: Any, tgt: Any, given: list[Any]) -> Any:
        memory = pair[0](src, given[0], given[1])
        return pair[1](tgt, memory, given[2], given[3], given[4], given[1])

    got, wanted = run(ours, a, b, masks), run(theirs, c, d, [*map(torch.tensor, masks)])
    close(got, wanted.detach().numpy(), rtol=1e-9, atol=1e-9)
    (got * got).sum().backward()
    (wanted * wanted).sum().backward()
    for mine, other in ((a, c), (b, d)):
        close(mine.grad, other.grad.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("two_ways", [False, True])
def test_sequences_of_several_lengths(kind: str, two_ways: bool, device: Any) -> None:
    random = np.random.default_rng(1)
    options = {"num_layers": 2, "bidirectional": two_ways, "batch_first": True}
    theirs = getattr(torch.nn, kind)(3, 4, dtype=torch.float64, **options)
    ours = getattr(nn, kind)(3, 4, device=device, dtype="float64", **options)
    loaded(ours, theirs)
    x, lengths = random.standard_normal((4, 6, 3)), [2, 6, 1, 4]
    a, b = ndl.Tensor(x, device=device, dtype="float64"), torch.tensor(x, requires_grad=True)
    got, state = ours(a, lengths=lengths)
    packed = torch.nn.utils.rnn.pack_padded_sequence(b, lengths, True, enforce_sorted=False)
    wanted, last = theirs(packed)
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(wanted, batch_first=True)
    close(got, wanted.detach().numpy(), rtol=1e-9, atol=1e-9)
    mine, other = (state, last) if kind == "LSTM" else ((state,), (last,))
    for each, expected in zip(mine, other, strict=True):
        close(each, expected.detach().numpy(), rtol=1e-9, atol=1e-9)
    (got * got).sum().backward()
    (wanted * wanted).sum().backward()
    close(a.grad, b.grad.numpy(), rtol=1e-9, atol=1e-9)
