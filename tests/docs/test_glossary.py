"""Every row of docs/glossary.md about PyTorch and about the course is true; each one is tried.

A row is identified by its first cell. ``CHECKS`` tests needle's side; ``PEER`` tests what the row
says or implies about PyTorch, if that is installed.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import backend_ndarray as nd
from needle import dtypes, nn, optim

PAGE = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"
CHECKS: dict[str, Callable[..., None]] = {}
X = np.arange(6, dtype=np.float64).reshape(2, 3)


def rows() -> list[str]:
    """Return the first cells of the two comparison tables."""
    text = PAGE.read_text(encoding="utf-8").split("## Words")[0]
    cells = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    return [cell for cell in cells if cell not in ("PyTorch", "the course")]


def row(*firsts: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the check of one or more rows."""

    def register(check: Callable[..., None]) -> Callable[..., None]:
        CHECKS.update(dict.fromkeys(firsts, check))
        return check

    return register


def test_every_row_has_its_check_and_every_check_its_row() -> None:
    assert len(set(rows())) == len(rows())
    assert set(rows()) == set(CHECKS)


@pytest.mark.parametrize("first", rows())
def test_a_row_is_true(first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    CHECKS[first]()


def tensor(values: Any = X) -> ndl.Tensor:
    return ndl.Tensor(values)


def same(a: Any, b: Any, **tolerance: float) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, **tolerance)


# ---- coming from PyTorch -------------------------------------------------------------------------


@row("`torch.tensor(x)`")
def _() -> None:
    x = tensor(X)
    assert x.dtype == "float32" and x.requires_grad
    assert ndl.Tensor(X, dtype="float64").dtype == "float64"


@row("`x.numpy()`")
def _() -> None:
    x = tensor()
    host = x.numpy()
    host[0, 0] = 9
    assert x.requires_grad and x.numpy()[0, 0] == 0


@row("`loss.backward()`", "`loss.backward()` overwrites `.grad`")
def _() -> None:
    x = tensor()
    for _ in range(2):
        (x * 2).sum().backward()
    same(x.grad, np.full((2, 3), 2))
    (x * 2).sum().backward(accumulate=True)
    same(x.grad, np.full((2, 3), 4))


@row("`loss.backward()` twice")
def _() -> None:
    x = tensor()
    y = (x * x).sum()
    y.backward()
    first = x.grad.numpy()
    y.backward()
    same(x.grad, first)
    z = (x * x).sum()
    z.backward(retain_graph=False)
    with pytest.raises(ndl.errors.GraphError):
        z.backward()


@row("`optimizer.zero_grad()`")
def _() -> None:
    x = tensor()
    optimizer = optim.SGD([x])
    for reset in (optimizer.zero_grad, optimizer.reset_grad):
        x.sum().backward()
        reset()
        assert x.grad is None


@row("`torch.no_grad()`")
def _() -> None:
    with ndl.no_grad():
        assert not (tensor() * 2).requires_grad


@row("`torch.func.grad(f)`")
def _() -> None:
    cube = ndl.grad(ndl.grad(lambda x: x**3))
    same(cube(ndl.Tensor(2.0)), 12)


@row("`torch.autograd.gradcheck(f, x)`")
def _() -> None:
    ndl.testing.check_gradients(ndl.exp, X, order=2)
    with pytest.raises(AssertionError):
        ndl.testing.check_gradients(lambda x: x * x.detach(), X + 1)


@row("`x.sum(dim=1, keepdim=True)`")
def _() -> None:
    x = tensor()
    for name in ("sum", "mean", "max", "min", "prod", "var", "std"):
        found = getattr(x, name)(axes=1, keepdims=True)
        assert isinstance(found, ndl.Tensor)
        same(found, getattr(X, name)(axis=1, keepdims=True))


@row("`x.var()`, `x.std()`")
def _() -> None:
    same(tensor().std(correction=1), X.std(ddof=1))
    same(tensor().var(), X.var())
    same(tensor().var(correction=1), X.var(ddof=1))


@row("`x.transpose(0, 1)`", "`x.permute(1, 0)`")
def _() -> None:
    same(tensor().transpose((0, 1)), X.T)
    same(tensor().transpose(0, 1), X.T)
    same(tensor().permute((1, 0)), X.T)
    same(tensor().permute(1, 0), X.T)
    same(tensor(np.ones((2, 3, 4))).transpose(), np.ones((2, 4, 3)))


@row("`x.topk(2, dim=1)`, `x.sort(dim=1)`")
def _() -> None:
    values, indices = tensor().topk(2, axis=1)
    same(values, X[:, :0:-1])
    assert indices.numpy().tolist() == [[2, 1], [2, 1]]
    same(tensor([[1, 0, 1, 0]]).sort(axis=1).indices, [[1, 3, 0, 2]])


@row("`x.gather(1, i)`, `x.scatter(1, i, y)`")
def _() -> None:
    index, y = np.array([[2, 0, 0]]), tensor([[7, 8, 9]])
    same(tensor().gather(1, index), [[2, 0, 0]])
    same(tensor().scatter(1, index, y), [[9, 1, 7], [3, 4, 5]])
    same(tensor().scatter(1, index, y, reduce="add"), [[17, 1, 9], [3, 4, 5]])


@row("`F.pad(x, (1, 1))`")
def _() -> None:
    same(ndl.pad(tensor(), (1, 1)), np.pad(X, ((0, 0), (1, 1))))
    same(ndl.pad(tensor(), ((0, 0), (1, 1)), "reflect"), np.pad(X, ((0, 0), (1, 1)), "reflect"))


@row("`x.tile(2, 3)`, `x.repeat(2, 3)`")
def _() -> None:
    same(tensor().tile(2, 3), np.tile(X, (2, 3)))
    same(tensor().repeat(2, 3), np.tile(X, (2, 3)))
    same(tensor().repeat_interleave(2, 1), np.repeat(X, 2, 1))


@row('`torch.einsum("ij,kj->ik", a, b)`')
def _() -> None:
    same(ndl.einsum("ij,kj->ik", tensor(), tensor()), X @ X.T)


@row("`torch.round(x)`, `torch.sign(x)`")
def _() -> None:
    x = tensor([0.5, 1.5, -2.7])
    y = ndl.round(x)
    y.backward()
    same(y, [0, 2, -3])
    same(x.grad, [0, 0, 0])
    assert np.isnan(ndl.sign(tensor([math.nan])).numpy()).all()


@row("`mask & ~other`")
def _() -> None:
    x = tensor()
    assert ((x > 1) & ~(x > 3)).numpy().tolist() == [[False, False, True], [True, False, False]]


@row("`nn.MSELoss()(x, y)`")
def _() -> None:
    same(nn.MSELoss()(tensor(), X + 2), 4)
    for name in ("MSELoss", "L1Loss", "HuberLoss", "KLDivLoss", "BCELoss"):
        with pytest.raises(ndl.errors.ShapeError):
            getattr(nn, name)()(tensor(), X[:1])


@row("`nn.MaxPool2d(2, ceil_mode=True)`")
def _() -> None:
    images = tensor(X.reshape(1, 1, 2, 3))
    same(nn.MaxPool2d(2, ceil_mode=True)(images), [[[[4, 5]]]])


@row("`x.view(6)`, `x.reshape(6)`")
def _() -> None:
    same(tensor().permute((1, 0)).reshape((6,)), X.T.reshape(6))


@row("`torch.cat([a, b], 1)`", "`torch.stack([a, b], 1)`")
def _() -> None:
    a = tensor()
    same(ndl.concatenate([a, a], 1), np.concatenate([X, X], 1))
    same(ndl.stack([a, a], 1), np.stack([X, X], 1))


@row("`x == y`")
def _() -> None:
    a, b = tensor(), tensor()
    assert (a == a) is True and (a == b) is False
    assert ndl.equal(a, b).numpy().all()


@row("`x[::-1]`")
def _() -> None:
    a = tensor().detach()
    same(a[::-1], X[::-1])
    assert a[::-1].realize_cached_data()._handle is a.realize_cached_data()._handle


@row("`x += 1`")
def _() -> None:
    x = before = tensor()
    x += 1
    assert x is not before
    same(before, X)


@row('`x.to("cuda")`')
def _() -> None:
    assert tensor().to(ndl.cpu()).device == ndl.cpu() == tensor().to("cpu").device
    assert ndl.cuda() == ndl.device("cuda")


@row("`torch.manual_seed(0)`", "random numbers of `init`")
def _() -> None:
    ndl.seed(0)
    first = nn.Linear(3, 2).weight.numpy()
    np.random.seed(0)
    same(nn.Linear(3, 2).weight, first)
    np.random.seed(0)
    same(ndl.init.randn(3, 2), np.random.RandomState(0).randn(3, 2).astype("float32"))


@row("`torch.Generator().manual_seed(0)`")
def _() -> None:
    first, again = (ndl.init.randn(3, generator=ndl.init.Generator(0)) for _ in range(2))
    same(first.numpy(), again.numpy(), atol=0)
    assert nn.Dropout(0.5, generator=ndl.init.Generator(0))(first).shape == (3,)


@row("`nn.ModuleList([...])`")
def _() -> None:
    model = nn.Module()
    model.blocks = [nn.Linear(3, 2), {"a": (nn.Linear(2, 1),)}]  # type: ignore[attr-defined]
    assert len(model.parameters()) == 4


@row("`nn.Linear(3, 2).weight` (2, 3)")
def _() -> None:
    assert nn.Linear(3, 2).weight.shape == (3, 2)
    assert nn.torch_mapping.__doc__


@row("`nn.Conv2d(1, 6, 5).weight` (6, 1, 5, 5)")
def _() -> None:
    layer = nn.Conv2d(1, 6, 5)
    assert layer.weight.shape == (5, 5, 1, 6)
    x = ndl.init.randn(2, 1, 8, 8)
    assert layer(x).shape == (2, 6, 4, 4)


@row("`nn.BatchNorm2d`", "`BatchNorm` running variance")
def _() -> None:
    layer = nn.BatchNorm2d(3, momentum=1.0)
    x = np.random.default_rng(0).random((2, 3, 4, 4)).astype("float32")
    layer(ndl.Tensor(x, device=ndl.cpu()))
    same(layer.running_var, x.var(axis=(0, 2, 3)))


@row("`nn.GroupNorm`, `nn.ConvTranspose2d`, `nn.GRU`, ...")
def _() -> None:
    for name in ("GroupNorm", "InstanceNorm2d", "RMSNorm", "ConvTranspose2d", "Conv1d", "GRU"):
        assert issubclass(getattr(nn, name), nn.Module)


@row("`nn.LSTM(3, 5).weight_ih_l0` (20, 3)")
def _() -> None:
    assert nn.LSTM(3, 5).lstm_cells[0].W_ih.shape == (3, 20)


@row("`pack_padded_sequence(x, lengths)`")
def _() -> None:
    out, _ = nn.LSTM(3, 5)(ndl.Tensor(np.ones((4, 2, 3))), lengths=[4, 2])
    assert out.shape == (4, 2, 5)
    same(out[2:, 1], np.zeros((2, 5)))


@row("`nn.MultiheadAttention`")
def _() -> None:
    out, weights = nn.MultiheadAttention(4, 2)(*[ndl.Tensor(np.ones((3, 1, 4)))] * 3)
    assert out.shape == (3, 1, 4) and weights.shape == (1, 3, 3)


@row("`F.interpolate(x, scale_factor=2)`")
def _() -> None:
    x = ndl.Tensor([[[1.0, 2.0]]])
    same(ndl.interpolate(x, scale_factor=2), [[[1, 1, 2, 2]]])
    same(nn.Upsample(scale_factor=2)(x), [[[1, 1, 2, 2]]])


@row("`nn.CrossEntropyLoss()`")
def _() -> None:
    logits, labels = tensor(), ndl.Tensor([0, 2], dtype="int64")
    expected = np.mean(np.log(np.exp(X).sum(1)) - X[[0, 1], [0, 2]])
    same(nn.CrossEntropyLoss()(logits, labels), expected)
    same(nn.SoftmaxLoss()(logits, labels), expected)


def stepped(optimizer: Callable[..., Any], steps: int = 2) -> Any:
    """Return a parameter after steps with the gradients 1, 2, ..."""
    p = ndl.Tensor([1.0])
    found = optimizer([p])
    for i in range(steps):
        (p * (i + 1.0)).sum().backward()
        found.step()
    return p.numpy()


@row("`optim.SGD(p, lr, momentum=0.9)`")
def _() -> None:
    same(stepped(lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.0)), [1 - 0.1 - 0.29])
    same(stepped(lambda p: optim.SGD(p, 0.1, momentum=0.9)), [1 - 0.01 - 0.029])


@row("`optim.Adam(p, lr)`")
def _() -> None:
    same(stepped(lambda p: optim.Adam(p, 0.1), steps=1), [0.9])
    assert optim.Adam([tensor()]).lr == 0.01


@row(
    "`torch.save(model.state_dict(), path)`",
    "`model.load_state_dict(torch.load(path))`",
)
def _() -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    ndl.io.save("weights.safetensors", model.state_dict())
    other.load_state_dict(ndl.io.load("weights.safetensors"), strict=True)
    same(model.weight, other.weight)


@row("`DataLoader(d, 64, shuffle=True, num_workers=2)`")
def _() -> None:
    digits = ndl.data.Digits(train=False)
    loaders = [
        ndl.data.DataLoader(digits, 64, shuffle=True, seed=0, num_workers=n, engine=engine)
        for n, engine in ((0, None), (2, "threads"))
    ]
    for (a, _), (b, _) in zip(*loaders):
        assert a.numpy().tobytes() == b.numpy().tobytes()
    sizes = ndl.data.DataLoader(digits, 64, collate=len)
    assert next(iter(sizes)) == 64


@row("`torch.compile(step)`")
def _() -> None:
    double = ndl.capture(lambda x: x * 2 + 1)
    for _ in range(3):
        same(double(tensor().to("cpu")), X * 2 + 1)
    assert (double.recordings, double.replays) == (1, 2)


# ---- coming from the course ----------------------------------------------------------------------


@row("`a - b` in the graph")
def _() -> None:
    difference = tensor() - tensor()
    assert isinstance(difference.op, ndl.EWiseAdd)
    assert isinstance(difference.inputs[1].op, ndl.Negate)


@row("`NEEDLE_BACKEND=np`")
def _() -> None:
    program = "import numpy, needle; assert type(needle.Tensor([1]).cached_data) is numpy.ndarray"
    environment = {**os.environ, "NEEDLE_BACKEND": "np", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@row("a Tensor without a device")
def _() -> None:
    assert tensor().device == ndl.default_device()
    assert ndl.default_device() == (ndl.cpu() if ndl.cpu().enabled() else ndl.cpu_numpy())
    assert nn.Linear(2, 2).weight.device == ndl.cpu()


def array(values: Any = X) -> Any:
    return nd.array(values, device=nd.cpu())


@row("`a.reshape(...)` of a permuted NDArray")
def _() -> None:
    a = array().permute((1, 0))
    same(a.reshape((6,)).numpy(), X.T.reshape(6))


@row("`a[1]` of an NDArray")
def _() -> None:
    assert array()[1].shape == (3,)


@row("`a + b` of NDArrays")
def _() -> None:
    same((array() + array(X[0])).numpy(), X + X[0])


@row("`a.sum()` of an NDArray")
def _() -> None:
    assert array().sum().shape == ()


@row("`a == b` of NDArrays")
def _() -> None:
    equal = array() == array()
    assert equal.dtype == "bool"
    same((equal + equal).numpy(), np.full((2, 3), 2))


@row("`a @ b` of NDArrays")
def _() -> None:
    a = np.ones((4, 2, 3))
    same((array(a) @ array(a.swapaxes(1, 2))).numpy(), a @ a.swapaxes(1, 2))


@row("NDArray dtypes")
def _() -> None:
    assert len(dtypes.COMPUTE_DTYPES) == 6 and array().dtype == "float32"


@row("`ndl.conv(x, w)`")
def _() -> None:
    x, w = ndl.init.randn(1, 5, 5, 2), ndl.init.randn(3, 3, 2, 4)
    assert ndl.conv(x, w).shape == (1, 5, 5, 4)
    assert ndl.conv2d(x.permute((0, 3, 1, 2)), w.permute((3, 2, 0, 1))).shape == (1, 4, 3, 3)


@row("second derivatives")
def _() -> None:
    x = tensor()
    (x**3).sum().backward()
    x.grad.sum().backward()
    same(x.grad, 6 * X)


# ---- PyTorch's side ------------------------------------------------------------------------------


def test_what_the_rows_say_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, requires_grad=True)
    with pytest.raises(RuntimeError):
        x.numpy()
    for _ in range(2):
        (x * 2).sum().backward()
    same(x.grad, np.full((2, 3), 4))  # gradients accumulate
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError):
        y.backward()
    same(x.detach().var(), X.var(ddof=1))
    with pytest.raises(ValueError):
        x[::-1]
    assert torch.tensor(X).dtype == torch.float64 and not torch.tensor(X).requires_grad
    assert torch.nn.Linear(3, 2).weight.shape == (2, 3)
    assert torch.nn.Conv2d(1, 6, 5).weight.shape == (6, 1, 5, 5)
    layer = torch.nn.BatchNorm2d(3, momentum=1.0)
    values = np.random.default_rng(0).random((2, 3, 4, 4)).astype("float32")
    layer(torch.from_numpy(values))
    same(layer.running_var, values.var(axis=(0, 2, 3), ddof=1))
    p = torch.tensor([1.0], requires_grad=True)
    optimizer = torch.optim.SGD([p], 0.1, momentum=0.9)
    for i in range(2):
        optimizer.zero_grad()
        (p * (i + 1.0)).sum().backward()
        optimizer.step()
    same(p.detach(), [1 - 0.1 - 0.29])
    module = torch.nn.Module()
    module.blocks = [torch.nn.Linear(3, 2)]
    assert not list(module.parameters())
