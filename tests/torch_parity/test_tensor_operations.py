"""Operations on tensors compared with PyTorch, each for many random shapes and arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle.errors import NeedleError
from tests.torch_parity.compare import compare

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
F = torch.nn.functional
Random = np.random.Generator
SEEDS = range(12)


def shape_of(random: Random, least: int = 1, most: int = 4, empty: bool = True) -> tuple[int, ...]:
    """Return a random shape; one in ten axes is empty if allowed."""
    sizes = [0, *([1] * 2), *([2, 3, 5, 4] * 2)] if empty else [1, 2, 3, 4, 5]
    return tuple(int(n) for n in random.choice(sizes, random.integers(least, most + 1)))


def normal(random: Random, shape: tuple[int, ...]) -> Any:
    return random.standard_normal(shape)


def axis_of(random: Random, shape: tuple[int, ...]) -> int:
    return int(random.integers(-len(shape), len(shape)))


def axes_of(random: Random, shape: tuple[int, ...]) -> Any:
    count = random.integers(1, len(shape) + 1)
    axes = random.choice(len(shape), count, replace=False)
    return tuple(int(a) - len(shape) * int(random.integers(2)) for a in axes)


CASES: dict[str, Any] = {}


def case(function: Any) -> Any:
    """Register a function of a generator that returns (inputs, ours, theirs)."""
    CASES[function.__name__] = function
    return function


@case
def pad_constant(r: Random) -> Any:
    shape = shape_of(r, empty=False)
    widths = [int(n) for n in r.integers(0, 4, 2 * r.integers(1, len(shape) + 1))]
    return (
        [normal(r, shape)],
        lambda a: ndl.pad(a, widths, value=1.5),
        lambda a: F.pad(a, widths, value=1.5),
    )


@case
def pad_cropping(r: Random) -> Any:
    shape = tuple(int(n) for n in r.integers(3, 6, 2))
    widths = [int(n) for n in r.integers(-1, 3, 4)]
    return [normal(r, shape)], lambda a: ndl.pad(a, widths), lambda a: F.pad(a, widths)


def padding_with(mode: str) -> Any:
    def pad_mode(r: Random) -> Any:
        shape = tuple(int(n) for n in r.integers(4, 7, 4))
        widths = [int(n) for n in r.integers(-1, 4, 4)]
        return (
            [normal(r, shape)],
            lambda a: ndl.pad(a, widths, mode),
            lambda a: F.pad(a, widths, mode),
        )

    return pad_mode


for mode in ("reflect", "replicate", "circular"):
    CASES[f"pad_{mode}"] = padding_with(mode)


@case
def prod(r: Random) -> Any:
    shape = shape_of(r)
    axis, keepdims = axis_of(r, shape), bool(r.integers(2))
    values = normal(r, shape) * (r.random(shape) > 0.2)
    return (
        [values],
        lambda a: a.prod(axis, keepdims),
        lambda a: a.prod(axis, keepdims),
    )


@case
def prod_of_all(r: Random) -> Any:
    return [normal(r, shape_of(r, 0))], lambda a: a.prod(), lambda a: a.prod()


def along(name: str) -> Any:
    def one_axis(r: Random) -> Any:
        shape = shape_of(r, 0)
        axis = axis_of(r, shape) if shape else 0
        values = normal(r, shape) * (r.random(shape) > 0.15)
        return [values], lambda a: getattr(a, name)(axis), lambda a: getattr(a, name)(axis)

    return one_axis


for name in ("cumsum", "cumprod"):
    CASES[name] = along(name)


@case
def std(r: Random) -> Any:
    shape = tuple(int(n) for n in r.integers(2, 5, r.integers(1, 4)))
    axes, keepdims, correction = axes_of(r, shape), bool(r.integers(2)), int(r.integers(2))
    return (
        [normal(r, shape)],
        lambda a: a.std(axes, keepdims, correction),
        lambda a: a.std(axes, keepdim=keepdims, correction=correction),
    )


@case
def norm(r: Random) -> Any:
    shape = shape_of(r, empty=False)
    axes, keepdims = axes_of(r, shape), bool(r.integers(2))
    p = r.choice([0, 1, 2, 3, 0.5, 2.5, -1, math.inf, -math.inf])
    return (
        [normal(r, shape) * 10.0 ** r.integers(-3, 4)],
        lambda a: a.norm(p, axes, keepdims),
        lambda a: torch.linalg.vector_norm(a, float(p), axes, keepdims),
    )


@case
def norm_of_all(r: Random) -> Any:
    return [normal(r, shape_of(r, 0))], lambda a: a.norm(), lambda a: a.norm()


@case
def argmax(r: Random) -> Any:
    shape = shape_of(r, empty=False)
    axis, keepdims = axis_of(r, shape), bool(r.integers(2))
    return (
        [normal(r, shape)],
        lambda a: (
            ndl.concatenate([a.argmax(axis, keepdims), a.argmin(axis, keepdims)], 0)
            if len(shape) > 1
            else a.argmin(axis, keepdims)
        ),
        lambda a: (
            torch.cat([a.argmax(axis, keepdims), a.argmin(axis, keepdims)], 0)
            if len(shape) > 1
            else a.argmin(axis, keepdims)
        ),
    )


@case
def sort(r: Random) -> Any:
    shape = shape_of(r, 0)
    axis, descending = axis_of(r, shape) if shape else -1, bool(r.integers(2))
    values = np.where(r.random(shape) < 0.1, np.nan, r.integers(-3, 4, shape))
    return (
        [values],
        lambda a: a.sort(axis, descending).values,
        lambda a: torch.sort(a, dim=axis, descending=descending, stable=True).values,
    )


@case
def argsort(r: Random) -> Any:
    shape = shape_of(r)
    axis, descending = axis_of(r, shape), bool(r.integers(2))
    values = np.where(r.random(shape) < 0.1, np.nan, r.integers(-3, 4, shape))
    return (
        [values],
        lambda a: a.argsort(axis, descending),
        lambda a: torch.sort(a, dim=axis, descending=descending, stable=True).indices,
    )


@case
def topk(r: Random) -> Any:
    shape = shape_of(r, empty=False)
    axis, largest = axis_of(r, shape), bool(r.integers(2))
    k = int(r.integers(0, shape[axis] + 1))
    return (
        [normal(r, shape)],
        lambda a: a.topk(k, axis, largest)[0],
        lambda a: a.topk(k, axis, largest)[0],
    )


def index_for(r: Random, shape: tuple[int, ...], axis: int) -> Any:
    sizes = [int(r.integers(0 if n == 0 else 1, n + 1)) for n in shape]
    sizes[axis] = int(r.integers(0, 5))
    return r.integers(0, shape[axis], sizes)


@case
def gather(r: Random) -> Any:
    shape = shape_of(r, empty=False)
    axis = axis_of(r, shape)
    index = index_for(r, shape, axis)
    return (
        [normal(r, shape)],
        lambda a: a.gather(axis, index),
        lambda a: a.gather(axis, torch.tensor(index)),
    )


@case
def scatter(r: Random) -> Any:
    shape = shape_of(r, empty=False)
    axis = axis_of(r, shape)
    index = r.permuted(np.broadcast_to(np.arange(shape[axis]), (*shape, shape[axis])), axis=-1)
    index = np.moveaxis(index.take(0, axis % len(shape)), -1, axis)
    return (
        [normal(r, shape), normal(r, shape)],
        lambda a, b: a.scatter(axis, index, b),
        lambda a, b: a.scatter(axis, torch.tensor(index), b),
    )


@case
def scatter_of_sums(r: Random) -> Any:
    shape = shape_of(r, empty=False)
    axis = axis_of(r, shape)
    index = index_for(r, shape, axis)
    return (
        [normal(r, shape), normal(r, index.shape)],
        lambda a, b: a.scatter(axis, index, b, reduce="add"),
        lambda a, b: a.scatter_add(axis, torch.tensor(index), b),
    )


@case
def index_select(r: Random) -> Any:
    shape = shape_of(r, empty=False)
    axis = axis_of(r, shape)
    index = r.integers(0, shape[axis], r.integers(0, 6))
    return (
        [normal(r, shape)],
        lambda a: a.index_select(axis, index),
        lambda a: a.index_select(axis, torch.tensor(index)),
    )


@case
def masked_fill(r: Random) -> Any:
    shape = shape_of(r)
    mask = r.random(shape[1:]) < 0.5
    return (
        [normal(r, shape), normal(r, ())],
        lambda a, v: a.masked_fill(mask, v),
        lambda a, v: a.masked_fill(torch.tensor(mask), v),
    )


@case
def where(r: Random) -> Any:
    shape = shape_of(r)
    mask = r.random(shape) < 0.5
    return (
        [normal(r, shape), normal(r, shape[-1:])],
        lambda a, b: ndl.where(ndl.Tensor(mask, device=a.device), a, b),
        lambda a, b: torch.where(torch.tensor(mask), a, b),
    )


@case
def roll(r: Random) -> Any:
    shape = shape_of(r)
    axes = axes_of(r, shape)
    shifts = tuple(int(n) for n in r.integers(-7, 8, len(axes)))
    return (
        [normal(r, shape)],
        lambda a: a.roll(shifts, axes),
        lambda a: a.roll(shifts, axes),
    )


@case
def roll_of_all(r: Random) -> Any:
    return [normal(r, shape_of(r))], lambda a: a.roll(3), lambda a: a.roll(3)


@case
def tile(r: Random) -> Any:
    times = tuple(int(n) for n in r.integers(0, 4, r.integers(0, 5)))
    return [normal(r, shape_of(r))], lambda a: a.tile(times), lambda a: a.tile(times)


@case
def repeat(r: Random) -> Any:
    shape = shape_of(r)
    times = tuple(int(n) for n in r.integers(0, 4, len(shape) + r.integers(0, 2)))
    return [normal(r, shape)], lambda a: a.repeat(*times), lambda a: a.repeat(*times)


@case
def repeat_interleave(r: Random) -> Any:
    shape = shape_of(r)
    axis = axis_of(r, shape)
    counts = r.integers(0, 4, shape[axis])
    times: Any = int(r.integers(0, 4)) if r.integers(2) else counts
    other = torch.tensor(times) if isinstance(times, np.ndarray) else times
    return (
        [normal(r, shape)],
        lambda a: a.repeat_interleave(times, axis),
        lambda a: a.repeat_interleave(other, axis),
    )


def triangle(name: str) -> Any:
    def half(r: Random) -> Any:
        k = int(r.integers(-4, 5))
        shape = shape_of(r, 2)
        return [normal(r, shape)], lambda a: getattr(a, name)(k), lambda a: getattr(a, name)(k)

    return half


for name in ("tril", "triu"):
    CASES[name] = triangle(name)


@case
def diagonal(r: Random) -> Any:
    shape = shape_of(r, 2)
    first, second = (int(n) for n in r.choice(len(shape), 2, replace=False))
    k = int(r.integers(-shape[first], shape[second] + 1))
    return (
        [normal(r, shape)],
        lambda a: a.diagonal(k, first, second),
        lambda a: a.diagonal(k, first, second),
    )


@case
def diag(r: Random) -> Any:
    k = int(r.integers(-4, 5))
    shape = shape_of(r, 1, 2, empty=False)
    return [normal(r, shape)], lambda a: a.diag(k), lambda a: a.diag(k)


@case
def trace(r: Random) -> Any:
    return [normal(r, shape_of(r, 2, 2))], lambda a: a.trace(), lambda a: a.trace()


def step(name: str) -> Any:
    def values(r: Random) -> Any:
        x = np.concatenate([normal(r, (6,)) * 3, [0.5, 1.5, -0.5, 2.0, -0.0, np.inf]])
        return [x], lambda a: getattr(a, name)(), lambda a: getattr(a, name)()

    return values


for name in ("floor", "ceil", "round", "trunc", "sign"):
    CASES[name] = step(name)


@case
def round_to_decimals(r: Random) -> Any:
    n = int(r.integers(-2, 3))
    return [normal(r, (9,)) * 50], lambda a: a.round(n), lambda a: a.round(decimals=n)


EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,kj->", (2, 3), (4, 3)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 2)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iij->ji", (3, 3, 2)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    ("...i,i", (2, 3), (3,)),
    ("i,j->ij", (3,), (4,)),
    ("i,i->i", (3,), (3,)),
    ("i,i->", (3,), (3,)),
    (",ij->ji", (), (2, 3)),
    ("ijk->j", (2, 3, 4)),
    ("ij->ji", (2, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("ab,cd,bd->ac", (2, 3), (4, 2), (3, 2)),
    ("ij,ij->j", (1, 3), (4, 3)),
    ("b i , b i -> b", (4, 3), (4, 3)),
    ("...->...", (2, 3)),
    ("i...->...", (2, 3)),
    ("ij,j->i", (0, 3), (3,)),
    ("ij,j->i", (2, 0), (0,)),
    ("bn,anm,bm->ba", (2, 3), (4, 3, 5), (2, 5)),
    ("Ab,bA", (2, 3), (3, 2)),
]
for i, (subscripts, *shapes) in enumerate(EINSUMS):
    CASES[f"einsum_{subscripts}_{i}"] = lambda r, s=subscripts, x=shapes: (
        [normal(r, shape) for shape in x],
        lambda *a: ndl.einsum(s, *a),
        lambda *a: torch.einsum(s, *a),
    )


@pytest.mark.parametrize("name", CASES)
def test_as_in_pytorch(name: str, device: Any) -> None:
    for seed in SEEDS if "einsum" not in name else range(1):
        values, ours, theirs = CASES[name](np.random.default_rng([seed, len(name)]))
        try:
            compare(values, ours, theirs, device, torch)
        except Exception as error:
            error.add_note(f"seed {seed}, shapes {[np.shape(v) for v in values]}")
            raise


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, math.inf])
def test_norms_of_zeros(p: float, device: Any) -> None:
    compare(
        [np.array([[0.0, 0.0], [0.0, 2.0]])],
        lambda a: a.norm(p, 1),
        lambda a: torch.linalg.vector_norm(a, p, 1),
        device,
        torch,
        order=1,  # PyTorch's second gradients are NaN there
    )


def test_standard_deviation_of_equal_elements(device: Any) -> None:
    a = ndl.Tensor(np.ones((2, 3)), device=device)
    b = torch.ones(2, 3, requires_grad=True)
    a.std(1).sum().backward()
    b.std(1, correction=0).sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), b.grad.numpy())


def test_norms_do_not_overflow(device: Any) -> None:
    x = np.array([3e30, 4e30], np.float32)
    a = ndl.Tensor(x, device=device)
    norm = a.norm()
    norm.backward()
    np.testing.assert_allclose(norm.numpy(), 5e30, rtol=1e-6)
    np.testing.assert_allclose(a.grad.numpy(), [0.6, 0.8], rtol=1e-6)


REFUSED: dict[str, Any] = {
    "pad_odd": (lambda a: ndl.pad(a, (1,)), lambda a: F.pad(a, (1,))),
    "pad_too_many": (lambda a: ndl.pad(a, (1,) * 6), lambda a: F.pad(a, (1,) * 6)),
    "pad_negative": (lambda a: ndl.pad(a, (-2, -2)), lambda a: F.pad(a, (-2, -2))),
    "reflect": (lambda a: ndl.pad(a, (4, 0), "reflect"), lambda a: F.pad(a, (4, 0), "reflect")),
    "circular": (lambda a: ndl.pad(a, (0, 4), "circular"), lambda a: F.pad(a, (0, 4), "circular")),
    "mode": (lambda a: ndl.pad(a, (1, 1), "mirror"), lambda a: F.pad(a, (1, 1), "mirror")),
    "cumsum": (lambda a: a.cumsum(2), lambda a: a.cumsum(2)),
    "cumprod": (lambda a: a.cumprod(-3), lambda a: a.cumprod(-3)),
    "sort": (lambda a: a.sort(2), lambda a: a.sort(2)),
    "topk": (lambda a: a.topk(4), lambda a: a.topk(4)),
    "topk_negative": (lambda a: a.topk(-1), lambda a: a.topk(-1)),
    "gather_range": (
        lambda a: a.gather(0, [[0, 2, 0]]),
        lambda a: a.gather(0, torch.tensor([[0, 2, 0]])),
    ),
    "gather_negative": (
        lambda a: a.gather(0, [[0, -1, 0]]),
        lambda a: a.gather(0, torch.tensor([[0, -1, 0]])),
    ),
    "gather_axes": (lambda a: a.gather(0, [0]), lambda a: a.gather(0, torch.tensor([0]))),
    "gather_floats": (
        lambda a: a.gather(0, [[0.0, 1.0, 0.0]]),
        lambda a: a.gather(0, torch.tensor([[0.0, 1.0, 0.0]])),
    ),
    "gather_longer": (
        lambda a: a.gather(0, [[0, 0, 0, 0]]),
        lambda a: a.gather(0, torch.tensor([[0, 0, 0, 0]])),
    ),
    "scatter_src": (
        lambda a: a.scatter(0, [[0, 0, 1]], a[:, :2]),
        lambda a: a.scatter(0, torch.tensor([[0, 0, 1]]), a[:, :2]),
    ),
    "index_select": (
        lambda a: a.index_select(1, [3]),
        lambda a: a.index_select(1, torch.tensor([3])),
    ),
    "index_select_matrix": (
        lambda a: a.index_select(1, [[1]]),
        lambda a: a.index_select(1, torch.tensor([[1]])),
    ),
    "masked_fill": (
        lambda a: a.masked_fill(np.ones(2, bool), 0.0),
        lambda a: a.masked_fill(torch.ones(2, dtype=torch.bool), 0.0),
    ),
    "masked_fill_value": (
        lambda a: a.masked_fill(np.ones(3, bool), a),
        lambda a: a.masked_fill(torch.ones(3, dtype=torch.bool), a),
    ),
    "roll": (lambda a: a.roll((1, 2), (0,)), lambda a: a.roll((1, 2), (0,))),
    "roll_axis": (lambda a: a.roll(1, 2), lambda a: a.roll(1, 2)),
    "repeat": (lambda a: a.repeat(2), lambda a: a.repeat(2)),
    "repeat_negative": (lambda a: a.repeat(-1, 2), lambda a: a.repeat(-1, 2)),
    "repeat_interleave": (
        lambda a: a.repeat_interleave([1, 2], 1),
        lambda a: a.repeat_interleave(torch.tensor([1, 2]), 1),
    ),
    "tril": (lambda a: a[0].tril(), lambda a: a[0].tril()),
    "diagonal": (lambda a: a.diagonal(0, 1, 1), lambda a: a.diagonal(0, 1, 1)),
    "trace": (lambda a: a[0].trace(), lambda a: a[0].trace()),
    "norm": (
        lambda a: a[:, :0].norm(math.inf, 1),
        lambda a: torch.linalg.vector_norm(a[:, :0], math.inf, 1),
    ),
    "argmax": (lambda a: a[:0].argmax(), lambda a: a[:0].argmax()),
    "einsum_count": (lambda a: ndl.einsum("ij,jk", a), lambda a: torch.einsum("ij,jk", a)),
    "einsum_sizes": (lambda a: ndl.einsum("ij,jk", a, a), lambda a: torch.einsum("ij,jk", a, a)),
    "einsum_axes": (lambda a: ndl.einsum("i->i", a), lambda a: torch.einsum("i->i", a)),
    "einsum_output": (lambda a: ndl.einsum("ij->k", a), lambda a: torch.einsum("ij->k", a)),
    "einsum_twice": (lambda a: ndl.einsum("ij->ii", a), lambda a: torch.einsum("ij->ii", a)),
    "einsum_label": (lambda a: ndl.einsum("i1->i", a), lambda a: torch.einsum("i1->i", a)),
    "einsum_diagonal": (lambda a: ndl.einsum("ii", a), lambda a: torch.einsum("ii", a)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_in_pytorch(name: str, device: Any) -> None:
    ours, theirs = REFUSED[name]
    x = np.arange(6.0).reshape(2, 3)
    with pytest.raises((RuntimeError, IndexError, ValueError, NotImplementedError)):
        theirs(torch.tensor(x))
    with pytest.raises(NeedleError):
        ours(ndl.Tensor(x, device=device, dtype="float64"))
