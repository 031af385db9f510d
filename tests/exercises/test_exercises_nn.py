"""Part 3 of the course: initial values, layers, optimisers, and an epoch of training."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from by_hand import outcome
from toy_graph import DEVICE, tensor

from apps.course.compare import expect, expect_error
from needle import Tensor, init, nn
from needle.errors import DTypeError, ShapeError
from needle.nn import Module, Parameter

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 3))


# ---- kaiming -------------------------------------------------------------------------------------


def seeded(draw: Callable[..., Array], *shape: int) -> Array:
    """Return the first numbers of seed 0, which the next call draws again."""
    np.random.seed(0)
    drawn = draw(*shape)
    np.random.seed(0)
    return drawn


@pytest.mark.exercise("kaiming")
def test_kaiming_uniform() -> None:
    drawn = seeded(np.random.rand, 6, 5)
    bound = math.sqrt(2) * math.sqrt(3 / 6)
    expect(
        "kaiming_uniform(6, 5)",
        init.kaiming_uniform(6, 5),
        (2 * drawn - 1) * bound,
        rtol=1e-5,
        given={"np.random.rand(6, 5)": drawn},
        atol=1e-6,
        mistakes={
            "the bound depends on fan_in, the first argument": (2 * drawn - 1) * math.sqrt(6 / 5),
            "the gain is missing: sqrt(2) for relu": (2 * drawn - 1) * math.sqrt(3 / 6),
            "the root is missing: gain * sqrt(3 / fan_in)": (2 * drawn - 1) * math.sqrt(2) * 3 / 6,
            "the numbers lie between -a and a, not between 0 and a": drawn * bound,
        },
    )
    expect(
        "its shape with shape=(2, 3, 5)",
        init.kaiming_uniform(6, 5, (2, 3, 5)).shape,
        (2, 3, 5),
        mistakes={"shape was not used": (6, 5)},
    )
    drawn = seeded(np.random.rand, 4, 3)
    expect(
        "kaiming_uniform(48, 3, (4, 3))",
        init.kaiming_uniform(48, 3, (4, 3)),
        (2 * drawn - 1) / math.sqrt(8),
        rtol=1e-5,
        atol=1e-6,
        mistakes={
            "the bound depends on fan_in, not on the shape": (2 * drawn - 1) * math.sqrt(6 / 4)
        },
    )
    np.random.seed(0)
    expect(
        "kaiming_uniform(3, 3, (4, 3), nonlinearity='linear')",
        init.kaiming_uniform(3, 3, (4, 3), nonlinearity="linear"),
        2 * drawn - 1,
        rtol=1e-5,
        atol=1e-6,
        mistakes={
            "nonlinearity was not used: the gain is _gain(nonlinearity)": (2 * drawn - 1)
            * math.sqrt(2)
        },
    )
    for function in (init.kaiming_uniform, init.kaiming_normal):
        what = f"{function.__name__}(0, 3)"
        with expect_error(what, ShapeError, "fan_in must be at least 1"):
            found = outcome(lambda: function(0, 3), ZeroDivisionError)  # noqa: B023
            divided = {"_check_fan was not called": "ZeroDivisionError"}
            expect(what, found, "ShapeError: ... fan_in must be at least 1", mistakes=divided)


@pytest.mark.exercise("kaiming")
def test_kaiming_normal() -> None:
    drawn = seeded(np.random.randn, 8, 5)
    expect(
        "kaiming_normal(8, 5)",
        init.kaiming_normal(8, 5),
        drawn * math.sqrt(2) / math.sqrt(8),
        given={"np.random.randn(8, 5)": drawn},
        rtol=1e-5,
        atol=1e-6,
        mistakes={
            "the gain is missing: sqrt(2) for relu": drawn / math.sqrt(8),
            "the root is missing: gain / sqrt(fan_in)": drawn * math.sqrt(2) / 8,
        },
    )


# ---- module-walk ---------------------------------------------------------------------------------


def parameter(value: float) -> Parameter:
    return Parameter(np.array([value]), device=DEVICE, dtype="float64")


class Inner(Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = parameter(1.0)
        self.register_buffer("mean", tensor([0.0], requires_grad=False))
        self.note = "no tensor"


class Outer(Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = parameter(2.0)
        self.inner = Inner()
        self.listed = [parameter(3.0), (Inner(), {"deep": parameter(4.0)})]
        self.again = self.inner
        self.same = self.first
        self.plain = tensor([5.0])


@pytest.mark.exercise("module-walk")
def test_parameters_are_found_in_order_and_once() -> None:
    names = outcome(lambda: [name for name, _ in Outer().named_parameters()], ValueError)
    expected = ["first", "inner.weight", "listed.0", "listed.1.0.weight", "listed.1.1.deep"]
    mistakes = {
        "shared parameters appear twice": [*expected, "again.weight", "same"],
        "dicts are not searched": expected[:-1],
        "lists and tuples may lie in others: search them at any depth": expected[:3],
        "the name of the module stands before that of its parameter": "ValueError",
    }
    expect("the names of the parameters", names, expected, mistakes=mistakes)


@pytest.mark.exercise("module-walk")
def test_a_module_that_knows_its_parent() -> None:
    outer = Outer()
    outer.inner.parent = outer
    names = outcome(lambda: [name for name, _ in outer.named_parameters()], RecursionError)
    circle = {"outer.inner.parent is outer: a module that was seen is not walked again": names}
    expected = ["first", "inner.weight", "listed.0", "listed.1.0.weight", "listed.1.1.deep"]
    expect(
        "the names of the parameters, if outer.inner.parent is outer",
        names,
        expected,
        mistakes=circle if names == "RecursionError" else None,
    )


@pytest.mark.exercise("module-walk")
def test_buffers_belong_to_the_state() -> None:
    found = list(Outer().state_dict())
    expected = [
        "first",
        "inner.weight",
        "inner.mean",
        "listed.0",
        "listed.1.0.weight",
        "listed.1.0.mean",
        "listed.1.1.deep",
    ]
    mistakes = {
        "buffers are missing: _is_state says what belongs to the state": [
            name for name in expected if not name.endswith("mean")
        ],
        "a plain Tensor is neither a Parameter nor a buffer": [*expected, "plain"],
    }
    expect("the names in state_dict()", found, expected, mistakes=mistakes)
    model = Outer().eval()
    expect(
        "training of a module in a tuple in a list, after eval()",
        model.listed[1][0].training,
        False,
    )  # type: ignore[index]


# ---- layers --------------------------------------------------------------------------------------


@pytest.mark.exercise("linear")
def test_linear() -> None:
    layer = nn.Linear(2, 2, dtype="float64")
    x, weight = np.array([[1.0, 2.0]]), np.array([[1.0, 10.0], [100.0, 1000.0]])
    layer.weight, layer.bias = tensor(weight), tensor([[3.0, 4.0]])
    given = {"x": x, "weight": weight, "bias": np.array([3.0, 4.0])}
    mistakes = {
        "the weight is (I, O): it is not transposed": x @ weight.T + given["bias"],
        "the bias is missing": x @ weight,
    }
    right = x @ weight + given["bias"]
    expect("Linear(2, 2)(x)", layer(tensor(x)), right, given=given, mistakes=mistakes)
    layer = nn.Linear(3, 2, dtype="float64")
    weight, bias = layer.weight.numpy(), np.array([10.0, 20.0])
    layer.bias = tensor(bias.reshape(1, 2))
    given = {"x": X, "weight": weight, "bias": bias}
    expect("Linear(3, 2)(x)", layer(tensor(X)), X @ weight + bias, given=given)
    more = X.reshape(2, 2, 3)
    right = more @ weight + bias
    flat = {"the leading axes are lost: reshape the result to (2, 2, 2)": right.reshape(4, 2)}
    expect("Linear(3, 2)(x) of x (2, 2, 3)", layer(tensor(more)), right, mistakes=flat)
    found = outcome(lambda: layer(tensor(X[0])), ShapeError, ValueError, IndexError)
    right = X[0] @ weight + bias
    if isinstance(found, str):
        mistakes = {"x may have no leading axis: make it (1, I) for the product": found}
    else:
        mistakes = {"the result has no leading axis, as x has none": right.reshape(1, 2)}
    expect("Linear(3, 2)(x) of x (3,)", found, right, mistakes=mistakes)
    layer.bias = None
    found = outcome(lambda: layer(tensor(X)), TypeError, DTypeError, AttributeError)
    mistakes = {"bias may be None": found} if isinstance(found, str) else {}
    expect("Linear(3, 2)(x) without bias", found, X @ weight, mistakes=mistakes)
    rule = "last axis must have in_features=3"
    what = "Linear(3, 2) of x (3, 4)"
    with expect_error(what, ShapeError, rule):
        try:
            layer(tensor(X.T))
        except ShapeError as error:
            late = {"the product found the mistake; check the last axis before it": True}
            named = "in_features" not in str(error)
            expect(f"{what}: the error lacks the rule", named, False, mistakes=late)
            raise


class Add(Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        return x + self.number


class Double(Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


@pytest.mark.exercise("compose")
def test_one_after_another_and_around() -> None:
    expect(
        "Sequential(Add(1), Double())(x)",
        nn.Sequential(Add(1), Double())(tensor(X)),
        (X + 1) * 2,
        given={"x": X},
        mistakes={
            "the last module is called first": X * 2 + 1,
            "each module gets the result of the one before, not x": X * 2,
            "only the first module was called": X + 1,
        },
    )
    found = outcome(lambda: nn.Sequential()(tensor(X)), UnboundLocalError, IndexError)
    expect("Sequential()(x)", found, X, mistakes={"without modules the result is x": found})
    mistakes = {
        "x is not added": X * 2,
        "fn(x) is missing": X,
    }
    given = {"x": X}
    got = nn.Residual(Double())(tensor(X))
    expect("Residual(Double())(x)", got, X * 2 + X, given=given, mistakes=mistakes)


@pytest.mark.exercise("dropout")
def test_dropout() -> None:
    layer, x = nn.Dropout(0.25), np.ones((4, 5))
    drawn = seeded(np.random.rand, 4, 5)
    kept = drawn <= 0.75
    mistakes = {
        "kept elements must be divided by 1 - p": kept * 1.0,
        "kept elements must be divided by 1 - p, not by p": kept / 0.25,
        "kept elements must be divided by 1 - p, not multiplied": kept * 0.75,
        "p is the probability of dropping, not of keeping": (drawn <= 0.25) / 0.75,
        "p is the probability of dropping, not of keeping, here and in the divisor": (drawn <= 0.25)
        / 0.25,
    }
    expect(
        "Dropout(0.25)(ones)",
        layer(tensor(x)),
        kept / 0.75,
        given={"kept": kept},
        mistakes=mistakes,
    )
    layer.eval()
    np.random.seed(0)
    state = np.random.get_state()[2]
    mistakes = {
        "elements were dropped: look at self.training": kept / 0.75,
        "elements were dropped and not scaled: look at self.training": kept * 1.0,
        "training has scaled already; evaluation returns x": x * 0.75,
    }
    expect("Dropout(0.25)(ones) in evaluation", layer(tensor(x)), x, mistakes=mistakes)
    drew = {"a mask was drawn, but not used: return x before": True}
    drawn_now = np.random.get_state()[2] != state
    expect("random numbers are drawn in evaluation", drawn_now, False, mistakes=drew)
