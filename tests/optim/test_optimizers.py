"""Test optimisers: float64 formulas, the course's behaviour, groups, clipping, state."""

from __future__ import annotations

import copy
import functools
import math

import numpy as np
import pytest

import needle as ndl
from needle import optim
from needle.autograd import refs
from needle.backends.base import View
from needle.errors import CheckpointError, GraphError, ShapeError
from tests.nn_devices import NUMPY_MODE, close

SHAPES = [(3, 4), (4,)]
TOLERANCES = {"float32": (2e-6, 2e-7), "float64": (1e-11, 1e-12)}
"""Relative and absolute."""


@pytest.fixture
def native():
    """Return the device whose kernels update in place."""
    found = ndl.cpu()
    if NUMPY_MODE or not found.enabled():
        pytest.skip("NumPy has no kernel that steps in place, or the extension is not built")
    return found


def make_params(device, dtype="float32", shapes=SHAPES):
    rng = np.random.default_rng(0)
    return [
        ndl.nn.Parameter(np.asarray(rng.standard_normal(s), dtype), device=device, dtype=dtype)
        for s in shapes
    ]


def sgd(lr=0.01, momentum=0.0, weight_decay=0.0, nesterov=False, dampening=None):
    """Return a step of SGD; where ``dampening`` is given, the first velocity is the gradient."""
    share = 1 - (0.0 if nesterov else momentum) if dampening is None else 1 - dampening

    def step(p, g, state, t):
        g = g + weight_decay * p
        whole = dampening is not None and t == 1
        v = state["v"] = momentum * state.get("v", 0.0) + (1 if whole else share) * g
        return p - lr * (g + momentum * v if nesterov else v)

    return step


def moments(p, g, state, lr, beta1, beta2, decay, decoupled):
    """Return the parameter after its weight decay, the gradient, and both moments."""
    p, g = (p * (1 - lr * decay), g) if decoupled else (p, g + decay * p)
    m = state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * g
    v = state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * g * g
    return p, g, m, v


def adam(
    lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=False, amsgrad=False
):
    def step(p, g, state, t):
        p, g, m, v = moments(p, g, state, lr, beta1, beta2, weight_decay, decoupled)
        if amsgrad:
            v = state["top"] = np.maximum(state.get("top", 0.0), v)
        return p - lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)

    return step


def nadam(
    lr=0.002, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, slower=0.004,
    decoupled_weight_decay=False,
):  # fmt: skip
    def step(p, g, state, t):
        p, g, m, v = moments(p, g, state, lr, beta1, beta2, weight_decay, decoupled_weight_decay)
        mu = beta1 * (1 - 0.96 ** (slower * np.arange(1, t + 2)) / 2)
        m = mu[t] * m / (1 - mu.prod()) + (1 - mu[t - 1]) * g / (1 - mu[:t].prod())
        return p - lr * m / (np.sqrt(v / (1 - beta2**t)) + eps)

    return step


def radam(
    lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled_weight_decay=False
):
    def step(p, g, state, t):
        p, g, m, v = moments(p, g, state, lr, beta1, beta2, weight_decay, decoupled_weight_decay)
        top = 2 / (1 - beta2) - 1
        rho = top - 2 * t * beta2**t / (1 - beta2**t)
        if rho <= 5:
            return p - lr * m / (1 - beta1**t)
        share = (rho - 4) * (rho - 2) * top / ((top - 4) * (top - 2) * rho)
        spread = (np.sqrt(v) + eps) / np.sqrt(1 - beta2**t)
        return p - lr * np.sqrt(share) * m / (1 - beta1**t) / spread

    return step


def rmsprop(lr=0.01, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):
    def step(p, g, state, t):
        g = g + weight_decay * p
        v = state["v"] = alpha * state.get("v", 0.0) + (1 - alpha) * g * g
        m = state["m"] = alpha * state.get("m", 0.0) + (1 - alpha) * g
        u = g / (np.sqrt(v - m * m if centered else v) + eps)
        u = state["u"] = momentum * state.get("u", 0.0) + u
        return p - lr * u

    return step


def adagrad(lr=0.01, lr_decay=0.0, weight_decay=0.0, start=0.0, eps=1e-10):
    def step(p, g, state, t):
        g = g + weight_decay * p
        v = state["v"] = state.get("v", start) + g * g
        return p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(v) + eps)

    return step


FORMULAS = {
    optim.SGD: sgd,
    optim.Adam: adam,
    optim.AdamW: functools.partial(adam, decoupled=True),
    optim.NAdam: nadam,
    optim.RAdam: radam,
    optim.RMSprop: rmsprop,
    optim.Adagrad: adagrad,
}
"""Each optimiser's step in float64, (p, g, state, t) -> p, made with the optimiser's arguments."""
UP = {"maximize": True}
DECOUPLED = {"weight_decay": 0.3, "decoupled_weight_decay": True}
CASES = {
    "sgd": (optim.SGD, (0.1,), {}),
    "sgd_decay": (optim.SGD, (0.1, 0.0, 0.2), {}),
    "sgd_course_momentum": (optim.SGD, (0.1, 0.9, 0.01), {}),
    "sgd_torch_momentum": (optim.SGD, (0.1, 0.9), {"dampening": 0.0}),
    "sgd_nesterov": (optim.SGD, (0.1, 0.8, 0.1), {"nesterov": True}),
    "sgd_dampening": (optim.SGD, (0.1, 0.8), {"dampening": 0.3}),
    "sgd_maximize": (optim.SGD, (0.1, 0.9, 0.01), UP),
    "adam": (optim.Adam, (), {}),
    "adam_options": (optim.Adam, (0.1, 0.8, 0.95, 1e-3, 0.1), {}),
    "adam_maximize": (optim.Adam, (), UP),
    "adamw": (optim.AdamW, (0.1,), {"weight_decay": 0.3}),
    "amsgrad": (optim.Adam, (0.1, 0.5, 0.6), {"amsgrad": True}),
    "amsgrad_decoupled": (optim.AdamW, (0.1, 0.5, 0.6), {"weight_decay": 0.3, "amsgrad": True}),
    "nadam": (optim.NAdam, (), {}),
    "nadam_options": (optim.NAdam, (0.1, 0.8, 0.95, 1e-3, 0.1, 2.0), UP),
    "nadam_decoupled": (optim.NAdam, (0.1,), DECOUPLED),
    "radam": (optim.RAdam, (), {}),
    "radam_options": (optim.RAdam, (0.1, 0.8, 0.8, 1e-3, 0.1), UP),  # rectified from step 3 on
    "radam_decoupled": (optim.RAdam, (0.1, 0.8, 0.9), DECOUPLED),
    "rmsprop": (optim.RMSprop, (), {}),
    "rmsprop_options": (optim.RMSprop, (0.1, 0.7, 1e-3, 0.1, 0.8), {}),
    "rmsprop_centered": (optim.RMSprop, (0.1, 0.7, 1e-2), {"centered": True}),
    "adagrad": (optim.Adagrad, (0.1,), {}),
    "adagrad_options": (optim.Adagrad, (0.1, 0.2, 0.1, 0.5, 1e-3), UP),
}


def made(name, params):
    make, args, options = CASES[name]
    return make(params, *args, **options)


def formula(name):
    make, args, options = CASES[name]
    others = {key: value for key, value in options.items() if key != "maximize"}
    step, sign = FORMULAS[make](*args, **others), -1 if "maximize" in options else 1
    return lambda p, g, state, t: step(p, sign * g, state, t)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CASES)
def test_steps_follow_the_formula(name, dtype, device):
    rng = np.random.default_rng(1)
    params = make_params(device, dtype, [*SHAPES, ()])
    expected = [p.numpy().astype("float64") for p in params]
    states: list[dict] = [{} for _ in params]
    optimizer, reference = made(name, params), formula(name)
    for t in range(1, 5):
        grads = [np.asarray(rng.standard_normal(p.shape), dtype) for p in params]
        for p, g in zip(params, grads, strict=True):
            p.grad = ndl.Tensor(g, device=device, dtype=dtype)
        kept = [(p.data, p.numpy()) for p in params if t % 2]  # if none is shared, steps in place
        optimizer.step()
        assert all(np.array_equal(old.numpy(), before) for old, before in kept)
        assert all(np.array_equal(p.grad.numpy(), g) for p, g in zip(params, grads))
        expected = [
            reference(p, g.astype("float64"), state, t)
            for p, g, state in zip(expected, grads, states, strict=True)
        ]
    for p, e in zip(params, expected, strict=True):
        assert p.shape == e.shape and p.dtype == dtype and isinstance(p, ndl.nn.Parameter)
        close(p, e, *TOLERANCES[dtype])
    params[-1].realize_cached_data()[...] = 5.0  # a 0-d array, not a NumPy scalar
    assert params[-1].item() == 5.0


def test_a_parameter_without_gradient_is_skipped(device):
    first, second = make_params(device)
    before = second.numpy().copy()
    optimizer = optim.Adam([first, second])
    first.grad = ndl.init.ones(*first.shape, device=device)
    optimizer.step()
    close(second, before, rtol=0, atol=0)
    assert second not in optimizer.state
    for reset in (optimizer.reset_grad, optimizer.zero_grad):
        first.grad = ndl.init.ones(*first.shape, device=device)
        reset()
        assert first.grad is None


def with_gradient(device):
    """Return a parameter and its optimiser after a first backward through w * w."""
    w = ndl.nn.Parameter(np.arange(1.0, 7.0).reshape(2, 3), device=device, dtype="float32")
    (w * w).sum().backward()
    return w, optim.SGD([w], lr=0.25, momentum=0.9, dampening=0.0)


def buffer_of(w):
    return w.cached_data.view.handle


@pytest.mark.skipif(not refs.TELL, reason="reference counts are off")
@pytest.mark.parametrize("name", ["sgd", "adam", "sgd_dampening"])
def test_a_value_without_other_references_is_changed_in_place(name, native):
    w, _ = with_gradient(native)
    optimizer, before, buffer = made(name, [w]), w.numpy(), id(buffer_of(w))
    optimizer.step()
    assert id(buffer_of(w)) == buffer
    assert (w.numpy() < before).all()


def adopted(w):
    """Return a host array whose memory the parameter uses."""
    host = w.numpy().copy()  # the memory must be writable
    w.data = ndl.Tensor.make_const(ndl.backend_selection.adopt(host, w.device))
    return host


KEEPERS = {
    "the array": lambda w: w.cached_data,
    "a constant": lambda w: w.data,
    "a view": lambda w: w.cached_data.permute((1, 0)),
    "a slice": lambda w: w.cached_data[0],
    "another tensor's view": lambda w: w.reshape((3, 2)),
    "NumPy, sharing memory": lambda w: np.from_dlpack(w.cached_data),
    "a kernel's view": lambda w: w.cached_data.view,
    "the buffer": buffer_of,
    "a host array": adopted,
}


def values_of(kept, device):
    """Return the values of an array, a buffer or a view."""
    if isinstance(kept, View):
        return device.backend.download(kept)
    return kept.numpy() if hasattr(kept, "numpy") else np.asarray(kept)


@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_value_with_another_reference_is_not_changed(keeper, native):
    w, optimizer = with_gradient(native)
    before, kept, buffer = w.numpy(), KEEPERS[keeper](w), id(buffer_of(w))
    optimizer.step()
    assert id(buffer_of(w)) != buffer
    assert (w.numpy() == before / 2).all()
    assert np.isin(values_of(kept, native), before).all()  # the old buffer was not written to


def test_a_derivative_through_a_step_raises_instead_of_being_wrong(device):
    """The tape recomputes from the old data of its leaves, or raises if it was not kept."""
    w, optimizer = with_gradient(device)
    gradient = w.grad
    optimizer.step()
    if NUMPY_MODE:
        gradient.sum().backward()
        np.testing.assert_array_equal(w.grad.numpy(), np.full((2, 3), 2.0))
        return
    with pytest.raises(GraphError, match=r"a leaf of shape \(2, 3\) has been replaced"):
        gradient.sum().backward()


def test_gradients_of_another_layout_or_dtype_and_parameters_of_two_dtypes(device):
    a, b = (ndl.nn.Parameter(np.zeros((3, 2)), device=device, dtype=d) for d in TOLERANCES)
    values = np.arange(6.0).reshape(2, 3)
    for p in (a, b):
        p.grad = ndl.transpose(ndl.Tensor(values, device=device, dtype="float64"))
    optim.SGD([a, b], lr=1.0, momentum=0.5, dampening=0.0).step()
    for p, dtype in zip((a, b), TOLERANCES):
        assert p.dtype == dtype
        close(p, -values.T)


def test_groups_have_their_own_options_and_lr_sets_all():
    a, b = make_params(None)
    for p in (a, b):
        p.data = ndl.init.zeros(*p.shape, device=p.device)
        p.grad = ndl.init.ones(*p.shape, device=p.device)
    optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 1.0}], lr=0.5)
    optimizer.step()
    close(a, np.full(a.shape, -0.5))
    close(b, np.full(b.shape, -1.0))
    assert optimizer.params == [a, b] and optimizer.lr == 0.5
    optimizer.lr = 0.25
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


def test_wrong_groups_are_refused():
    a, b = make_params(None)
    with pytest.raises(ValueError, match=r"unknown options \['rate'\]; known: .*'lr'"):
        optim.SGD([{"params": [a], "rate": 1}])
    with pytest.raises(ValueError, match="a parameter appears twice"):
        optim.SGD([{"params": [a]}, {"params": [b, a]}])
    assert optim.Adam(a).params == [a]
    with pytest.raises(ValueError, match="nesterov needs momentum > 0"):
        optim.SGD([a], nesterov=True)
    b.grad = ndl.init.ones(5, device=b.device)
    with pytest.raises(ShapeError, match=r"got \(5,\) for a parameter of shape \(4,\)"):
        optim.SGD([b]).step()


NOT_NEGATIVE = "must be a finite number of at least 0"
WRONG_OPTIONS = [
    (optim.SGD, {"lr": -0.1}, f"SGD: lr {NOT_NEGATIVE}, got -0.1; correct"),
    (optim.Adam, {"lr": float("nan")}, f"Adam: lr {NOT_NEGATIVE}, got nan"),
    (optim.AdamW, {"lr": float("inf")}, f"AdamW: lr {NOT_NEGATIVE}, got inf"),
    (optim.SGD, {"lr": "0.1"}, f"SGD: lr {NOT_NEGATIVE}, got '0.1'"),
    (optim.SGD, {"momentum": -1}, f"SGD: momentum {NOT_NEGATIVE}, got -1"),
    (optim.SGD, {"dampening": "no"}, "SGD: dampening must be a finite number or None, got 'no'"),
    (optim.SGD, {"momentum": 0.5, "nesterov": 2}, "SGD: nesterov must be True or False, got 2"),
    (optim.Adam, {"weight_decay": None}, f"Adam: weight_decay {NOT_NEGATIVE}, got None"),
    (optim.Adam, {"eps": -1e-8}, f"Adam: eps {NOT_NEGATIVE}, got -1e-08"),
    (optim.Adam, {"beta2": 1.0}, r"Adam: beta2 must be a number in \[0, 1\), got 1.0"),
    (optim.RMSprop, {"alpha": 1.0}, r"RMSprop: alpha must be a number in \[0, 1\), got 1.0"),
    (optim.Adagrad, {"lr_decay": -1.0}, f"Adagrad: lr_decay {NOT_NEGATIVE}, got -1.0"),
    (optim.NAdam, {"momentum_decay": -1}, f"NAdam: momentum_decay {NOT_NEGATIVE}, got -1"),
    (optim.RAdam, {"beta2": 1.0}, r"RAdam: beta2 must be a number in \[0, 1\), got 1.0"),
    (optim.AdamW, {"amsgrad": 1}, "AdamW: amsgrad must be True or False, got 1"),
    (optim.AdamW, {"beta1": -0.1}, r"AdamW: beta1 must be a number in \[0, 1\), got -0.1"),
]


@pytest.mark.parametrize(("make", "options", "message"), WRONG_OPTIONS)
def test_options_out_of_range_are_refused(make, options, message):
    (a, b) = make_params(None)
    with pytest.raises(ValueError, match=message):
        make([a], **options)
    optimizer = make([a])
    with pytest.raises(ValueError, match=message):
        optimizer.add_param_group({"params": [b], **options})
    assert optimizer.params == [a]


def test_options_at_the_limits_are_accepted_and_a_rate_set_later_is_checked():
    (a, b) = make_params(None)
    assert optim.Adam([a, b], beta1=0, beta2=0, eps=0).param_groups[0]["beta2"] == 0
    optimizer = optim.SGD([a, b], lr=0, momentum=np.float32(0.5), dampening=-1)
    with pytest.raises(ValueError, match=f"SGD: lr {NOT_NEGATIVE}, got nan"):
        optimizer.lr = float("nan")
    assert optimizer.lr == 0


def test_non_parameters_are_refused_by_name():
    (a, b) = make_params(None)
    for nothing in ([], (), iter([]), [{"params": []}]):
        with pytest.raises(ValueError, match="Adam: there must be at least one parameter, got n"):
            optim.Adam(nothing)
    linear = ndl.nn.Linear(2, 2)
    for wrong in (None, 3, linear, [a, None], [a, {"params": [b]}], {"weight": a}, [[a, b]], "ab"):
        with pytest.raises(TypeError, match=r"SGD: parameters must be Tensors, got \w+; pass"):
            optim.SGD(wrong)
    for wrong in ([{"params": [a]}, b], [{"lr": 0.1}]):
        with pytest.raises(TypeError, match="SGD: a parameter group must be a dict with 'params'"):
            optim.SGD(wrong)


def test_a_subclass_written_for_the_course_works():
    class Plain(optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params)
            self.lr = lr

        def step(self):
            for p in self.params:
                p.data = p.data - self.lr * p.grad.data

    (p, _) = make_params(None)
    before = p.numpy().copy()
    p.grad = ndl.init.ones(*p.shape, device=p.device)
    Plain([p]).step()
    close(p, before - 0.1)


def test_clipping_tiny_and_nan_gradients(device):
    params = make_params(device)
    for p in params:
        p.grad = ndl.Tensor(np.zeros(p.shape), device=device, dtype="float32")
    params[1].grad = ndl.Tensor([3e-6, 0, 0, 4e-6], device=device, dtype="float32")
    optim.clip_grad_norm(params, 1e-6)  # scaled by max_norm / (norm + 1e-6), as PyTorch does
    np.testing.assert_allclose(params[1].grad.numpy(), np.array([3e-6, 0, 0, 4e-6]) / 6, 1e-6)
    params[1].grad = ndl.Tensor([0, np.nan, 0, 0], device=device, dtype="float32")
    assert np.isnan(optim.clip_grad_norm(params, 1.0))
    assert all(np.isnan(p.grad.numpy()).all() for p in params)


@pytest.mark.parametrize("limit", [np.array(0.5), np.array([0.5]), ndl.Tensor([0.5])])
def test_a_norm_may_be_an_array_of_one_value(limit):
    (p, _) = make_params(None)
    p.grad = ndl.init.ones(*p.shape)
    optim.clip_grad_norm([p], limit)
    assert np.linalg.norm(p.grad.numpy()) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("limit", [-1.0, math.nan, None, "1", np.ones(2)])
def test_a_norm_that_is_no_limit_is_refused_and_changes_nothing(limit):
    (p, _) = make_params(None)
    p.grad = ndl.init.ones(*p.shape)
    kept = p.grad
    with pytest.raises(ValueError, match="clip_grad_norm: max_norm must be a number of at least 0"):
        optim.clip_grad_norm([p], limit)
    assert p.grad is kept
    optim.clip_grad_norm([p], math.inf)
    assert p.grad is kept


@pytest.mark.parametrize("name", CASES)
def test_state_dict_continues_the_run_exactly(name, device):
    def train(params, optimizer, seeds):
        for seed in seeds:
            rng = np.random.default_rng(seed)
            for p in params:
                p.grad = ndl.Tensor(rng.standard_normal(p.shape), device=device, dtype="float32")
            optimizer.step()

    whole = make_params(device)
    train(whole, made(name, whole), range(6))
    params = make_params(device)
    first = made(name, params)
    train(params, first, range(3))
    saved = first.state_dict()
    frozen = copy.deepcopy(saved)
    train(params, first, range(3, 4))  # the saved state is a copy
    for i, own in frozen["state"].items():
        for key, array in own.items():
            np.testing.assert_array_equal(saved["state"][i][key], array)

    params = make_params(device)
    again = made(name, params)
    train(params, made(name, params), range(3))
    again.load_state_dict(saved)
    train(params, again, range(3, 6))
    for p, q in zip(params, whole, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())


def test_state_of_other_parameters_is_refused_and_changes_nothing():
    a, b = make_params(None)
    for p in (a, b):
        p.grad = ndl.init.ones(*p.shape, device=p.device)
    saved = optim.Adam([a, b])
    saved.step()
    state = saved.state_dict()
    with pytest.raises(CheckpointError, match=r"groups of \[2\] parameters, this .* has \[1"):
        optim.Adam([a]).load_state_dict(state)
    swapped = optim.Adam([b, a])
    with pytest.raises(CheckpointError, match=r"parameter 0 has shape \(3, 4\)"):
        swapped.load_state_dict(state)
    assert swapped.steps == 0 and not swapped.state


@pytest.mark.parametrize(
    ("saved", "other"),
    [(optim.Adam, optim.SGD), (optim.SGD, optim.Adam), (optim.RMSprop, optim.SGD)],
)
def test_the_state_of_another_optimizer_is_refused_and_changes_nothing(saved, other):
    params = make_params(None)
    state = saved(params, lr=0.5).state_dict()
    optimizer = other(params, lr=0.25)
    with pytest.raises(CheckpointError, match=f"{other.__name__}: only one of .* has the options"):
        optimizer.load_state_dict(state)
    assert optimizer.lr == 0.25


@pytest.mark.parametrize(
    ("option", "value"),
    [("lr", -1.0), ("lr", "0.1"), ("lr", [0.1]), ("initial_lr", float("nan")), ("beta1", 1.5)]
    + [("steps", steps) for steps in (-1, 1.5, "3", None)],
)
def test_saved_options_out_of_range_are_refused_and_change_nothing(option, value):
    optimizer = optim.Adam(make_params(None), lr=0.25)
    state = optimizer.state_dict()
    state["steps"] = 7
    state["param_groups"][0]["eps"] = 0.5
    (state if option == "steps" else state["param_groups"][0])[option] = value
    with pytest.raises(CheckpointError, match=f"Adam: the saved {option} must be a .*, got "):
        optimizer.load_state_dict(state)
    assert (optimizer.steps, optimizer.lr, optimizer.eps) == (0, 0.25, 1e-8)
