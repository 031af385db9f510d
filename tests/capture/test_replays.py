"""Compare replays with eager steps bit for bit: models, optimisers, schedules, shapes, modes."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import needle
from apps.models import LanguageModel, build_model
from needle import nn, optim
from needle.autograd import refs
from needle.capture import Captured
from tests.nn_devices import needs_kernels

Step = Callable[[needle.Tensor, needle.Tensor], needle.Tensor]
pytestmark = needs_kernels


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", needle.CaptureWarning)
        yield


def batch(size: int, channels: int, seed: int) -> tuple[needle.Tensor, needle.Tensor]:
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((size, channels, 32, 32)).astype("float32")
    place: dict[str, Any] = {"device": needle.cpu(), "requires_grad": False}
    labels = needle.Tensor(rng.integers(0, 10, size), dtype="int64", **place)
    return needle.Tensor(images, **place), labels


class Run:
    """A model with its training step, eager or captured."""

    def __init__(self, name: str, make: Callable[[Any], Any], captured: bool) -> None:
        np.random.seed(0)
        self.channels = 3 if name == "resnet9" else 1
        options = {"in_channels": self.channels, "num_classes": 10, "device": needle.cpu()}
        self.model = build_model(name, **options)
        self.optimizer = make(self.model.parameters())
        self.loss = nn.CrossEntropyLoss()
        self.step: Any = (
            needle.capture(self.train, state=[self.model, self.optimizer])
            if captured
            else self.train
        )

    def train(self, x: needle.Tensor, y: needle.Tensor) -> needle.Tensor:
        self.optimizer.reset_grad()
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self) -> dict[str, Any]:
        """Return everything that a step changes, as NumPy arrays."""
        found = {name: value.numpy() for name, value in self.model.state_dict().items()}
        for name, p in self.model.named_parameters():
            found[f"{name}.grad"] = None if p.grad is None else p.grad.numpy()
        saved = self.optimizer.state_dict()
        found["steps"] = saved["steps"]
        for position, arrays in saved["state"].items():
            found.update({f"{position}.{key}": array for key, array in arrays.items()})
        return found


def assert_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


OPTIMIZERS = {
    "momentum": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "nadam": lambda p: optim.NAdam(p, lr=0.01),
    "radam": lambda p: optim.RAdam(p, lr=0.01, beta2=0.7),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["lenet5", "resnet9"])
def test_many_steps_are_bit_identical(name: str, optimizer: str) -> None:
    eager, captured = (Run(name, OPTIMIZERS[optimizer], c) for c in (False, True))
    for i in range(6):
        x, y = batch(4, eager.channels, i)
        expected, found = eager.step(x, y), captured.step(x, y)
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
        assert_same(eager.state(), captured.state())
    assert (captured.step.recordings, captured.step.replays) == (1, 5)


@pytest.mark.parametrize("kind", ["rnn", "lstm", "transformer"])
def test_language_models_are_replayed(kind: str) -> None:
    def losses(captured: bool) -> list[float]:
        np.random.seed(0)
        model = LanguageModel(6, 11, 8, 2, kind, seq_len=5, device=needle.cpu())
        optimizer = optim.Adam(model.parameters(), lr=0.01)

        def train(x: needle.Tensor, y: needle.Tensor) -> needle.Tensor:
            optimizer.reset_grad()
            loss = nn.SoftmaxLoss()(model(x)[0], y)
            loss.backward()
            optimizer.step()
            return loss

        step: Any = needle.capture(train, state=[model, optimizer]) if captured else train
        found = []
        for i in range(4):
            ids = np.random.default_rng(i).integers(11, size=(6, 3))
            found.append(step(*needle.data.get_batch(ids, 0, 5, device=needle.cpu())).item())
        assert not captured or (step.recordings, step.replays) == (1, 3)
        return found

    assert losses(True) == losses(False)


def test_another_shape_gets_its_own_recording() -> None:
    eager, captured = (Run("lenet5", OPTIMIZERS["momentum"], c) for c in (False, True))
    for i, size in enumerate([4, 4, 3, 3, 4, 3]):
        x, y = batch(size, 1, i)
        np.testing.assert_array_equal(captured.step(x, y).numpy(), eager.step(x, y).numpy())
    assert_same(eager.state(), captured.state())
    assert (captured.step.recordings, captured.step.replays) == (2, 4)


def test_at_most_the_given_number_of_recordings_is_kept() -> None:
    double = needle.capture(lambda x: x * 2.0, recordings=2)
    for size in (1, 2, 3, 1):
        ones = needle.ones(size, device=needle.cpu())
        assert double(ones).numpy().tolist() == [2.0] * size
    assert (double.recordings, len(double.programs)) == (4, 2)


def test_learning_rates_of_a_schedule_take_effect() -> None:
    eager, captured = (Run("lenet5", OPTIMIZERS["adam"], c) for c in (False, True))
    schedules = [optim.CosineLR(run.optimizer, 5) for run in (eager, captured)]
    for i in range(5):
        x, y = batch(4, 1, i)
        eager.step(x, y)
        captured.step(x, y)
        for schedule in schedules:
            schedule.step()
    assert_same(eager.state(), captured.state())
    assert captured.step.replays == 4


def test_a_schedule_may_step_inside() -> None:
    finals = []
    for captured in (False, True):
        run = Run("lenet5", OPTIMIZERS["momentum"], False)
        schedule = optim.StepLR(run.optimizer, step_size=1, gamma=0.5)

        def train(x: Any, y: Any, run: Run = run, schedule: Any = schedule) -> Any:
            loss = run.train(x, y)
            schedule.step()
            return loss

        state = [run.model, schedule]
        step: Any = needle.capture(train, state=state) if captured else train
        for i in range(4):
            step(*batch(4, 1, i))
        assert run.optimizer.lr == 0.05 * 0.5**4
        finals.append(run.state())
    assert step.replays == 3
    assert_same(*finals)


def test_a_plateau_of_the_loss_may_be_judged_inside() -> None:
    finals = []
    for captured in (False, True):
        run = Run("lenet5", OPTIMIZERS["momentum"], False)
        schedule = optim.ReduceLROnPlateau(run.optimizer, "max", 0.5, patience=0)

        def train(x: Any, y: Any, run: Run = run, schedule: Any = schedule) -> Any:
            loss = run.train(x, y)
            schedule.step(loss)
            return loss

        state = [run.model, schedule]
        step: Any = needle.capture(train, state=state) if captured else train
        for _ in range(6):
            step(*batch(4, 1, 0))
        assert 0 < schedule.reductions < 6
        finals.append({**run.state(), "schedule": repr(schedule.state_dict())})
    assert step.replays == 5
    assert_same(*finals)


def test_dropout_draws_again() -> None:
    layer = nn.Dropout(0.5)
    weight = nn.Parameter(needle.ones(64, device=needle.cpu()))

    def train(x: Any) -> Any:
        y = layer(x * weight)
        y.sum().backward()
        return y

    captured = needle.capture(train, state=[layer, weight])
    x = needle.ones(64, device=needle.cpu())
    for step in (train, captured):
        np.random.seed(3)
        found = [(step(x).numpy(), weight.grad.numpy()) for _ in range(4)]
        if step is train:
            expected = found
    np.testing.assert_array_equal(found, expected)
    assert captured.replays == 3
    assert not np.array_equal(found[1], found[2])


def test_training_and_evaluation_mode_have_their_own_recordings() -> None:
    eager, captured = (Run("resnet9", OPTIMIZERS["momentum"], c) for c in (False, True))
    forwards = [eager.model, needle.capture(captured.model.forward)]
    for i in range(4):
        x, y = batch(2, 3, i)
        outs = []
        for run, forward in zip((eager, captured), forwards, strict=True):
            run.step(x, y)
            run.model.eval()
            with needle.no_grad():
                outs.append(forward(x).numpy())
            run.model.train()
            with needle.no_grad():
                outs.append(forward(x).numpy())
        np.testing.assert_array_equal(outs[0], outs[2])
        np.testing.assert_array_equal(outs[1], outs[3])
    assert_same(eager.state(), captured.state())
    assert captured.step.replays == 3
    assert isinstance(forwards[1], Captured)
    assert (forwards[1].recordings, forwards[1].replays) == (2, 6)


def test_loaded_weights_take_effect() -> None:
    eager, captured = (Run("lenet5", OPTIMIZERS["momentum"], c) for c in (False, True))
    other = Run("lenet5", OPTIMIZERS["momentum"], False)
    other.step(*batch(4, 1, 9))
    for i in range(4):
        if i == 2:
            for run in (eager, captured):
                run.model.load_state_dict(other.model.state_dict())
        x, y = batch(4, 1, i)
        np.testing.assert_array_equal(captured.step(x, y).numpy(), eager.step(x, y).numpy())
    assert_same(eager.state(), captured.state())
    assert captured.step.replays == 3


def test_a_replaced_parameter_takes_effect() -> None:
    layer = nn.Linear(3, 2, device=needle.cpu())
    forward = needle.capture(lambda x: layer(x), state=layer)
    x = needle.ones(1, 3, device=needle.cpu())
    forward(x)
    layer.weight = nn.Parameter(needle.ones(3, 2, device=needle.cpu()))
    layer.bias = nn.Parameter(needle.zeros(1, 2, device=needle.cpu()))
    assert forward(x).numpy().tolist() == [[3.0, 3.0]]
    assert forward(x).numpy().tolist() == [[3.0, 3.0]]
    assert forward.recordings == 2


def test_results_are_not_overwritten_by_later_replays() -> None:
    run = Run("lenet5", OPTIMIZERS["momentum"], True)
    kept = []
    for i in range(4):
        loss = run.step(*batch(4, 1, i))
        arrays = [loss, *(p.grad for p in run.model.parameters())]
        arrays += [p.data for p in run.model.parameters()]
        kept.append((arrays, [a.numpy() for a in arrays]))
    for arrays, values in kept:
        for array, value in zip(arrays, values, strict=True):
            np.testing.assert_array_equal(array.numpy(), value)


@pytest.mark.skipif(not refs.TELL, reason="reference counts are turned off")
def test_an_optimiser_updates_in_place_during_replays() -> None:
    run = Run("lenet5", OPTIMIZERS["momentum"], captured=True)
    x, y = batch(8, 1, seed=0)
    for _ in range(2):
        run.step(x, y)
    buffers = [id(p.cached_data.view.handle) for p in run.model.parameters()]
    kept = next(iter(run.model.parameters())).data
    before = kept.numpy()
    run.step(x, y)
    now = [id(p.cached_data.view.handle) for p in run.model.parameters()]
    assert now[0] != buffers[0] and now[1:] == buffers[1:]
    np.testing.assert_array_equal(kept.numpy(), before)


def test_assignments_into_arrays_are_replayed() -> None:
    """Assignments replay correctly even if source and target overlap, or a copy comes first."""
    device = needle.cpu()

    def step(x: needle.Tensor) -> needle.Tensor:
        a = x.realize_cached_data() * 2.0
        a[1:] = a[:-1]
        a[0] = x.realize_cached_data()[2]
        return needle.Tensor.make_const(a)

    captured = needle.capture(step)
    for seed in range(3):
        x = needle.Tensor(np.random.default_rng(seed).random((4, 3)), device=device)
        np.testing.assert_array_equal(captured(x).numpy(), step(x).numpy())
    assert captured.replays == 2


def test_tensors_that_later_share_a_buffer_are_detected() -> None:
    device = needle.cpu()
    a, b = (needle.Tensor(np.ones(3) * i, device=device, requires_grad=False) for i in (1, 2))

    def step() -> needle.Tensor:
        return a + b

    captured = needle.capture(step, state=[a, b])
    for _ in range(2):
        captured()
    a.data = b
    with pytest.warns(needle.CaptureWarning, match="several tensors share one buffer"):
        assert (captured().numpy() == 4).all()


def test_gradients_of_the_input_belong_to_each_call() -> None:
    def square(x: Any) -> None:
        (x * x).sum().backward()

    step = needle.capture(square)
    for i in range(1, 4):
        x = needle.Tensor(np.full(3, i), device=needle.cpu())
        step(x)
        assert x.grad.numpy().tolist() == [2.0 * i] * 3
    assert step.replays == 2


def test_arrays_of_numpy_and_nested_arguments() -> None:
    def step(pair: Any, scale: float, *, shift: Any) -> Any:
        x = needle.Tensor(pair[0], device=needle.cpu(), requires_grad=False)
        return {"sum": x * scale + pair[1] + shift.sum(), "n": len(pair)}

    captured = needle.capture(step)
    for i in range(3):
        x = np.arange(4, dtype="float32") * i
        y = needle.Tensor(x + 1, device=needle.cpu(), requires_grad=False)
        for scale in (2.0, 3.0):
            found = captured((x, y), scale, shift=y)
            expected = step((x, y), scale, shift=y)
            np.testing.assert_array_equal(found["sum"].numpy(), expected["sum"].numpy())
            assert found["n"] == 2
    assert (captured.recordings, captured.replays) == (2, 4)


def test_slices_of_another_offset_fit_the_recording() -> None:
    rows = needle.Tensor(np.arange(12.0).reshape(4, 3), device=needle.cpu(), requires_grad=False)
    double = needle.capture(lambda row: row * 2.0)
    for i in range(4):
        assert double(rows[i]).numpy().tolist() == [2.0 * v for v in range(3 * i, 3 * i + 3)]
    assert double.replays == 3


def test_a_gradient_is_clipped_on_the_host() -> None:
    finals = []
    for captured in (False, True):
        run = Run("lenet5", OPTIMIZERS["momentum"], False)

        def train(x: Any, y: Any, run: Run = run) -> Any:
            run.optimizer.reset_grad()
            loss = run.loss(run.model(x), y)
            loss.backward()
            norm = run.optimizer.clip_grad_norm(0.5)
            run.optimizer.step()
            return loss, norm

        state = [run.model, run.optimizer]
        step: Any = needle.capture(train, state=state) if captured else train
        norms = [step(*batch(4, 1, i))[1] for i in range(4)]
        assert all(type(norm) is float for norm in norms)
        finals.append(run.state() | {"norms": np.array(norms)})
    assert step.replays == 3
    assert_same(*finals)


def test_an_invalid_label_raises_as_in_eager_mode() -> None:
    run = Run("lenet5", OPTIMIZERS["momentum"], True)
    x, y = batch(4, 1, 0)
    run.step(x, y)
    before = run.state()
    wrong = needle.Tensor(np.array([0, 1, 2, 10]), device=needle.cpu(), dtype="int64")
    wrong.requires_grad = False
    with pytest.raises(needle.errors.ShapeError, match="must be in"):
        run.step(x, wrong)
    after = run.state()
    assert_same(
        {k: v for k, v in before.items() if "grad" not in k},
        {k: v for k, v in after.items() if "grad" not in k},
    )
    assert np.isfinite(run.step(x, y).item())


def test_an_exception_leaves_nothing_behind() -> None:
    calls = []

    def step(x: Any) -> Any:
        calls.append(1)
        y = x + 1.0
        if len(calls) == 1:
            raise KeyError("mine")
        return y

    captured = needle.capture(step)
    x = needle.ones(2, device=needle.cpu())
    with pytest.raises(KeyError, match="mine"):
        captured(x)
    assert not {"binary", "allocate"} & vars(needle.cpu().mod).keys()
    assert captured(x).numpy().tolist() == [2.0, 2.0]


def test_temporaries_share_memory() -> None:
    run = Run("resnet9", OPTIMIZERS["momentum"], True)
    run.step(*batch(8, 3, 0))
    program = run.step.programs[0]
    recorded = program.stages[0].recording
    assert 0 < program.planned_bytes < 0.6 * sum(s.bytes for s in recorded.temporaries())
    in_use = needle.cpu().memory_stats()["in_use"]
    for i in range(3):
        run.step(*batch(8, 3, i))
    assert needle.cpu().memory_stats()["in_use"] - in_use < 1 << 20


def test_methods_can_be_captured() -> None:
    class Doubler:
        factor = 2.0

        @needle.capture
        def apply(self, x: Any) -> Any:
            return x * self.factor

    one, x = Doubler(), needle.ones(2, device=needle.cpu())
    assert [one.apply(x).numpy()[0] for _ in range(3)] == [2.0] * 3
    one.factor = 3.0
    assert [one.apply(x).numpy()[0] for _ in range(3)] == [3.0] * 3
    assert one.apply.recordings == Doubler.apply.recordings == 2
    assert one.apply.check(x).numpy()[0] == 3.0 and "1 calls" in one.apply.explain()


def test_a_recording_can_be_read() -> None:
    weight = nn.Parameter(needle.ones(2, 2, device=needle.cpu()))
    product = needle.capture(lambda x: (x @ weight).relu(), state={"weight": weight})
    product(needle.ones(3, 2, device=needle.cpu()))
    lines = str(product.programs[0]).splitlines()
    assert [line.split("(")[0] for line in lines if "(" in line] == ["matmul", "binary"]
    assert any(line.endswith("= state.weight") for line in lines)


@pytest.mark.parametrize("retain_graph", [None, False, True])
def test_a_captured_step_accumulates_gradients(retain_graph: bool | None) -> None:
    def run(captured: bool) -> tuple[list[np.ndarray[Any, Any]], Any]:
        np.random.seed(0)
        model = nn.Linear(1024, 10, device=needle.cpu())
        optimizer = optim.SGD(model.parameters(), lr=0.1)

        def passes(x: needle.Tensor, y: needle.Tensor) -> needle.Tensor:
            loss = nn.CrossEntropyLoss()(model(x.reshape((-1, 1024))), y)
            loss.backward(retain_graph=retain_graph, accumulate=True)
            return loss

        step: Any = needle.capture(passes, state=model) if captured else passes
        found = []
        for i in range(9):
            step(*batch(2, 1, i))
            found += [p.grad.numpy() for p in model.parameters()]
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
        return found, step

    (eager, _), (replayed, step) = run(False), run(True)
    for a, b in zip(eager, replayed, strict=True):
        np.testing.assert_array_equal(a, b)
    assert step.replays >= 6
