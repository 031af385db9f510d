"""DataParallel in one process, against sums in float64, and the registry of communicators."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import needle
from needle import nn
from needle.distributed import Communicator, DataParallel, communicator, names, register
from needle.distributed.communicator import tree_sum
from needle.errors import DistributedError, UnknownNameError


def model_and_batch() -> tuple[Any, Any, Any]:
    np.random.seed(5)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    random = np.random.default_rng(1)
    return model, random.standard_normal((20, 6)).astype(np.float32), random.integers(0, 3, 20)


def test_tree_sum_adds_strided_parts_first() -> None:
    random = np.random.default_rng(0)
    for count in (1, 2, 3, 6, 8, 12):
        parts = [random.standard_normal(7).astype(np.float32) for _ in range(count)]
        whole = tree_sum([p.copy() for p in parts])
        np.testing.assert_allclose(whole, np.sum(np.float64(parts), 0), atol=1e-5)
        for step in range(1, count + 1):
            own = count // step
            if count % step == 0 and own & (own - 1) == 0:
                partial = [tree_sum([p.copy() for p in parts[i::step]]) for i in range(step)]
                np.testing.assert_array_equal(tree_sum(partial), whole)


@pytest.mark.parametrize("slices", [None, 1, 4])
def test_average_is_that_of_all_samples(slices: int | None) -> None:
    """Gradients and running statistics, each slice computed by itself in the oracle."""
    model, images, labels = model_and_batch()
    parallel = DataParallel(model, Communicator(), slices)
    before = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    found: list[tuple[int, list[np.ndarray]]] = []
    for i in parallel.slices:
        x, y = images[i :: parallel.count], labels[i :: parallel.count]
        other, *_ = model_and_batch()
        other.load_state_dict({k: needle.Tensor(v) for k, v in before.items()})
        nn.SoftmaxLoss()(other(needle.Tensor(x)), y).backward()
        arrays = [p.grad.numpy() for p in other.parameters()]
        found.append((len(y), [*arrays, *(b.numpy() for b in other.buffers())]))
        with parallel.slice(len(y)) as numbers:
            nn.SoftmaxLoss()(model(needle.Tensor(x)), y).backward()
            numbers.append(float(i))
    sums = parallel.average()
    assert sums.tolist() == [20.0, sum(parallel.slices)]
    got = [p.grad.numpy() for p in model.parameters()] + [b.numpy() for b in model.buffers()]
    for place, array in enumerate(got):
        expected = sum(np.float64(n) * np.float64(arrays[place]) for n, arrays in found) / 20
        np.testing.assert_allclose(array, expected, rtol=2e-5, atol=1e-6)


def test_integer_buffers_count_steps_not_slices() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=None))
    parallel = DataParallel(model, Communicator(), 4)
    for _ in range(3):
        for _ in parallel.slices:
            with parallel.slice(3):
                model(needle.ones(3, 6)).sum().backward()
        parallel.average()
    counts = [b for b in model.buffers() if b.dtype == "int64"]
    assert [int(b.numpy()) for b in counts] == [3]


def test_a_parameter_without_gradient_keeps_none() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 2))
    parallel = DataParallel(model, Communicator())
    with parallel.slice(1):
        model[0](needle.ones(1, 3)).sum().backward()
    parallel.average()
    assert [p.grad is None for p in model.parameters()] == [False, False, True, True]


def test_mistakes() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(DistributedError, match="got 6 slices"):
        DataParallel(model, Communicator(), 6)
    with pytest.raises(DistributedError, match="got 0 slices"):
        DataParallel(model, Communicator(), 0)
    parallel = DataParallel(model, Communicator())
    with pytest.raises(DistributedError, match="needs 1 slices on this rank, got 0"):
        parallel.average()
    with parallel.slice(0):
        pass
    with pytest.raises(DistributedError, match="got one more"), parallel.slice(1):
        pass
    with pytest.raises(DistributedError, match="must have samples"):
        parallel.average()


def test_engines_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert names()[:2] == ["single", "mpi"]
    assert communicator("single") is communicator("single")
    assert communicator("single").size == 1

    class Own(Communicator):
        """An engine of a program."""

    register("own", Own)
    monkeypatch.setenv("NEEDLE_COMMUNICATOR", "own")
    assert isinstance(communicator(), Own)
    with pytest.raises(UnknownNameError, match="'singel'.*single"):
        communicator("singel")


def test_a_missing_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    with pytest.raises(DistributedError, match="pip install 'needle\\[mpi\\]'"):
        communicator("mpi")
