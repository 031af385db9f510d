"""Tests generated from every row of the op table, on every device of this machine."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from needle import Tensor, TensorTuple
from needle.backend_selection import array_api as xp
from needle.backend_selection import from_numpy
from needle.ops import REGISTRY
from needle.testing import check_gradients
from tests.op_row import OpRow
from tests.op_table import FAILURES, ROWS

every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)


def drawn(row: OpRow) -> tuple[Any, ...]:
    return tuple(map(np.asarray, row.inputs(np.random.default_rng(sum(map(ord, row.id))))))


def typed(host: Any, dtype: str) -> Any:
    """Return floating inputs in the dtype under test, and other inputs unchanged."""
    return host.astype(dtype) if host.dtype.kind == "f" else host


def tensor(host: Any, device: Any) -> Tensor:
    return Tensor(host, device=device, dtype=host.dtype)


def results(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (tuple, list, TensorTuple)) else [out]


def compare(row: OpRow, out: Any, hosts: tuple[Any, ...], dtype: str, layout: str = "") -> None:
    """Assert shape, dtype and values of each result against the oracle in float64."""
    __tracebackhide__ = True
    wide = [h.astype(np.float64) if h.dtype.kind != "b" else h for h in hosts]
    with np.errstate(all="ignore"):
        expected = results(row.oracle(*wide))
    for got, want in zip(results(out), expected, strict=True):
        want = np.asarray(want)
        assert got.shape == want.shape
        assert got.dtype == (row.out_dtype or dtype)
        rtol = row.rtol if dtype == "float32" else 1e-12
        shapes = ", ".join(str(host.shape) for host in hosts)
        called = f"{row.id} of inputs of shape {shapes}, {dtype}{layout}"
        np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=rtol, err_msg=called)


@every_row
def test_forward(row: OpRow, device: Any) -> None:
    for dtype in row.dtypes:
        hosts = tuple(typed(h, dtype) for h in drawn(row))
        compare(row, row.call(*[tensor(h, device) for h in hosts]), hosts, dtype)


def permuted(host: Any, device: Any) -> Any:
    order = tuple(reversed(range(host.ndim)))
    return xp.permute_dims(from_numpy(host.transpose(order), device, host.dtype), order)


def part_of_a_whole(host: Any, device: Any, sizes: Any, place: slice) -> Any:
    """Return the values as a view of a larger array."""
    whole, index = np.zeros([sizes(n) for n in host.shape], host.dtype), (place,) * host.ndim
    whole[index] = host
    return from_numpy(whole, device, host.dtype)[index]


LAYOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "permuted": permuted,
    "sliced": lambda *a: part_of_a_whole(*a, lambda n: 2 * n, slice(None, None, 2)),
    "negative": lambda *a: part_of_a_whole(*a, lambda n: n, slice(None, None, -1)),
    "offset": lambda *a: part_of_a_whole(*a, lambda n: n + 1, slice(1, None)),
}


@every_row
def test_layouts(row: OpRow, device: Any) -> None:
    """The result does not depend on the memory layout of the input."""
    hosts = tuple(typed(h, "float64") for h in drawn(row))
    for layout, placed in LAYOUTS.items():
        arrays = [placed(h, device) if h.ndim else from_numpy(h, device, h.dtype) for h in hosts]
        out = row.call(*[Tensor.make_const(a) for a in arrays])
        compare(row, out, hosts, "float64", f", {layout}")


@every_row
def test_repeated_elements(row: OpRow, device: Any) -> None:
    """Inputs whose first axis repeats one row (stride 0) give the same result."""
    hosts = [typed(h, "float64") for h in drawn(row)]
    repeated, arrays = [], []
    for host in hosts:
        first = host[:1] if host.ndim else host
        repeated.append(np.broadcast_to(first, host.shape))
        arrays.append(xp.broadcast_to(from_numpy(first, device, host.dtype), host.shape))
    out = row.call(*[Tensor.make_const(a) for a in arrays])
    compare(row, out, tuple(repeated), "float64")


SIZED = [(row, n) for row in ROWS if row.resize for n in (1, 0) if n or row.empty]


@pytest.mark.parametrize(("row", "size"), SIZED, ids=[f"{row.id}-{n}" for row, n in SIZED])
def test_sizes(row: OpRow, size: int, device: Any) -> None:
    hosts = tuple(typed(h[:size], "float64") for h in drawn(row))
    compare(row, row.call(*[tensor(h, device) for h in hosts]), hosts, "float64")


@pytest.mark.parametrize("row", [row for row in ROWS if row.order], ids=lambda row: row.id)
def test_gradients(row: OpRow, device: Any) -> None:
    """Gradients of every order agree with differences along random directions in float64."""
    hosts = [tensor(h, device) if h.dtype.kind != "f" else h for h in drawn(row)]
    check_gradients(row.call, *hosts, order=row.order, device=device)


@pytest.mark.parametrize("row", [row for row in ROWS if row.order], ids=lambda row: row.id)
def test_backward_keeps_dtype_and_inputs(row: OpRow, device: Any) -> None:
    """Gradients of float32 inputs are float32, and no pass writes to an input."""
    hosts = tuple(typed(h, "float32") for h in drawn(row))
    tensors = [tensor(h, device) for h in hosts]
    total = None
    for out in results(row.call(*tensors)):
        total = out.sum() if total is None else total + out.sum()
    assert total is not None
    total.backward()
    for host, given in zip(hosts, tensors):
        assert np.array_equal(given.numpy(), host)
        if host.dtype.kind == "f" and given.grad is not None:
            assert given.grad.shape == host.shape
            if row.out_dtype is None:
                assert given.grad.dtype == "float32"


@pytest.mark.parametrize("row", [row for row in ROWS if not row.order], ids=lambda row: row.id)
def test_not_differentiable(row: OpRow, device: Any) -> None:
    tensors = [tensor(h, device) for h in drawn(row)]
    for out in results(row.call(*tensors)):
        if out.requires_grad:
            (out.astype("float64").sum()).backward()
    assert all(given.grad is None for given in tensors)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.message)
def test_errors(failure: Any, device: Any) -> None:
    with pytest.raises(failure.error) as raised:
        failure.call(lambda host: tensor(host, device))
    assert failure.message in str(raised.value)


def test_every_op_has_a_row() -> None:
    assert set(REGISTRY) == {row.name for row in ROWS}
