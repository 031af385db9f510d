"""Test whether a kernel or its definition runs, and that both give the same result."""

from typing import Any

import numpy as np
import pytest

import needle
from needle import accelerated, backends
from needle.backend_selection import BACKEND
from needle.backends.base import OPTIONAL, View
from needle.backends.numpy_backend import NumpyBackend, array_of
from needle.errors import DeviceError, DTypeError
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
