"""Test the contract of capture: its inputs, its errors, and the check that finds the rest."""

import collections
import copy
import itertools
import pickle
import random
import threading
import types
import warnings
from typing import Any

import numpy as np
import pytest

import needle
from needle import nn, optim
from tests.nn_devices import needs_kernels

pytestmark = needs_kernels


def tensor(values: Any) -> needle.Tensor:
    return needle.Tensor(values, device=needle.cpu(), requires_grad=False)


def called(step: Any, count: int, before: Any = lambda number: None) -> tuple[list[Any], list[str]]:
    """Return the results of ``count`` calls with the argument 1, and the capture warnings."""
    found = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(count):
            before(number)
            found.append(step(tensor([1.0])).item())
    return found, [str(w.message) for w in caught if w.category is needle.CaptureWarning]


class Slotted:
    __slots__ = ("value",)


class Namespace:
    value = 0.0


def hidden_numbers() -> dict[str, Any]:
    """Return functions that yield 1, 2, 3 ... from state that capture cannot inspect."""
    table, slotted, module = np.zeros(1), Slotted(), types.ModuleType("settings")
    slotted.value = module.value = Namespace.value = 0.0  # type: ignore[attr-defined]
    holder = types.SimpleNamespace(value=0.0)
    queue = collections.deque(range(1, 20))

    def counted(place: Any) -> Any:
        def read() -> float:
            place.value += 1.0
            return float(place.value)

        return read

    def from_table() -> float:
        table[0] += 1.0
        return float(table[0])

    generator = (number for number in range(1, 20))
    return {
        "iterator": iter(range(1, 20)).__next__,
        "generator": generator.__next__,
        "count": itertools.count(1).__next__,
        "deque": queue.popleft,
        "slots": counted(slotted),
        "module": counted(module),
        "class": counted(Namespace),
        "namespace": counted(holder),
        "numpy": from_table,
    }


@pytest.mark.parametrize("place", hidden_numbers())
def test_a_number_from_outside_is_found_at_the_second_call(place: str) -> None:
    read = hidden_numbers()[place]
    step = needle.capture(lambda x: x * read())
    found, messages = called(step, 6)
    assert found == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert len(messages) == 1 and "the result differs" in messages[0]


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState, random.Random])
def test_a_generator_of_its_own_draws_at_every_call(kind: Any) -> None:
    def run(captured: bool) -> list[Any]:
        draw = kind(3).random
        step = lambda x: x * float(draw())  # noqa: E731
        return called(needle.capture(step) if captured else step, 8)[0]

    assert run(True) == run(False)


def test_a_change_after_the_second_call_is_an_error_that_names_the_calls() -> None:
    hidden = types.SimpleNamespace(factor=2.0)
    weight = nn.Parameter(tensor([1.0]))
    optimizer = optim.SGD([weight], lr=0.25)

    def train(x: Any) -> Any:
        optimizer.reset_grad()
        loss = (weight * x * hidden.factor).sum()
        loss.backward()
        optimizer.step()
        return loss

    step = needle.capture(train, state=[weight, optimizer])
    for number in range(7):
        hidden.factor = 2.0 if number < 5 else 4.0
        step(tensor([1.0]))
    assert weight.item() == 1.0 - 7 * 0.5  # calls 6 and 7 were stale
    with pytest.raises(needle.CaptureError, match="since call 4 of 8"):
        step(tensor([1.0]))
    assert weight.item() == 1.0 - 7 * 0.5 - 1.0  # the eager step's state
    assert optimizer.steps == 8
    step(tensor([1.0]))
    assert weight.item() == 1.0 - 7 * 0.5 - 2.0


READS = {
    "attribute": lambda optimizer: optimizer.lr,
    "item": lambda optimizer: optimizer.param_groups[0]["lr"],
    "get": lambda optimizer: optimizer.param_groups[0].get("lr", 0.0),
    "values": lambda optimizer: next(iter(optimizer.param_groups[0].values())),
    "items": lambda optimizer: dict(optimizer.param_groups[0].items())["lr"],
    "copy": lambda optimizer: optimizer.param_groups[0].copy()["lr"],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_an_option_that_the_step_reads_is_guarded(read: Any) -> None:
    weight = nn.Parameter(tensor([1.0]))
    optimizer = optim.SGD([weight], lr=2.0)
    step = needle.capture(lambda x: x * read(optimizer), state=[optimizer], check=False)
    assert called(step, 3)[0] == [2.0] * 3
    optimizer.lr = 5.0
    assert called(step, 3)[0] == [5.0] * 3
    optimizer.lr = 2.0
    assert called(step, 1)[0] == [2.0]
    assert (step.recordings, step.replays) == (2, 5)


def test_a_check_can_be_asked_for_and_turned_off() -> None:
    hidden = types.SimpleNamespace(factor=1.0)
    step = needle.capture(lambda x: x * hidden.factor, check=False)
    assert called(step, 3)[0] == [1.0] * 3
    assert step.check(tensor([1.0])).item() == 1.0
    hidden.factor = 5.0
    assert called(step, 3) == ([1.0] * 3, [])
    with pytest.raises(needle.CaptureError, match="the result differs"):
        step.check(tensor([1.0]))
    assert called(step, 1)[0] == [5.0]


@pytest.mark.parametrize("given", ["module", "method", "state", "decorator"])
def test_a_module_is_an_input_of_its_own_recording(given: str) -> None:
    layer = nn.Linear(1, 1, device=needle.cpu())
    step = {
        "module": lambda: needle.capture(layer),
        "method": lambda: needle.capture(layer.forward),
        "state": lambda: needle.capture(lambda x: layer(x), state=layer),
        "decorator": lambda: needle.capture(state={"layers": [layer]})(lambda x: layer(x)),
    }[given]()
    for number in range(3):
        layer.weight.data = tensor([[float(number)]])
        x = tensor([[1.0]])
        np.testing.assert_array_equal(step(x).numpy(), layer(x).numpy())
    assert (step.recordings, step.replays) == (1, 2)


def test_an_array_from_elsewhere_is_an_error_that_names_the_remedy() -> None:
    layer = nn.Linear(3, 2, device=needle.cpu())
    step = needle.capture(lambda x: layer(x))
    with pytest.raises(needle.CaptureError, match=r"\(3, 2\).*float32.*test_contract.*state="):
        step(tensor(np.ones((1, 3))))


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x[:, [2, 0]],
        lambda x: x[[1, 0, 1]],
        lambda x: needle.ops.cross_entropy(x, [0, 1, 2, 0], weight=[1.0, 2.0, 3.0]),
        lambda x: needle.ops.scatter(x, 1, [[0], [1], [2], [0]], 7.0),
        lambda x: x + needle.Tensor([1.0, 2.0, 3.0]),
        lambda x: needle.ops.gather(x, 1, [[0], [1], [2], [0]]),
    ],
    ids=["columns", "rows", "class-weights", "scatter", "tensor", "gather"],
)
def test_numbers_written_in_a_step_are_part_of_it(compute: Any) -> None:
    def step(x: Any) -> Any:
        y = compute(x)
        y.sum().backward()
        return y

    captured = needle.capture(step)
    for seed in range(3):
        values = np.random.default_rng(seed).standard_normal((4, 3)).astype("float32")
        one, other = (needle.Tensor(values, device=needle.cpu()) for _ in range(2))
        np.testing.assert_array_equal(captured(one).numpy(), step(other).numpy())
        np.testing.assert_array_equal(one.grad.numpy(), other.grad.numpy())
    assert captured.replays == 2


@pytest.mark.parametrize(
    "read",
    [lambda x, a: x * a, lambda x, a: x * float(a.sum()), lambda x, a: x * a.reshape(-1)[0]],
)
def test_an_array_of_numpy_that_is_read_by_python_is_part_of_the_recording(read: Any) -> None:
    step = needle.capture(read)
    for factor in (1.0, 1.0, 5.0, 5.0, 1.0):
        assert step(tensor([2.0]), np.array([factor], "float32")).item() == 2.0 * factor
    assert step.recordings == 2


@pytest.mark.parametrize("parts", [3, 1100])
def test_a_check_restores_every_service_array(parts: int) -> None:
    """The moving averages of a thousand parameters are updated once per call."""

    def run(captured: bool) -> Any:
        weights = [nn.Parameter(tensor([1.0])) for _ in range(parts)]
        model = nn.Module()
        model.weights = weights
        optimizer = optim.SGD(weights, lr=0.1, momentum=0.9)
        average = optim.ExponentialAverage(model, 0.5)

        def train(x: Any) -> Any:
            optimizer.reset_grad()
            loss = sum(((weight * x).sum() for weight in weights[-2:]), x.sum())
            loss.backward()
            optimizer.step()
            average.update()
            return loss

        state = [model, optimizer, average]
        step: Any = needle.capture(train, state=state) if captured else train
        losses = [step(tensor([0.5])).item() for _ in range(4)]
        return losses, [array.item() for array in average.state_dict()["arrays"].values()][-2:]

    assert run(True) == run(False)


@pytest.mark.parametrize(
    "kept, change",
    [
        (collections.deque(), lambda kept: kept.append(1)),
        (set(), lambda kept: kept.add(len(kept))),
        ([0] * 1500, lambda kept: kept.append(1)),
        (types.SimpleNamespace(count=0), lambda kept: setattr(kept, "count", kept.count + 1)),
    ],
    ids=["deque", "set", "long list", "namespace"],
)
def test_a_collection_that_a_step_changes_changes_at_every_call(kept: Any, change: Any) -> None:
    def step(x: Any) -> Any:
        change(kept)
        return x * 2.0

    before = kept.count if hasattr(kept, "__dict__") else len(kept)
    _, messages = called(needle.capture(step, state=[kept]), 5)
    after = kept.count if hasattr(kept, "__dict__") else len(kept)
    assert (after - before, len(messages)) == (5, 1)


def test_a_check_restores_a_list_of_arrays() -> None:
    """Arrays have no truth value, so ``==`` cannot compare the lists before and after a call."""
    kept = {"last": [needle.ndarray.zeros((2,), device=needle.cpu())]}

    def step(x: Any) -> Any:
        kept["last"][0] = x.realize_cached_data() * 2.0
        return x * 3.0

    captured = needle.capture(step, state=kept)
    for number in range(1, 6):
        assert captured(tensor([number, 0.0])).numpy().tolist() == [3.0 * number, 0.0]
        assert kept["last"][0].numpy().tolist() == [2.0 * number, 0.0]
    assert captured.replays == 4


def test_without_exactness_results_are_compared_by_their_origin() -> None:
    turns = itertools.count()

    def step(x: Any) -> Any:
        results = x * 2.0, x * 3.0
        return results if next(turns) % 2 == 0 else results[::-1]

    captured = needle.capture(step, exact=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [captured(tensor([1.0]))[0].item() for _ in range(4)]
    assert (found, len(caught)) == ([2.0, 3.0, 2.0, 3.0], 1)


def test_a_check_leaves_streams_and_counters_as_one_call_does() -> None:
    """Dropout draws from two random streams; Adam, a schedule and an average count their steps."""

    def run(captured: bool) -> Any:
        np.random.seed(0)
        generator = needle.init.Generator(5)
        linear = nn.Linear(4, 8, device=needle.cpu())
        model = nn.Sequential(linear, nn.Dropout(0.5), nn.Dropout(0.5, generator))
        optimizer = optim.Adam(model.parameters(), lr=0.1)
        schedule, average = optim.StepLR(optimizer, 3), optim.ExponentialAverage(model, 0.5)

        def train(x: Any) -> Any:
            optimizer.reset_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            schedule.step()
            average.update()
            return loss

        state = [model, schedule, average]
        step: Any = needle.capture(train, state=state) if captured else train
        losses = [step(tensor(np.ones((2, 4)))).item() for _ in range(9)]
        assert not captured or step.replays == 8
        averages = [a.tolist() for a in average.state_dict()["arrays"].values()]
        numbers = generator.draws, optimizer.steps, optimizer.lr, average.steps, np.random.rand()
        return losses, averages, numbers

    assert run(True) == run(False)


@pytest.mark.parametrize(
    "given", [[np.zeros(2)], nn.Linear, [iter(())], {"rng": np.random.RandomState()}]
)
def test_state_must_be_something_that_can_be_restored(given: Any) -> None:
    with pytest.raises(TypeError, match="capture: state"):
        needle.capture(lambda x: x, state=given)


def test_a_thread_beside_the_first_call_is_no_part_of_it() -> None:
    """In each round, the other thread's buffer reuses the memory of a temporary of the step."""
    x = tensor(np.ones((8, 8)))
    turn, done = threading.Barrier(2), threading.Event()

    def other() -> None:
        while True:
            turn.wait()
            if done.is_set():
                return
            for _ in range(50):
                y = x + x
                y * 2.0
            turn.wait()

    def step(x: Any) -> Any:
        kept = x
        for _ in range(10):
            kept = kept * 2.0 - kept
            turn.wait()
            turn.wait()
        return kept

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    for _ in range(5):
        np.testing.assert_array_equal(needle.capture(step)(x).numpy(), x.numpy())
    done.set()
    turn.wait()
    thread.join()


def test_arguments_in_a_list_are_no_part_of_the_recording() -> None:
    """Each call clips the gradient of the argument that it was given."""

    def clipped(x: needle.Tensor) -> Any:
        x.grad = None
        (x * x).sum().backward()
        optim.clip_grad_norm([x], 1.0)
        return x.grad

    step = needle.capture(clipped)
    given = [needle.Tensor([a, b], device=needle.cpu()) for a, b in ((3.0, 4.0), (30.0, 40.0))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", needle.CaptureWarning)
        for x in (given[0], given[0], given[1], given[1]):
            np.testing.assert_allclose(step(x).numpy(), [0.6, 0.8], rtol=1e-5)


def test_a_state_with_its_graph_is_not_replayed_as_a_constant() -> None:
    """The next eager step would differentiate through the stored value."""
    memory = needle.nn.Module()
    memory.weight = nn.Parameter(tensor([0.5]))
    memory.carried = tensor([1.0])

    def step() -> Any:
        memory.carried = needle.tanh(memory.weight * memory.carried)
        return memory.carried.sum()

    captured = needle.capture(step, state=memory)
    with pytest.warns(needle.CaptureWarning, match="with its graph"):
        captured()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_captured_function_is_not_copied(copied: Any, recorded: bool) -> None:
    """The copy of a closure would compute with the original model."""
    model = nn.Module()
    model.layer = nn.Linear(1, 1, device=needle.cpu())
    model.step = needle.capture(model.layer)
    if recorded:
        model.step(tensor([[1.0]]))
    for owner in (model, model.step):
        if owner is model and copied is copy.copy:
            continue  # a shallow copy shares the captured function, as it shares the layer
        with pytest.raises(TypeError, match="cannot be copied or pickled.*capture the copy"):
            copied(owner)
    assert copied(model.layer) is not None


@pytest.mark.parametrize("size", [3, 1200])
def test_an_array_of_numpy_in_the_state_is_an_input(size: int) -> None:
    """Changes are seen in small arrays, and in large ones that only operations of needle read."""
    kept = types.SimpleNamespace(scale=np.ones(size, "float32"))

    def step(x: Any) -> Any:
        return x * needle.Tensor(kept.scale, device=needle.cpu())

    captured = needle.capture(step, state=kept)
    for number in range(6):
        x = tensor(np.arange(size) + number)
        kept.scale[0] = number // 3
        np.testing.assert_array_equal(captured(x).numpy(), step(x).numpy())
        if number == 4:
            kept.scale = kept.scale + 1
    assert (captured.recordings, captured.replays) == ((3, 3) if size == 3 else (2, 4))
    with pytest.raises(needle.CaptureError, match="reads data of the host"):
        needle.capture(lambda x: x * needle.Tensor(np.ones(3)))(tensor([1.0]))


@pytest.mark.parametrize("place", ["optimizer", "schedule", "average", "generator"])
def test_a_counter_that_the_step_reads_is_guarded(place: str) -> None:
    """The loss is dropped from the sixth step on, between two checks."""

    def losses(captured: bool) -> tuple[list[float], Any]:
        weight, generator = nn.Parameter(tensor([1.0])), needle.init.Generator(3)
        model = nn.Module()
        model.weight = weight
        optimizer = optim.SGD([weight], lr=0.1)
        schedule, average = optim.StepLR(optimizer, 3), optim.ExponentialAverage(model)
        counter = {"optimizer": optimizer, "schedule": schedule, "average": average}.get(place)

        def train(x: Any) -> Any:
            done = generator.draws if counter is None else counter.steps
            optimizer.reset_grad()
            noise = needle.init.rand(1, device=needle.cpu(), generator=generator)
            loss = (weight * (x + noise)).sum() * (1.0 if done < 5 else 0.0)
            loss.backward()
            optimizer.step()
            schedule.step()
            average.update()
            return loss

        state = [model, optimizer, schedule, average, generator]
        step: Any = needle.capture(train, state=state, check=False) if captured else train
        return called(step, 12)

    eager, (found, messages) = losses(False)[0], losses(True)
    assert found == eager
    assert len(messages) == 1 and "every call would need a new recording" in messages[0]


def test_a_counter_that_the_step_reads_after_changing_it_makes_it_eager() -> None:
    weight = nn.Parameter(tensor([1.0]))
    optimizer = optim.SGD([weight], lr=0.1)

    def train(x: Any) -> Any:
        optimizer.reset_grad()
        (weight * x).sum().backward()
        optimizer.step()
        return weight.detach() * 0.0 + float(optimizer.steps)

    captured = needle.capture(train, state=[weight, optimizer], check=False)
    found, messages = called(captured, 8)
    assert found == list(range(1, 9))
    assert len(messages) == 1 and "reads steps after changing it" in messages[0]


def test_an_array_of_numpy_in_two_places_is_read_from_both() -> None:
    """Each place is guarded, because a recording does not show which one the step read."""
    start, other = (np.array(values, "float32") for values in ([1, 2], [7, 7]))
    kept = types.SimpleNamespace(first=start, second=start)
    x = tensor([1.0, 1.0])

    def second_of_state(x: Any, *_: Any) -> Any:
        return x * needle.Tensor(kept.second, device=needle.cpu())

    def second_argument(x: Any, _: Any, second: Any) -> Any:
        return x * needle.Tensor(second, device=needle.cpu())

    for step in (second_of_state, second_argument):
        kept.first = start
        captured = needle.capture(step, state=kept)
        for number in range(1, 8):
            first = start if number < 5 else other
            if step is second_of_state:
                kept.first = first
            np.testing.assert_array_equal(captured(x, first, start).numpy(), [1, 2])


def test_an_array_of_numpy_that_python_reads_too_is_guarded() -> None:
    kept = types.SimpleNamespace(scale=np.array([1, 2], "float32"))

    def step(x: Any) -> Any:
        return x * needle.Tensor(kept.scale, device=needle.cpu()) * float(kept.scale[0])

    captured, x = needle.capture(step, state=kept), tensor([1.0, 1.0])
    for number in range(1, 8):
        if number == 5:
            kept.scale = np.array([10, 20], "float32")
        np.testing.assert_array_equal(captured(x).numpy(), step(x).numpy())
