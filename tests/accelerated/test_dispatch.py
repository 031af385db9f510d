"""The choice between a kernel and its definition; results are the same on every device."""

from typing import Any

import numpy as np
import pytest

import needle
from needle import accelerated, backends
from needle.backend_selection import BACKEND
from needle.backends.base import OPTIONAL, Epilogue, View
from needle.backends.numpy_backend import NumpyBackend, array_of
from needle.errors import DeviceError, DTypeError
from needle.shapes import Geometry
from tests.conformance import list_backend

pytestmark = pytest.mark.skipif(BACKEND == "np", reason="plain NumPy arrays have no kernels")

if BACKEND == "nd":
    from needle import backend_ndarray as nd

SAME = list_backend.ListsBackend.name


def test_every_optional_kernel_has_its_definition() -> None:
    assert set(accelerated.OPERATIONS) == set(OPTIONAL)


class Counting(NumpyBackend):
    """A backend whose softmax kernel records that it ran."""

    name = "counting"
    calls = 0

    def softmax(self, a: View, out: View, axis: int) -> None:
        Counting.calls += 1
        array_of(out)[...] = 0.25


def test_the_kernel_runs_where_the_backend_has_it() -> None:
    backends.register("counting", Counting)
    a = nd.asarray(np.ones((2, 4), np.float32), device=needle.device("counting"))
    before = Counting.calls
    assert accelerated.softmax(a, -1).numpy().tolist() == [[0.25] * 4] * 2
    assert Counting.calls == before + 1
    accelerated.softmax.definition(a, -1)
    assert Counting.calls == before + 1


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_integers_are_refused_by_name(name: str) -> None:
    for a in (nd.asarray(np.ones((2, 2), np.int64)), np.ones((2, 2), np.int64)):
        with pytest.raises(
            DTypeError, match=f"{name}: the array must be float32 or float64, got i"
        ):
            getattr(accelerated, name)(a, 0)


def test_devices_do_not_mix(device: Any) -> None:
    other = needle.device(SAME)
    a = nd.asarray(np.ones((3, 2), np.float32), device=device)
    index = nd.asarray(np.array([1]), device=other)
    if backends.provides(device.backend, "gather"):
        with pytest.raises(DeviceError, match=r"gather: all arrays must be on one device.*lists"):
            accelerated.gather(a, index)


def _calls() -> dict[str, tuple[Any, ...]]:
    random = np.random.default_rng(5)

    def some(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    ids, windows = np.array([2, 0, 2]), ((2, 2), (1, 2), (1, 0))
    geometry = Geometry((1, 2), (1, 0), (1, 1), 2)
    x, vector, grad = some(2, 4, 5, 4), some(4), some(2, 4, 5, 4)
    y, w = some(2, 5, 2, 4), some(2, 2, 2, 6)
    return {
        "softmax": (x, 1), "log_softmax": (x, -1), "logsumexp": (x, (0, 2), False),
        "cross_entropy": (some(3, 4), ids, 0.1),
        "cross_entropy_grad": (some(3), some(3, 4), ids, 0.1),
        "batch_norm": (x, vector, vector, 1e-3), "layer_norm": (x, vector, vector, 1e-3),
        "batch_norm_grad": (grad, x, vector, vector, vector * vector, 1e-3),
        "layer_norm_grad": (grad, x, vector, x[..., :1], x[..., :1] ** 2, 1e-3),
        "max_pool2d": (x, *windows), "avg_pool2d": (x, *windows),
        "max_pool2d_grad": (y, x, *windows), "avg_pool2d_grad": (y, x.shape, *windows),
        "conv2d": (x, w, geometry),
        "conv2d then bias": (x, w, geometry, Epilogue(some(6))),
        "conv2d then relu": (x, w, geometry, Epilogue(some(6), relu=True)),
        "conv2d then residual": (x, w, geometry, Epilogue(some(6), some(2, 5, 2, 6), True)),
        "apply_epilogue": (x, Epilogue(vector, relu=True)),
        "apply_epilogue of residual": (x, Epilogue(vector, grad, True)),
        "apply_epilogue without relu": (x, Epilogue(vector)),
        "relu_grad": (grad, x), "relu_grad with sums": (grad, x, True),
        "batch_norm then relu": (x, vector, vector, 1e-3, Epilogue(relu=True)),
        "batch_norm then residual": (x, vector, vector, 1e-3, Epilogue(None, grad, True)),
        "batch_norm then bias": (x, vector, vector, 1e-3, Epilogue(vector, relu=True)),
        "batch_norm then sum": (x, vector, vector, 1e-3, Epilogue(None, grad)),
        "batch_norm_grad of relu": (
            grad, x, vector, vector, vector * vector, 1e-3, some(4)),
        "batch_norm_grad of residual": (
            grad, x, vector, vector, vector * vector, 1e-3, None, some(2, 4, 5, 4)),
        "conv2d_input_grad": (some(2, 5, 2, 6), w, x.shape, geometry),
        "conv2d_weight_grad": (some(2, 5, 2, 6), x, w.shape, geometry),
        "gather": (x[0], ids), "one_hot": (ids, 4, "float32"),
        "argmax": (x, 2, False), "argmin": (x, -1, True), "erf": (x,),
        "scatter": (some(4, 5), ids, some(3, 5)), "scatter_add": (some(4, 5), ids, some(3, 5)),
        "random": (some(5, 7), "normal", 3, 1, 0.5, 2.0),
        "sgd_step": ([vector, w], [vector, w], [vector * 2, w], 0.1, 0.9, 0.1, 0.01, True),
        "adam_step": ([vector], [vector], [vector * 2], [vector**2], 0.1, 0.9, 0.99, 1e-8, 0.1,
                      True, 3),
    }  # fmt: skip


CALLS = _calls()


def _map(item: Any, kind: type, function: Any) -> Any:
    if isinstance(item, kind):
        return function(item)
    if isinstance(item, Epilogue):
        return Epilogue(*(_map(part, kind, function) for part in item))
    if isinstance(item, Geometry):
        return item
    if isinstance(item, (list, tuple)):
        return type(item)(_map(part, kind, function) for part in item)
    return item


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("place", ["cpu_numpy", "cpu", SAME])
def test_every_device_gives_what_the_definition_gives_on_numpy(name: str, place: str) -> None:
    device = needle.device(place)
    if not device.enabled():
        pytest.skip(f"{device} is not available")
    wanted_args = _map(CALLS[name], np.ndarray, np.copy)

    def put(host: np.ndarray) -> Any:  # channels-last images arrive as permuted views
        array = nd.asarray(np.ascontiguousarray(host.T), device=device)
        return nd.permute_dims(array, tuple(reversed(range(host.ndim))))

    states_compact = name in ("sgd_step", "adam_step")
    args = _map(
        wanted_args,
        np.ndarray,
        (lambda host: nd.asarray(host.copy(), device=device)) if states_compact else put,
    )
    function = getattr(accelerated, name.split()[0])
    wanted, got = function(*wanted_args), function(*args)
    _same(wanted, got)
    _same(wanted_args, args)  # in-place changes agree, and everything else is unchanged


def _same(wanted: Any, got: Any) -> None:
    if isinstance(wanted, (list, tuple)):
        for left, right in zip(wanted, got, strict=True):
            _same(left, right)
    elif isinstance(wanted, np.ndarray):
        assert got.shape == wanted.shape
        assert np.allclose(got.numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["sgd_step", "adam_step"])
def test_state_that_is_no_compact_array_changes_in_place(name: str, device: Any) -> None:
    """If a parameter has permuted axes, an update of a compact copy would be lost."""

    def array(seed: int) -> Any:
        host = np.random.default_rng(seed).random((3, 2), np.float32)
        return nd.asarray(host, device=device).permute((1, 0))

    step = accelerated.OPERATIONS[name]
    settings: tuple[Any, ...] = (0.1, 0.9, 0.0, 0.0, False)
    if name == "adam_step":
        settings = (0.1, 0.9, 0.99, 1e-8, 0.0, False, 1)
    states = [[array(2 + i)] for i in range(2 if name == "adam_step" else 1)]
    plain = [[np.array(state[0])] for state in states]
    (new,) = step([array(0)], [array(1)], *states, *settings)
    (want,) = step.definition([array(0).numpy()], [array(1).numpy()], *plain, *settings)
    np.testing.assert_allclose(new.numpy(), want, rtol=1e-6)
    for (state,), (expected,) in zip(states, plain, strict=True):
        np.testing.assert_allclose(state.numpy(), expected, rtol=1e-6)
