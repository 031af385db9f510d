"""Test that arrays, tensors, initialisers, layers and loaders use the default device."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import needle
from needle import init, nn
from needle.backends import native
from needle.errors import DeviceError, UnknownNameError
from needle.ndarray.device import automatic_device

pytestmark = pytest.mark.skipif(needle.BACKEND != "nd", reason="NumPy mode has one device")

MADE = (
    lambda: needle.Tensor([1.0]),
    lambda: needle.backend_ndarray.array([1.0]),
    lambda: needle.backend_ndarray.ones((2,)),
    lambda: needle.backend_ndarray.arange(3),
    lambda: needle.backend_ndarray.from_dlpack(np.ones(2)),
    lambda: init.rand(2),
    lambda: init.randb(2),
    lambda: init.one_hot(3, needle.Tensor([1])),
    lambda: init.kaiming_uniform(2, 3),
    lambda: init.randn(2, generator=init.Generator(0)),
    lambda: needle.zeros(2),
    lambda: nn.Linear(2, 3).weight,
    lambda: nn.BatchNorm2d(3).running_var,
    lambda: next(iter(needle.data.DataLoader(needle.data.NDArrayDataset(np.ones((4, 2))))))[0],
)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with needle.set_default_device(None):
        yield


def test_the_compiled_backend_is_the_default_where_it_is_usable() -> None:
    wanted = needle.cpu() if needle.cpu().enabled() else needle.cpu_numpy()
    assert needle.default_device() == wanted == needle.device()
    assert init.default_device is needle.default_device


@pytest.mark.parametrize("make", MADE)
def test_everything_asks_for_the_default_device(make: Callable[[], Any]) -> None:
    before = needle.default_device()
    assert make().device == before
    with needle.set_default_device("cpu_numpy"):
        assert make().device == needle.cpu_numpy()
    assert make().device == before


def test_a_decorated_function_has_its_device_at_every_call() -> None:
    before = needle.default_device()
    decorated = needle.set_default_device("cpu_numpy")(needle.default_device)
    assert needle.default_device() == before
    for _ in range(2):
        assert decorated() == needle.cpu_numpy()
        assert needle.default_device() == before
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(decorated).result() == needle.cpu_numpy()

    @needle.set_default_device("cpu_numpy")
    def devices() -> Iterator[Any]:
        yield needle.default_device()

    iterator = devices()
    assert next(iterator) == needle.cpu_numpy() and needle.default_device() == before
    with needle.set_default_device("cpu"), pytest.raises(TypeError, match="set_default_device: a"):
        needle.set_default_device("cpu_numpy")(nn.Linear)
    assert needle.default_device() == before


def test_a_decorator_that_is_applied_after_the_context_of_its_creation_changes_no_default() -> None:
    before = needle.default_device()
    with needle.set_default_device("cpu_numpy"):
        decorator = needle.set_default_device("cpu_numpy")
    assert decorator(needle.default_device)() == needle.cpu_numpy()
    assert needle.default_device() == before


def test_a_device_may_be_given_by_its_name() -> None:
    like = needle.Tensor([1.0], device=needle.cpu_numpy())
    layer = nn.Linear(2, 3, device="cpu_numpy")  # type: ignore[arg-type]
    drawn = init.rand(2, device="cpu_numpy", generator=init.Generator(0))  # type: ignore[arg-type]
    copied = init.zeros_like(like, device="cpu_numpy")  # type: ignore[arg-type]
    for made in (*layer.parameters(), drawn, copied):
        assert made.device == needle.cpu_numpy()


def test_a_call_without_with_stays() -> None:
    needle.set_default_device("cpu_numpy")
    assert needle.default_device() == needle.cpu_numpy()
    needle.set_default_device(needle.default_device())
    assert needle.default_device() == needle.cpu_numpy()


def test_the_former_device_is_restored_in_order_and_after_an_exception() -> None:
    before = needle.default_device()
    with needle.set_default_device("cpu_numpy") as outer:
        assert outer == needle.cpu_numpy()
        with pytest.raises(ZeroDivisionError), needle.set_default_device(None):
            assert needle.default_device() == before
            raise ZeroDivisionError
        assert needle.default_device() == needle.cpu_numpy()
    assert needle.default_device() == before


def test_a_device_that_cannot_be_used_is_refused_and_changes_nothing() -> None:
    before = needle.default_device()
    with pytest.raises(UnknownNameError, match="unknown device 'cpo'"):
        needle.set_default_device("cpo")
    if not needle.cuda().enabled():
        with pytest.raises(DeviceError, match="cuda"):
            needle.set_default_device(needle.cuda())
    assert needle.default_device() == before


def in_a_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


def new_device() -> Any:
    return needle.Tensor([1.0]).device


def test_a_call_without_with_holds_in_every_thread() -> None:
    def call() -> Any:
        needle.set_default_device("cpu_numpy")
        return in_a_thread(new_device)

    try:
        assert in_a_thread(call) == needle.cpu_numpy()
    finally:
        in_a_thread(lambda: needle.set_default_device(None))


def test_a_context_holds_in_its_thread_alone() -> None:
    before = needle.default_device()
    with needle.set_default_device("cpu_numpy"):
        assert in_a_thread(new_device) == before
        assert new_device() == needle.cpu_numpy()


@pytest.mark.parametrize("order", ["abAB", "abBA", "aAbB"])
@pytest.mark.parametrize("plain", [False, True])
def test_contexts_of_two_threads_do_not_meet(order: str, plain: bool) -> None:
    """Threads a and b enter contexts in this order and leave in the order of their calls."""
    first, second = needle.cpu_numpy(), needle.device(automatic_device())
    with ThreadPoolExecutor(1) as a, ThreadPoolExecutor(1) as b:
        made: dict[str, Any] = {}
        threads = {"a": (a, first), "b": (b, second)}
        try:
            for step in order:
                thread, device = threads[step.lower()]
                if step.islower():
                    made[step] = thread.submit(needle.set_default_device, device).result()
                else:
                    thread.submit(made[step.lower()].__enter__).result()
            if plain:
                in_a_thread(lambda: needle.set_default_device("cpu_numpy"))
            for name, (thread, device) in threads.items():
                assert thread.submit(new_device).result() == device
                thread.submit(made[name].__exit__, None, None, None).result()
            left = {thread.submit(new_device).result() for thread, _ in threads.values()}
            assert left == {first if plain else second}
        finally:
            in_a_thread(lambda: needle.set_default_device(None))


def test_without_the_compiled_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "MODULE", "needle.backend_ndarray.not_built")
    monkeypatch.setattr(needle.backends, "_loaded", {})
    automatic_device.cache_clear()
    try:
        assert needle.default_device() == needle.cpu_numpy() == init.ones(1).device
    finally:
        automatic_device.cache_clear()
