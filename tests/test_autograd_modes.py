"""Turn recording on and off: decorators, generators, coroutines, threads, lazy mode."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import autograd
from tests.test_autograd import leaf

# ---- recording -------------------------------------------------------------------------------


class Weights:
    """A model of one weight, which is 1; its average is 3."""

    def __init__(self) -> None:
        self.weight = ndl.nn.Parameter([3.0])
        average = ndl.optim.ExponentialAverage(self)
        average.update()
        self.weight.data = ndl.Tensor([1.0])
        self.applied = average.applied

    def named_parameters(self) -> Any:
        return [("weight", self.weight)]

    def named_buffers(self) -> Any:
        return []


WEIGHTS = Weights()
precision = ndl.config.matmul_precision
DECORATORS: dict[str, tuple[Callable[[], Any], Callable[[], bool]]] = {
    "no_grad": (ndl.no_grad, lambda: not (leaf([1]) * 2).requires_grad),
    "enable_grad": (ndl.enable_grad, lambda: (leaf([1]) * 2).requires_grad),
    "applied": (WEIGHTS.applied, lambda: WEIGHTS.weight.item() == 3),
    "using": (lambda: precision.using("bf16"), lambda: precision.get() == "bf16"),
}
"""Each public context manager, and a function that returns whether it is active."""


@pytest.fixture(params=DECORATORS)
def decorator(request: pytest.FixtureRequest) -> Iterator[Any]:
    """(make, is open): outside the context, recording is in the opposite state."""
    make, is_open = DECORATORS[request.param]
    with ndl.no_grad() if request.param == "enable_grad" else ndl.enable_grad():
        assert not is_open()
        yield make, is_open
        assert not is_open()


def test_a_decorated_function_runs_inside_at_every_call(decorator: Any) -> None:
    make, is_open = decorator

    @make()
    def again(depth: int) -> list[bool]:
        return [is_open(), *(again(depth - 1) if depth else []), is_open()]

    assert again(2) == [True] * 6 and again(0) == [True] * 2

    @make()
    def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()


def test_a_decorated_generator_runs_inside_and_waits_outside(decorator: Any) -> None:
    make, is_open = decorator
    end = []

    @make()
    def numbers(count: int) -> Iterator[Any]:
        try:
            while (yield is_open(), count) != "stop":
                count += 1
        except KeyError:
            yield "caught", is_open()
        finally:
            end.append(is_open())
        return "done"

    first, second = numbers(3), numbers(5)
    assert (next(first), next(second), next(first)) == ((True, 3), (True, 5), (True, 4))
    assert not is_open()
    with pytest.raises(StopIteration) as stop:
        first.send("stop")
    assert stop.value.value == "done"
    assert second.throw(KeyError) == ("caught", True)
    second.close()
    assert end == [True, True]


def test_a_decorated_coroutine_runs_inside_and_waits_outside(decorator: Any) -> None:
    make, is_open = decorator

    @make()
    async def decorated(seconds: float) -> list[bool]:
        before = is_open()
        await asyncio.sleep(seconds)
        return [before, is_open()]

    async def plain() -> list[bool]:
        await asyncio.sleep(0)
        return [is_open()]

    async def both() -> list[list[bool]]:
        return await asyncio.gather(decorated(0.001), plain(), decorated(0))

    assert asyncio.run(both()) == [[True, True], [False], [True, True]]


def test_what_no_decorator_surrounds_is_refused(decorator: Any) -> None:
    make, _ = decorator

    async def asynchronous() -> Any:
        yield 1

    for refused in (asynchronous, Weights, True):
        with pytest.raises(TypeError, match="must be a function, generator or coroutine"):
            make()(refused)


@pytest.mark.parametrize("kind", [ndl.no_grad, ndl.enable_grad])
def test_a_decorator_needs_no_parentheses(kind: Any) -> None:
    make, is_open = DECORATORS[kind.__name__]

    @make  # type: ignore[untyped-decorator]
    def opened() -> bool:
        return is_open()

    with ndl.no_grad() if kind is ndl.enable_grad else ndl.enable_grad():
        assert opened() and opened() and not is_open()


def test_no_grad_applies_to_one_thread() -> None:
    a = leaf([1, 2])
    seen = []
    with ndl.no_grad():
        thread = threading.Thread(target=lambda: seen.append((a * 2).requires_grad))
        thread.start()
        thread.join()
    assert seen == [True]


def test_lazy_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "LAZY_MODE", True)
    a = leaf([1, 2])
    b = a * 3
    assert b.cached_data is None
    assert np.array_equal(b.numpy(), [3, 6]) and b.cached_data is not None
    (a * b).sum().backward()
    assert np.array_equal(a.grad.numpy(), [6, 12])


def test_contexts_that_threads_leave_in_another_order_restore_a_setting() -> None:
    before = precision.get()
    outer, inner = precision.using("bf16"), precision.using("tf32")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert precision.get() == "tf32"
    inner.__exit__(None, None, None)
    assert precision.get() == before
