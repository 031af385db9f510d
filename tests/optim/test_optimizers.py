"""Optimisers: formulas in float64, behaviour in the course, groups, clipping, state."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import needle as ndl
from needle import backend_selection as selection
from needle import optim
from needle.autograd import refs
from needle.backends.base import View
from needle.errors import CheckpointError, GraphError, ShapeError
from tests.nn_devices import NUMPY_MODE, close

OPTIMIZERS = [getattr(optim, n) for n in ("SGD", "Adam", "NAdam", "RAdam", "RMSprop", "Adagrad")]
SHAPES = [(3, 4), (4,)]
TOLERANCES = {
    "float32": {"rtol": 2e-6, "atol": 2e-7},
    "float64": {"rtol": 1e-11, "atol": 1e-12},
}
needs_counts = pytest.mark.skipif(
    not refs.TELL, reason="reference counts are off, so no step is in place"
)


@pytest.fixture
def native():
    """Return the device whose kernels update in place."""
    found = ndl.cpu()
    if not found.enabled():
        pytest.skip("cpu is not available: build the extension (make build)")
    return found


def make_params(device, dtype="float32"):
    rng = np.random.default_rng(0)
    return [
        ndl.nn.Parameter(rng.standard_normal(s).astype(dtype), device=device, dtype=dtype)
        for s in SHAPES
    ]


def run(make_optimizer, reference, device, dtype, steps=4):
    """Run both on the same gradients; ``reference`` is (p, g, state, t) -> p in float64."""
    rng = np.random.default_rng(1)
    params = make_params(device, dtype)
    expected = [p.numpy().astype("float64") for p in params]
    states: list[dict] = [{} for _ in params]
    optimizer = make_optimizer(params)
    for t in range(1, steps + 1):
        grads = [rng.standard_normal(s).astype(dtype) for s in SHAPES]
        for p, g in zip(params, grads, strict=True):
            p.grad = ndl.Tensor(g, device=device, dtype=dtype)
        optimizer.step()
        expected = [
            reference(p, g.astype("float64"), state, t)
            for p, g, state in zip(expected, grads, states, strict=True)
        ]
    for p, e in zip(params, expected, strict=True):
        assert p.dtype == dtype and isinstance(p, ndl.nn.Parameter)
        close(p, e, **TOLERANCES[dtype])


def sgd(lr, momentum, decay, dampening, nesterov=False, whole=False):
    """Return a step of SGD; ``whole``: the first velocity is the gradient, as in PyTorch."""

    def step(p, g, state, t):
        g = g + decay * p
        share = 1 if whole and t == 1 else 1 - dampening
        v = state["v"] = momentum * state.get("v", 0.0) + share * g
        return p - lr * (g + momentum * v if nesterov else v)

    return step


def adam(lr, beta1, beta2, eps, decay, decoupled=False, amsgrad=False):
    def step(p, g, state, t):
        if decoupled:
            p = p * (1 - lr * decay)
        else:
            g = g + decay * p
        m = state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * g
        v = state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * g * g
        if amsgrad:
            v = state["top"] = np.maximum(state.get("top", 0.0), v)
        return p - lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)

    return step


def nadam(lr, beta1, beta2, eps, decay=0.0, slower=0.004, decoupled=False):
    def step(p, g, state, t):
        p, g = (p * (1 - lr * decay), g) if decoupled else (p, g + decay * p)
        m = state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * g
        v = state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * g * g
        mu = beta1 * (1 - 0.96 ** (slower * np.arange(1, t + 2)) / 2)
        m = mu[t] * m / (1 - mu.prod()) + (1 - mu[t - 1]) * g / (1 - mu[:t].prod())
        return p - lr * m / (np.sqrt(v / (1 - beta2**t)) + eps)

    return step


def radam(lr, beta1, beta2, eps, decay=0.0, decoupled=False):
    def step(p, g, state, t):
        p, g = (p * (1 - lr * decay), g) if decoupled else (p, g + decay * p)
        m = state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * g
        v = state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * g * g
        top = 2 / (1 - beta2) - 1
        rho = top - 2 * t * beta2**t / (1 - beta2**t)
        if rho <= 5:
            return p - lr * m / (1 - beta1**t)
        share = (rho - 4) * (rho - 2) * top / ((top - 4) * (top - 2) * rho)
        spread = (np.sqrt(v) + eps) / np.sqrt(1 - beta2**t)
        return p - lr * np.sqrt(share) * m / (1 - beta1**t) / spread

    return step


def rmsprop(lr, alpha, eps, decay=0.0, momentum=0.0, centered=False):
    def step(p, g, state, t):
        g = g + decay * p
        v = state["v"] = alpha * state.get("v", 0.0) + (1 - alpha) * g * g
        m = state["m"] = alpha * state.get("m", 0.0) + (1 - alpha) * g
        u = g / (np.sqrt(v - m * m if centered else v) + eps)
        u = state["u"] = momentum * state.get("u", 0.0) + u
        return p - lr * u

    return step


def adagrad(lr, lr_decay=0.0, decay=0.0, start=0.0, eps=1e-10):
    def step(p, g, state, t):
        g = g + decay * p
        v = state["v"] = state.get("v", start) + g * g
        return p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(v) + eps)

    return step


def upwards(reference):
    return lambda p, g, state, t: reference(p, -g, state, t)


CASES = {
    "sgd": (lambda ps: optim.SGD(ps, lr=0.1), sgd(0.1, 0, 0, 0)),
    "sgd_decay": (lambda ps: optim.SGD(ps, 0.1, 0.0, 0.2), sgd(0.1, 0, 0.2, 0)),
    "sgd_course_momentum": (
        lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.01),
        sgd(0.1, 0.9, 0.01, 0.9),
    ),
    "sgd_torch_momentum": (
        lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9, dampening=0.0),
        sgd(0.1, 0.9, 0, 0),
    ),
    "sgd_nesterov": (
        lambda ps: optim.SGD(ps, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.1),
        sgd(0.1, 0.8, 0.1, 0, True),
    ),
    "adam": (lambda ps: optim.Adam(ps), adam(0.01, 0.9, 0.999, 1e-8, 0)),
    "adam_options": (
        lambda ps: optim.Adam(ps, lr=0.1, beta1=0.8, beta2=0.95, eps=1e-3, weight_decay=0.1),
        adam(0.1, 0.8, 0.95, 1e-3, 0.1),
    ),
    "adamw": (
        lambda ps: optim.AdamW(ps, lr=0.1, weight_decay=0.3),
        adam(0.1, 0.9, 0.999, 1e-8, 0.3, True),
    ),
    "sgd_dampening": (
        lambda ps: optim.SGD(ps, lr=0.1, momentum=0.8, dampening=0.3),
        sgd(0.1, 0.8, 0, 0.3, whole=True),
    ),
    "sgd_maximize": (
        lambda ps: optim.SGD(ps, 0.1, 0.9, 0.01, maximize=True),
        upwards(sgd(0.1, 0.9, 0.01, 0.9)),
    ),
    "adam_maximize": (
        lambda ps: optim.Adam(ps, maximize=True),
        upwards(adam(0.01, 0.9, 0.999, 1e-8, 0)),
    ),
    "amsgrad": (
        lambda ps: optim.Adam(ps, 0.1, 0.5, 0.6, amsgrad=True),
        adam(0.1, 0.5, 0.6, 1e-8, 0, amsgrad=True),
    ),
    "amsgrad_decoupled": (
        lambda ps: optim.AdamW(ps, 0.1, 0.5, 0.6, weight_decay=0.3, amsgrad=True),
        adam(0.1, 0.5, 0.6, 1e-8, 0.3, True, True),
    ),
    "nadam": (lambda ps: optim.NAdam(ps), nadam(0.002, 0.9, 0.999, 1e-8)),
    "nadam_options": (
        lambda ps: optim.NAdam(ps, 0.1, 0.8, 0.95, 1e-3, 0.1, 2.0, maximize=True),
        upwards(nadam(0.1, 0.8, 0.95, 1e-3, 0.1, 2.0)),
    ),
    "nadam_decoupled": (
        lambda ps: optim.NAdam(ps, 0.1, weight_decay=0.3, decoupled_weight_decay=True),
        nadam(0.1, 0.9, 0.999, 1e-8, 0.3, decoupled=True),
    ),
    "radam": (lambda ps: optim.RAdam(ps), radam(0.001, 0.9, 0.999, 1e-8)),
    "radam_options": (  # the variance is rectified from step 3 on
        lambda ps: optim.RAdam(ps, 0.1, 0.8, 0.8, 1e-3, 0.1, maximize=True),
        upwards(radam(0.1, 0.8, 0.8, 1e-3, 0.1)),
    ),
    "radam_decoupled": (
        lambda ps: optim.RAdam(ps, 0.1, 0.8, 0.9, weight_decay=0.3, decoupled_weight_decay=True),
        radam(0.1, 0.8, 0.9, 1e-8, 0.3, True),
    ),
    "rmsprop": (lambda ps: optim.RMSprop(ps), rmsprop(0.01, 0.99, 1e-8)),
    "rmsprop_options": (
        lambda ps: optim.RMSprop(ps, 0.1, 0.7, 1e-3, 0.1, 0.8),
        rmsprop(0.1, 0.7, 1e-3, 0.1, 0.8),
    ),
    "rmsprop_centered": (
        lambda ps: optim.RMSprop(ps, 0.1, 0.7, 1e-2, centered=True),
        rmsprop(0.1, 0.7, 1e-2, centered=True),
    ),
    "adagrad": (lambda ps: optim.Adagrad(ps, 0.1), adagrad(0.1)),
    "adagrad_options": (
        lambda ps: optim.Adagrad(ps, 0.1, 0.2, 0.1, 0.5, 1e-3, maximize=True),
        upwards(adagrad(0.1, 0.2, 0.1, 0.5, 1e-3)),
    ),
}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", CASES)
def test_steps_follow_the_formula(name, dtype, device):
    make, reference = CASES[name]
    run(make, reference, device, dtype)


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


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_step_changes_neither_gradients_nor_old_values(make, device):
    (p, _) = make_params(device)
    old = p.data
    before = old.numpy().copy()
    p.grad = ndl.init.ones(*p.shape, device=device)
    optimizer = make([p], lr=0.5, weight_decay=0.1)
    optimizer.step()
    close(old, before, rtol=0, atol=0)
    close(p.grad, np.ones(p.shape), rtol=0, atol=0)
    assert np.abs(p.numpy() - before).max() > 0


def with_gradient(device):
    """Return a parameter and its optimiser after a first backward through w * w."""
    w = ndl.nn.Parameter(np.arange(1.0, 7.0).reshape(2, 3), device=device, dtype="float32")
    (w * w).sum().backward()
    return w, optim.SGD([w], lr=0.25, momentum=0.9, dampening=0.0)


def buffer_of(w):
    return w.cached_data.view.handle


@pytest.mark.skipif(NUMPY_MODE, reason="NumPy has no kernel that steps in place")
@needs_counts
@pytest.mark.parametrize(
    "make",
    [optim.SGD, optim.Adam, lambda ps, lr: optim.SGD(ps, lr, 0.9, dampening=0.5)],
    ids=["sgd", "adam", "dampened"],
)
def test_a_value_without_other_references_is_changed_in_place(make, native):
    w, _ = with_gradient(native)
    optimizer, before, buffer = make([w], lr=0.25), w.numpy(), id(buffer_of(w))
    optimizer.step()
    assert id(buffer_of(w)) == buffer
    assert (w.numpy() < before).all()


KEEPERS = {
    "the array": lambda w: w.cached_data,
    "a constant": lambda w: w.data,
    "a view": lambda w: w.cached_data.permute((1, 0)),
    "a slice": lambda w: w.cached_data[0],
    "another tensor's view": lambda w: w.reshape((3, 2)),
    "NumPy, sharing memory": lambda w: np.from_dlpack(w.cached_data),
    "a kernel's view": lambda w: w.cached_data.view,
    "the buffer": buffer_of,
}


def values_of(kept, device):
    """Return the values of an array, a buffer or a view."""
    if isinstance(kept, View):
        return device.backend.download(kept)
    return kept.numpy() if hasattr(kept, "numpy") else np.asarray(kept)


@pytest.mark.skipif(NUMPY_MODE, reason="NumPy has no kernel that steps in place")
@pytest.mark.parametrize("keeper", KEEPERS)
def test_a_value_with_another_reference_is_not_changed(keeper, native):
    w, optimizer = with_gradient(native)
    before, buffer, kept = w.numpy(), id(buffer_of(w)), KEEPERS[keeper](w)
    optimizer.step()
    assert id(buffer_of(w)) != buffer
    assert (w.numpy() == before / 2).all()
    assert np.isin(values_of(kept, native), before).all()  # the old buffer has no new values


@pytest.mark.skipif(NUMPY_MODE, reason="NumPy has no kernel that steps in place")
def test_memory_of_a_host_array_is_not_changed(native):
    w, optimizer = with_gradient(native)
    host = np.arange(1.0, 7.0, dtype="float32").reshape(2, 3)
    w.data = ndl.Tensor.make_const(selection.adopt(host, native))
    optimizer.step()
    assert (w.numpy() == host / 2).all()
    np.testing.assert_array_equal(host, np.arange(1.0, 7.0).reshape(2, 3))


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


def test_a_gradient_of_another_layout_or_dtype_is_accepted(device):
    p = ndl.nn.Parameter(np.zeros((3, 2), "float32"), device=device, dtype="float32")
    values = np.arange(6.0).reshape(2, 3)
    grad = ndl.Tensor(values, device=device, dtype="float64")
    p.grad = ndl.transpose(grad)
    optim.SGD([p], lr=1.0).step()
    assert p.dtype == "float32"
    close(p, -values.T)


def test_parameters_of_several_dtypes_step_together():
    a = ndl.nn.Parameter(np.ones(2), dtype="float32")
    b = ndl.nn.Parameter(np.ones(2), dtype="float64")
    for p in (a, b):
        p.grad = ndl.Tensor(np.ones(2), dtype=p.dtype)
    optim.SGD([a, b], lr=0.25, momentum=0.5, dampening=0.0).step()
    close(a, [0.75, 0.75])
    close(b, [0.75, 0.75])
    assert (a.dtype, b.dtype) == ("float32", "float64")


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
    with pytest.raises(TypeError, match="parameters must be Tensors, got Linear; pass model.param"):
        optim.Adam(ndl.nn.Linear(2, 2))
    assert optim.Adam(a).params == [a]
    with pytest.raises(ValueError, match="nesterov needs momentum > 0"):
        optim.SGD([a], nesterov=True)


NOT_NEGATIVE = "must be a finite number of at least 0"
WRONG_OPTIONS = [
    (optim.SGD, {"lr": -0.1}, f"SGD: lr {NOT_NEGATIVE}, got -0.1; pass"),
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


def test_options_at_the_limits_are_accepted():
    (a, b) = make_params(None)
    assert optim.SGD([a, b], lr=0, momentum=np.float32(0.5), dampening=-1).lr == 0
    assert optim.Adam([a, b], beta1=0, beta2=0, eps=0).param_groups[0]["beta2"] == 0


def test_a_rate_set_later_is_checked():
    optimizer = optim.SGD(make_params(None), lr=0.5)
    with pytest.raises(ValueError, match=f"SGD: lr {NOT_NEGATIVE}, got nan"):
        optimizer.lr = float("nan")
    assert optimizer.lr == 0.5


@pytest.mark.parametrize("params", [[], (), iter([]), [{"params": []}]])
def test_an_optimizer_without_parameters_is_refused(params):
    with pytest.raises(ValueError, match="Adam: there must be at least one parameter, got none"):
        optim.Adam(params)


def test_non_parameters_are_refused_by_name():
    (a, b) = make_params(None)
    for wrong in (None, 3, [a, None], [a, {"params": [b]}], {"weight": a}, [[a, b]], "ab"):
        with pytest.raises(TypeError, match=r"SGD: parameters must be Tensors, got \w+; pass"):
            optim.SGD(wrong)
    for wrong in ([{"params": [a]}, b], [{"lr": 0.1}]):
        with pytest.raises(TypeError, match="SGD: a parameter group must be a dict with 'params'"):
            optim.SGD(wrong)


def test_a_gradient_of_another_shape_is_refused():
    (_, p) = make_params(None)
    p.grad = ndl.init.ones(5, device=p.device)
    with pytest.raises(ShapeError, match=r"got \(5,\) for a parameter of shape \(4,\)"):
        optim.SGD([p]).step()


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


def test_clip_grad_norm(device):
    params = make_params(device)
    rng = np.random.default_rng(2)
    grads = [rng.standard_normal(p.shape) for p in params]
    norm = np.sqrt(sum((g**2).sum() for g in grads))
    for p, g in zip(params, grads, strict=True):
        p.grad = ndl.Tensor(g, device=device, dtype="float32")
    kept = params[0].grad
    optimizer = optim.SGD(params)
    assert optimizer.clip_grad_norm(1e6) == pytest.approx(norm, rel=1e-6)
    assert params[0].grad is kept  # the norm is below the limit
    assert optimizer.clip_grad_norm(0.5) == pytest.approx(norm, rel=1e-6)
    close(kept, grads[0])  # clipping replaces gradients and changes none in place
    for p, g in zip(params, grads, strict=True):
        close(p.grad, g * 0.5 / norm)
        assert p.grad.dtype == "float32"


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


@pytest.mark.parametrize("name", CASES)
def test_state_dict_continues_the_run_exactly(name, device):
    make, _ = CASES[name]

    def train(params, optimizer, seeds):
        for seed in seeds:
            rng = np.random.default_rng(seed)
            for p in params:
                p.grad = ndl.Tensor(rng.standard_normal(p.shape), device=device, dtype="float32")
            optimizer.step()

    whole = make_params(device)
    train(whole, make(whole), range(6))
    params = make_params(device)
    first = make(params)
    train(params, first, range(3))
    saved = first.state_dict()
    frozen = copy.deepcopy(saved)
    train(params, first, range(3, 4))  # the saved state is a copy
    for i, own in frozen["state"].items():
        for key, array in own.items():
            np.testing.assert_array_equal(saved["state"][i][key], array)

    params = make_params(device)
    again = make(params)
    train(params, make(params), range(3))
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
    with pytest.raises(
        CheckpointError, match=r"groups of \[2\] parameters, this optimizer has \[1"
    ):
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
    [("lr", -1.0), ("lr", "0.1"), ("lr", [0.1]), ("initial_lr", float("nan")), ("beta1", 1.5)],
)
def test_saved_options_out_of_range_are_refused_and_change_nothing(option, value):
    optimizer = optim.Adam(make_params(None), lr=0.25)
    state = optimizer.state_dict()
    state["steps"] = 7
    state["param_groups"][0] |= {"eps": 0.5, option: value}
    with pytest.raises(CheckpointError, match=f"Adam: the saved {option} must be a .*, got "):
        optimizer.load_state_dict(state)
    assert (optimizer.steps, optimizer.lr, optimizer.eps) == (0, 0.25, 1e-8)


@pytest.mark.parametrize("steps", [-1, 1.5, "3", None])
def test_an_invalid_saved_step_count_is_refused(steps):
    optimizer = optim.SGD(make_params(None))
    with pytest.raises(CheckpointError, match="SGD: the saved steps must be a whole number"):
        optimizer.load_state_dict({**optimizer.state_dict(), "steps": steps})


@pytest.mark.parametrize(
    "make",
    [
        *OPTIMIZERS,
        lambda ps: optim.SGD(ps, momentum=0.5),
        lambda ps: optim.Adam(ps, amsgrad=True),
        lambda ps: optim.RMSprop(ps, momentum=0.5, centered=True),
    ],
)
def test_a_parameter_without_axes(make, device):
    p = ndl.nn.Parameter(np.array(2.0), device=device, dtype="float32")
    optimizer = make([p])
    for _ in range(2):
        optimizer.reset_grad()
        (p * p).backward()
        optimizer.step()
    assert p.shape == () and p.dtype == "float32" and 0 < p.item() < 2
    p.realize_cached_data()[...] = 5.0  # a 0-d array, not a NumPy scalar
    assert p.item() == 5.0
