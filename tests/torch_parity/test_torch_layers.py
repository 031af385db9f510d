"""Compare every row of the layer table with PyTorch, through the mapping of state dicts.

Values, gradients of inputs and parameters, and running statistics, in training and evaluation:
float64 to 1e-9, float32 to 1e-5.
"""

import copy
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle.nn import torch_mapping
from tests.nn.test_layer_table import every_row
from tests.nn.test_layer_table import results as tensors
from tests.nn_layers import LayerRow

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


def drawn(random: Any, shape: tuple[int, ...]) -> Any:
    """Return magnitudes from 0.5 to 1.5; matrices have both signs, so that no row is constant."""
    values = np.asarray(random.uniform(0.5, 1.5, shape))
    return values * random.choice([-1, 1], shape) if len(shape) > 1 else values


def make_pair(row: LayerRow, random: Any, device: Any, dtype: str) -> tuple[Any, Any]:
    """Return the layer in needle and in PyTorch, with the same drawn weights."""
    theirs = row.theirs(torch.nn).to(getattr(torch, dtype))
    state = {
        name: drawn(random, value.shape).astype(dtype)
        if value.is_floating_point()
        else value.numpy()
        for name, value in theirs.state_dict().items()
    }
    theirs.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    ours = row.make(device=device, dtype=dtype)
    assert torch_mapping.from_torch_state_dict(ours, state) == ([], [])
    return ours, theirs


def gradients_of(ours: Any) -> dict[str, Any]:
    """Return the gradients of the parameters under PyTorch's names and in its layouts."""
    clone = copy.deepcopy(ours)
    own = clone.state_dict()
    own.update((name, p.grad.numpy()) for name, p in ours.named_parameters())
    clone.load_state_dict(own)
    return torch_mapping.to_torch_state_dict(clone)


def same(got: Any, wanted: Any, tolerance: float, what: str) -> None:
    wanted = wanted.detach().numpy()
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    assert got.shape == wanted.shape and str(got.dtype) == str(wanted.dtype), what
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * scale, err_msg=what)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(2))
@every_row
def test_values_and_gradients(row: LayerRow, seed: int, dtype: str, device: Any) -> None:
    random = np.random.default_rng(seed)
    ours, theirs = make_pair(row, random, device, dtype)
    tolerance = row.tolerance if dtype == "float64" else 1e-5
    hosts = [host.astype(dtype) for host in row.inputs(random)]
    for training in (True, False):
        ours.train(training), theirs.train(training)
        a = [ndl.Tensor(host, device=device, dtype=dtype) for host in hosts]
        b = [torch.tensor(host, requires_grad=True) for host in hosts]
        if not training and row.biased:  # PyTorch's running variance is the unbiased one
            torch_mapping.from_torch_state_dict(ours, numpy_state(theirs))
        got, wanted = list(tensors(row.call(ours, *a))), list(tensors(row.call(theirs, *b)))
        slopes = [random.standard_normal(w.shape).astype(dtype) for w in wanted]
        theirs.zero_grad()
        for mine, other in zip(got, wanted, strict=True):
            same(mine.numpy(), other, tolerance, "result")
        parts = [y * ndl.Tensor(s, device=device, dtype=dtype) for y, s in zip(got, slopes)]
        sum((part.sum() for part in parts[1:]), parts[0].sum()).backward()
        sum((w * torch.from_numpy(s)).sum() for w, s in zip(wanted, slopes)).backward()
        for mine, other in zip(a, b, strict=True):
            same(mine.grad.numpy(), other.grad, tolerance, "gradient of an input")
        found = gradients_of(ours)
        for name, p in theirs.named_parameters():
            same(found[name], p.grad, tolerance, f"gradient of {name}")
    for name, value in torch_mapping.to_torch_state_dict(ours).items():
        if "running" in name and not row.biased:
            same(value, theirs.state_dict()[name], tolerance, name)


def numpy_state(theirs: Any) -> dict[str, Any]:
    return {name: value.numpy() for name, value in theirs.state_dict().items()}


@every_row
def test_state_dicts_go_both_ways(row: LayerRow) -> None:
    ours, theirs = make_pair(row, np.random.default_rng(1), None, "float32")
    state = torch_mapping.to_torch_state_dict(ours)
    for name, value in theirs.state_dict().items():
        np.testing.assert_array_equal(state[name], value.numpy(), err_msg=name)
    copied = {name: torch.from_numpy(value) for name, value in state.items()}
    theirs.load_state_dict(copied, strict=True)
