"""Test tensors as leaves of the graph: construction, identity, data, copies."""

import copy
import gc
import pickle
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import Tensor, autograd, nn
from needle.errors import DTypeError, ShapeError
from tests.test_autograd import leaf

# ---- leaves ----------------------------------------------------------------------------------


def test_construction_and_repr() -> None:
    a = Tensor([[1, 2], [3, 4]], dtype="float32")
    assert (a.shape, a.ndim, a.size, len(a), a.dtype) == ((2, 2), 2, 4, 2, "float32")
    assert a.requires_grad and a.grad is None and a.is_leaf()
    assert [row.numpy().tolist() for row in a] == [[1, 2], [3, 4]]
    assert Tensor(a).cached_data is a.cached_data
    wide = Tensor(a, dtype="float64")
    assert wide.dtype == "float64" and a.dtype == "float32"
    assert str(a.device) in repr(a) and "float32" in repr(a) and repr(a).startswith("needle.Tensor")
    assert "op=Exp" in repr(a.exp())
    assert isinstance(a.sum().numpy(), np.ndarray) and a.sum().numpy().ndim in (0, 1)
    assert float(a.sum()) == 10.0 and a.sum().item() == 10.0 and bool(a.sum() > 3)
    assert np.asarray(a, dtype="float64").dtype == "float64"
    with pytest.raises(ShapeError, match=r"item: the tensor must have one element, got shape \(2"):
        a.item()
    with pytest.raises(TypeError):
        len(a.sum().reshape(()))


def test_identity() -> None:
    a, b = leaf([1.0]), leaf([1.0])
    assert a == a and a != b and len({a, b, a}) == 2
    before = a
    a += 1
    assert a is not before and before.item() == 1.0


def test_writes_into_the_copy_that_numpy_returns_are_errors() -> None:
    x = leaf([1.0, 2.0])
    for host in (x.numpy(), np.asarray(x), (x + 0).numpy(), *ndl.make_tuple(x).numpy()):
        with pytest.raises(ValueError, match="read-only"):
            host[0] = 5.0
    changed = np.array(x)
    changed[0] = 5.0
    assert x.numpy().tolist() == [1.0, 2.0] and changed.tolist() == [5.0, 2.0]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3,), (0,), (2, 3)])
def test_a_weight_is_true_as_an_object(shape: tuple[int, ...]) -> None:
    weight = nn.Parameter(np.zeros(shape))
    frozen = nn.Parameter(np.zeros(shape), requires_grad=False)
    assert weight and frozen and (weight or None) is weight
    assert Tensor(np.ones(shape))  # programs replace a layer's weight by a plain Tensor


def test_a_plain_weight_of_0_warns_of_its_truth() -> None:
    with pytest.warns(UserWarning, match="its only element is 0"):
        assert Tensor(0.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda w: w > 0,
        lambda w: ndl.logical_and(w > 0, w < 1),
        lambda w: ndl.equal(w, 1),
        lambda w: w * 1,
        lambda w: w.detach(),
        lambda w: Tensor(w.numpy(), requires_grad=False),
        lambda w: Tensor(w.numpy(), dtype="int64"),
        lambda w: Tensor(w.numpy(), dtype="bool"),
    ],
)
def test_the_truth_of_a_result_is_that_of_its_only_element(make: Any) -> None:
    for value in (0.0, 1.0):
        weight = nn.Parameter([value])
        result = make(weight)
        assert weight and bool(result) is bool(result.item())
    for shape in [(2,), (0,), (2, 2)]:
        with pytest.raises(ShapeError):
            bool(make(nn.Parameter(np.ones(shape))))


def labels(*numbers: int) -> Tensor:
    return Tensor(list(numbers), dtype="int64")


@pytest.mark.parametrize(
    "accuracy",
    [
        lambda p, y: (p == y).sum(),
        lambda p, y: (p != y).mean(),
        lambda p, y: (y == 1).sum(),
        lambda p, y: (p == y.numpy()).sum(),
        lambda p, y: np.mean(p == y),
        lambda p, y: np.asarray(p == y),
        lambda p, y: float(p[0] == y[0]),
        lambda p, y: sum([p[0] == y[0], p[1] == y[1]]),
        lambda p, y: 0 + (p == y),
        lambda p, y: (p == y) * 1.0,
        lambda p, y: Tensor(np.ones(2)) * (p == y),
        lambda p, y: ~(p == y),
        lambda p, y: (p == y)[0],
        lambda p, y: list(p == y),
        lambda p, y: (p == y) & (p == p),
        lambda p, y: (p == y) ** 2,
        lambda p, y: (p == y) // 1,
        lambda p, y: 100 % (p == y),
        lambda p, y: round(p == y),
        lambda p, y: abs(p == y),
        lambda p, y: 1 in (p == y),
    ],
)
def test_identity_is_no_array(accuracy: Any) -> None:
    for dtype in ("int64", "float32"):
        p, y = labels(1, 2).astype(dtype), labels(1, 3).astype(dtype)
        with pytest.raises((TypeError, AttributeError), match=r"needle\.equal\(a, b\)"):
            accuracy(p, y)


@pytest.mark.parametrize(
    "comparison",
    [
        lambda p, y: p == y,
        lambda p, y: p[0] == y[0],
        lambda p, y: p.astype("float32") == y,
        lambda p, y: p[0] == 1,
        lambda p, y: np.float32(1) == p[0],
        lambda p, y: p == np.array([1, 2]),
        lambda p, y: np.array([1, 2]) == p,
    ],
)
def test_identity_of_what_looks_like_labels_warns_as_a_condition(comparison: Any) -> None:
    p, y = labels(1, 2), labels(1, 2)
    assert "needle.equal" in repr(comparison(p, y))
    with pytest.warns(UserWarning, match=r"needle\.equal\(a, b\)"):
        assert not comparison(p, y)


def test_identity_is_silent_in_programs_of_the_course(recwarn: pytest.WarningsRecorder) -> None:
    nodes = [leaf([1.0]) for _ in range(4)]
    a, b, *_ = nodes
    assert nodes[3] in nodes and leaf([1.0]) not in nodes and nodes.index(b) == 1
    nodes.remove(b)
    assert b not in nodes and {a: 1, b: 2}[b] == 2 and a in {a} and b not in {a}
    assert a != None and a != "a" and (a, b) == (a, b) and a == a  # noqa: E711
    assert (a == b) == False and (a != b) == True  # noqa: E712
    assert repr(a == b) == "False" and hash(a != b) == hash(True)
    assert a != [1.0] and a not in [[1.0], (1.0,)]
    assert labels(1) != labels(1, 2) and not recwarn.list


def test_data_and_detach() -> None:
    a = leaf([1.0, 2.0])
    d = (a * 2).detach()
    assert d.op is None and not d.requires_grad
    assert a.data.cached_data is a.cached_data and not a.data.requires_grad
    a.data = leaf([[1.0], [2.0], [3.0]])
    assert a.shape == (3, 1)
    with pytest.raises(DTypeError, match="data: the dtype must stay float64, got float32; cast"):
        a.data = Tensor([1.0], dtype="float32")
    with pytest.raises(TypeError, match=r"data: .* must be a Tensor, got ndarray; convert it with"):
        a.data = np.ones(2)
    assert a.shape == (3, 1)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))], ids=["deepcopy", "pickle"]
)
def test_copies_are_leaves(copied: Any) -> None:
    gc.collect()
    count = autograd.TENSOR_COUNTER
    for tensor in (leaf([1.0, 2.0]), leaf([3.0], requires_grad=False), leaf([1.0]) * 2):
        other = copied(tensor)
        assert other.op is None and other.requires_grad == tensor.requires_grad
        assert np.array_equal(other.numpy(), tensor.numpy()) and other.dtype == tensor.dtype
        assert other.cached_data is not tensor.cached_data
    del tensor, other
    assert count == autograd.TENSOR_COUNTER


def test_a_deep_copy_of_a_model_steps_like_the_model_itself() -> None:
    model = nn.Linear(2, 1)
    model(leaf([[1.0, 2.0]])).sum().backward()
    other = copy.deepcopy(model)
    for each in (model, other):
        ndl.optim.SGD(each.parameters(), lr=0.5).step()
    assert np.array_equal(other.weight.numpy(), model.weight.numpy())
    assert other.weight.grad is not model.weight.grad


def test_a_copied_gradient_is_a_constant() -> None:
    a = leaf([1.0, 2.0])
    (a**3).sum().backward()
    other = copy.deepcopy(a)
    assert np.array_equal(other.grad.numpy(), a.grad.numpy())
    with pytest.warns(UserWarning, match="the tensor is a constant"):
        other.grad.sum().backward()


class Made(Tensor):
    def __reduce__(self) -> Any:
        return Made.make, (self.numpy(),)

    @classmethod
    def make(cls, array: Any) -> Any:
        made = cls(array)
        made.notes = "made"  # type: ignore[attr-defined]
        return made


def test_a_subclass_decides_how_it_is_copied() -> None:
    assert copy.deepcopy(Made([1.0])).notes == "made"  # type: ignore[attr-defined]


def test_shallow_copy_shares() -> None:
    a = leaf([1.0])
    assert copy.copy(a).cached_data is a.cached_data


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'devise'"):
        Tensor([1.0], devise="cpu")  # type: ignore[call-arg]
