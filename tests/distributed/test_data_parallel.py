"""Test DataParallel in one process against float64 sums, and the registry of communicators."""

import copy
import pickle
import sys
from typing import Any

import numpy as np
import pytest

import needle
from needle import nn
from needle.distributed import (
    Communicator,
    DataParallel,
    communicator,
    names,
    register,
    synchronise_batch_norm,
)
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
    """The oracle computes gradients and running statistics of each slice separately."""
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


class Doubling(Communicator):
    """A stand-in for a group of two ranks with equal gradients; it records the size of each sum."""

    size = 2

    def __init__(self) -> None:
        self.sums: list[int] = []

    def begin_all_reduce(self, array: Any, ordered: bool = False) -> Any:
        self.sums.append(array.size)
        array *= 2
        return lambda: None


def bucket_per_layer(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, DataParallel]:
    """Return three layers, of 15, 8 and 6 parameters, and their DataParallel."""
    monkeypatch.setattr("needle.distributed.flat.BUCKET_BYTES", 24)
    monkeypatch.setattr("needle.distributed.data_parallel.require_same", lambda *_: None)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2), nn.Linear(2, 2))
    return model, DataParallel(model, Doubling())


def test_buckets_are_sent_during_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    model, parallel = bucket_per_layer(monkeypatch)
    group: Any = parallel.group
    at_first_layer: list[list[int]] = []
    for captured in (False, True, True):
        group.sums.clear()

        def passes(x: needle.Tensor) -> needle.Tensor:
            loss = model(x).mean()
            loss.backward()
            return loss

        step = needle.capture(passes, state=model) if captured else passes
        x = needle.Tensor(np.random.default_rng(0).standard_normal((5, 4)))
        with parallel.slice(5):
            step(x)
            at_first_layer.append(list(group.sums))
        parallel.average()
        found = [p.grad.numpy() for p in model.parameters()]
        passes(x)  # hooks do nothing outside of a slice
        for p, grad in zip(model.parameters(), found):
            np.testing.assert_allclose(grad, p.grad.numpy(), rtol=1e-6)
    assert at_first_layer == [[6, 8]] * 3
    assert group.sums == [6, 8, 15 + 6, 1]  # the last sum is the number of samples


def test_a_bucket_with_an_unused_parameter_is_sent_after_backward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, parallel = bucket_per_layer(monkeypatch)
    with parallel.slice(5):
        model[2](needle.ones(5, 2)).sum().backward()
    parallel.average()
    assert [p.grad is None for p in model.parameters()] == [True] * 4 + [False] * 2
    np.testing.assert_array_equal(model[2].weight.grad.numpy(), np.full((2, 2), 5.0))


@pytest.mark.parametrize("again", ["weight", "bias"])
def test_a_slice_has_one_backward_pass(monkeypatch: pytest.MonkeyPatch, again: str) -> None:
    """The gradient of a weight completes its bucket; that of a bias is sent with it."""
    model, parallel = bucket_per_layer(monkeypatch)
    with pytest.raises(DistributedError, match="one backward pass"), parallel.slice(5):
        model(needle.ones(5, 4)).sum().backward()
        getattr(model[2], again).sum().backward()


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


@pytest.mark.parametrize("slices", [None, 2])
def test_a_step_that_an_exception_ends_can_begin_again(slices: int | None) -> None:
    found = []
    for fails in (False, True):
        model, images, labels = model_and_batch()
        parallel = DataParallel(model, Communicator(), slices)
        if fails:
            with pytest.raises(KeyboardInterrupt), parallel.slice(9):
                nn.SoftmaxLoss()(model(needle.Tensor(images[:9])), labels[:9]).backward()
                raise KeyboardInterrupt
        for i in parallel.slices:
            x, y = images[i :: parallel.count], labels[i :: parallel.count]
            with parallel.slice(len(y)) as numbers:
                nn.SoftmaxLoss()(model(needle.Tensor(x)), y).backward()
                numbers.append(1.0)
        assert parallel.average().tolist() == [20.0, len(parallel.slices)]
        found.append([p.grad.numpy() for p in model.parameters()])
        found[-1] += [b.numpy() for b in model.buffers()]
    for whole, again in zip(*found, strict=True):
        np.testing.assert_array_equal(again, whole)


class Buffered(nn.Module):
    """A layer with a buffer; the forward pass assigns ``next`` if it is set."""

    def __init__(self, values: Any, dtype: str) -> None:
        super().__init__()
        self.layer, self.next = nn.Linear(3, 2), None
        self.register_buffer("held", needle.Tensor(np.array(values), dtype=dtype))

    def forward(self, x: Any) -> Any:
        if self.next is not None:
            self.held = needle.Tensor(np.array(self.next), dtype=self.held.dtype)
        return self.layer(x)


@pytest.mark.parametrize(
    ("dtype", "before", "after"),
    [
        ("float32", np.random.default_rng(0).standard_normal(50), np.arange(50.0)),
        ("float32", [0.0, -np.inf], [1.0, -np.inf]),
        ("float32", [np.inf, -np.inf], [3.0, 5.0]),
        ("bool", [True, False, True], [False, True, True]),
        ("uint8", [3, 200], [200, 3]),
        ("int64", [2**40 + 1, 0], [2**40 + 2, -1]),
    ],
)
def test_buffers_of_each_dtype(dtype: str, before: Any, after: Any) -> None:
    """Unchanged buffers keep their bits; those that all slices change alike get the new value."""
    model = Buffered(before, dtype)
    parallel = DataParallel(model, Communicator(), 4)
    for new in (None, None, after):
        model.next = new
        for samples in (23, 11, 7, 0):
            with parallel.slice(samples):
                if samples:
                    model(needle.ones(2, 3)).sum().backward()
        parallel.average()
        assert model.held.dtype == dtype
        expected = np.array(before if new is None else new, dtype)
        rounding = 0.0 if new is None else 1e-6
        np.testing.assert_allclose(model.held.numpy(), expected, rtol=rounding)


def test_a_parameter_without_gradient_keeps_none() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 2))
    parallel = DataParallel(model, Communicator())
    with parallel.slice(1):
        model[0](needle.ones(1, 3)).sum().backward()
    parallel.average()
    assert [p.grad is None for p in model.parameters()] == [False, False, True, True]


def test_a_gradient_of_one_slice_alone_is_averaged_over_all_samples() -> None:
    """The second step reuses vectors that have held other gradients."""
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 2))
    parallel = DataParallel(model, Communicator(), 2)
    for last in (1, 0):
        with parallel.slice(1):
            sum(layer(needle.ones(1, 3)).sum() for layer in model).backward()
        with parallel.slice(3):
            sum(layer(needle.ones(3, 3)).sum() for layer in list(model)[: 1 + last]).backward()
        parallel.average()
    found = [float(p.grad.numpy().max()) for p in model.parameters()]
    assert found == [2.5, 2.5, 0.25, 0.25]  # (1 + 3 * 3) / 4, 1 / 4


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_synchronised_batch_norm_of_one_process_is_batch_norm(
    affine: bool, activation: str | None
) -> None:
    options: dict[str, Any] = {"affine": affine, "activation": activation, "dtype": "float64"}
    random = np.random.default_rng(3)
    x, added, grad = random.standard_normal((3, 4, 5, 3, 2))
    found = []
    for synchronised in (False, True):
        norm = nn.BatchNorm2d(5, **options)
        if affine:
            norm.weight.data = needle.Tensor(np.arange(1.0, 6.0), dtype="float64")
        if synchronised:
            synchronise_batch_norm(norm, Communicator())
        for layer in (norm, copy.deepcopy(norm), pickle.loads(pickle.dumps(norm))):
            images = needle.Tensor(x, dtype="float64", requires_grad=True)
            more = () if activation is None else (needle.Tensor(added, dtype="float64"),)
            result = layer(images, *more)
            result.backward(needle.Tensor(grad, dtype="float64"))
            tensors = [result, images.grad, *layer.buffers()]
            tensors += [p.grad for p in layer.parameters()]
            layer.eval()
            found.append([t.numpy() for t in (*tensors, layer(images, *more))])
    for other in found[1:]:
        assert len(other) == len(found[0]) == (7 if affine else 5)
        for got, expected in zip(other, found[0]):
            np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-12)


def test_synchronised_batch_norm_needs_samples_and_no_slices() -> None:
    model, *_ = model_and_batch()
    synchronise_batch_norm(model)
    with pytest.raises(DistributedError, match=r"batch norm over all processes needs slices=None"):
        DataParallel(model, slices=2)
    parallel = DataParallel(model)
    message = "samples on every rank, got none on rank 0"
    with pytest.raises(DistributedError, match=message), parallel.slice(0):
        pass


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
        """A user-defined communicator."""

    register("own", Own)
    monkeypatch.setenv("NEEDLE_COMMUNICATOR", "own")
    assert isinstance(communicator(), Own)
    with pytest.raises(UnknownNameError, match="'singel'.*single"):
        communicator("singel")
    with pytest.raises(UnknownNameError, match="'nccl'; known: mpi, .*single. Use mpi; .* GPUs"):
        communicator("nccl")


def test_a_missing_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    with pytest.raises(DistributedError, match="pip install 'needle\\[mpi\\]'"):
        communicator("mpi")
