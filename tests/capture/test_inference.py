"""Test the passes for inference: constants are computed once, and batch norm is folded."""

from typing import Any

import numpy as np
import pytest

import needle
from needle import nn, optim
from tests.nn_devices import needs_kernels

pytestmark = [needs_kernels, pytest.mark.filterwarnings("error::needle.CaptureWarning")]


def tensor(values: Any) -> needle.Tensor:
    return needle.Tensor(values, device=needle.cpu(), requires_grad=False)


class Residual(nn.Module):
    """Convolutions of several kinds, each with a batch norm, and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        on: dict[str, Any] = {"device": needle.cpu()}
        self.first = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=True, **on), nn.BatchNorm2d(8, **on), nn.ReLU()
        )
        self.second = nn.Conv2d(8, 8, 3, padding=1, stride=2, groups=4, bias=False, **on)
        self.norm = nn.BatchNorm2d(8, **on)
        self.third = nn.Conv2d(8, 8, 1, stride=2, bias=False, **on)
        self.last = nn.BatchNorm2d(8, **on)

    def forward(self, x: needle.Tensor) -> needle.Tensor:
        x = self.first(x)
        return nn.ReLU()(self.norm(self.second(x)) + self.last(self.third(x)))


def trained() -> tuple[Any, Any]:
    """Return a model in evaluation mode with changed statistics and weights."""
    np.random.seed(3)
    model = Residual()
    x = needle.Tensor(np.random.randn(4, 3, 9, 7), device=needle.cpu(), requires_grad=False)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.reset_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()
    return model.eval(), x


def inference(model: Any, **options: Any) -> Any:
    step = needle.capture(model, **options)

    def run(x: Any) -> Any:
        with needle.no_grad():
            return step(x).numpy()

    run.step = step  # type: ignore[attr-defined]
    return run


def eager(model: Any, x: Any) -> Any:
    with needle.no_grad():
        return model(x).numpy()


def by_optimizer(model: Any, x: Any) -> None:
    optimizer = optim.SGD(model.parameters(), lr=0.02)
    (model(x) ** 2).mean().backward()
    optimizer.step()


def by_adam(model: Any, x: Any) -> None:
    optimizer = optim.Adam(model.parameters(), lr=0.02)
    (model(x) ** 2).mean().backward()
    optimizer.step()


def by_training(model: Any, x: Any) -> None:
    model.train()
    model(x + 1)
    model.eval()


def by_loading(model: Any, x: Any) -> None:
    state = {
        name: tensor * 1.25 if tensor.dtype == "float32" else tensor
        for name, tensor in model.state_dict().items()
    }
    model.load_state_dict(state)


def by_writing(model: Any, x: Any) -> None:
    for tensor in (model.norm.running_var, model.last.weight, model.second.weight):
        array = tensor.realize_cached_data()
        array[...] = array * 1.25 + 0.5


def by_assigning(model: Any, x: Any) -> None:
    model.norm.weight.data = model.norm.weight.data * 1.25 + 0.5


CHANGES = (by_optimizer, by_adam, by_training, by_loading, by_writing, by_assigning)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("exact", [True, False])
def test_replays_see_changed_parameters(change: Any, exact: bool) -> None:
    model, x = trained()
    run = inference(model, exact=exact)
    for _ in range(2):
        run(x)
        before = run(x)
        expected = eager(model, x)
        np.testing.assert_allclose(before, expected, rtol=1e-4, atol=1e-5)
        if exact:
            np.testing.assert_array_equal(before, expected)
        change(model, x)
        expected = eager(model, x)
        assert np.abs(expected - before).max() > 1e-3
        np.testing.assert_allclose(run(x), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
        if exact:
            np.testing.assert_array_equal(run(x), expected)


def test_what_is_left_of_a_replay() -> None:
    model, x = trained()
    counts = {}
    for exact in (True, False):
        run = inference(model, exact=exact)
        run(x)
        program = run.step.programs[0]
        counts[exact] = [call.name for call in program.recording.calls()]
        constants = {call.name for call in program.recording.constants}
        assert constants <= {"binary", "unary", "copy", "prepare_conv2d"}
        assert "folded 3 batch norms" in run.step.explain() or exact
    for calls in counts.values():
        assert sum(name.startswith("conv2d") for name in calls) == 3
    assert len(counts[False]) == 5  # three convolutions, the addition and the last ReLU
    assert len(counts[True]) == 12


def test_a_convolution_that_is_read_twice_is_not_folded() -> None:
    model, x = trained()

    def both(x: Any) -> Any:
        y = model.second(model.first(x))
        return model.norm(y) + y

    step = needle.capture(both, state=[model], exact=False)
    with needle.no_grad():
        expected = step(x).numpy()
        np.testing.assert_allclose(step(x).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert "folded 1 batch norms" in step.explain()


def test_a_scale_of_columns_is_not_one_of_channels() -> None:
    """If there is one channel, the columns of the convolution's result are contiguous."""
    conv = nn.Conv2d(2, 1, 3, padding=1, bias=False, device=needle.cpu())
    scale = needle.Tensor(np.arange(5) + 1.0, device=needle.cpu())
    step = needle.capture(
        lambda x: conv(x) * (scale * 2) + (scale + 1), state=[conv, scale], exact=False
    )
    x = needle.Tensor(np.random.randn(2, 2, 5, 5), device=needle.cpu(), requires_grad=False)
    with needle.no_grad():
        expected = step(x).numpy()
        np.testing.assert_allclose(step(x).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_nothing_is_moved_with_gradients_or_if_memory_is_limited() -> None:
    model, x = trained()
    step = needle.capture(lambda x: (model(x) ** 2).mean().backward(), state=[model])
    step(x)
    limited = inference(model, memory="10MB")
    limited(x)
    assert "moved 0 calls" in step.explain() and "moved 0 calls" in limited.step.explain()


def test_small_parameters_are_read_from_copies() -> None:
    """Large parameters are bound at each replay instead of copied to constants."""
    np.random.seed(4)
    model = nn.Sequential(
        nn.Linear(30, 20, device=needle.cpu()),
        nn.ReLU(),
        nn.Linear(20, 2000, device=needle.cpu()),
    )
    x = needle.Tensor(np.random.randn(3, 30), device=needle.cpu(), requires_grad=False)
    run = inference(model)
    np.testing.assert_array_equal(run(x), eager(model, x))
    assert "copies: copied 3 parameters" in run.step.explain()
    for parameter in model.parameters():
        parameter.data = parameter.data * 1.5
        np.testing.assert_array_equal(run(x), eager(model, x))
        array = parameter.realize_cached_data()
        array[...] = array * 1.5
        np.testing.assert_array_equal(run(x), eager(model, x))
    assert run.step.recordings == 1


def test_weights_are_prepared_once() -> None:
    """Two calls of a layer share its prepared weights; other image shapes need other weights."""
    np.random.seed(5)
    conv = nn.Conv2d(32, 32, 3, padding=1, device=needle.cpu())
    x = needle.Tensor(np.random.randn(1, 32, 9, 7), device=needle.cpu(), requires_grad=False)
    twice = lambda x: conv(conv(x)) + conv(x[:, :, :4])[:, :, :1]  # noqa: E731
    run = inference(twice, state=[conv])
    np.testing.assert_array_equal(run(x), eager(run.step.function, x))
    assert "preparation: prepared 2 weights" in run.step.explain()
    conv.weight.data = conv.weight.data * 0.5
    np.testing.assert_array_equal(run(x), eager(run.step.function, x))
    double = nn.Conv2d(8, 8, 3, device=needle.cpu(), dtype="float64")
    other = inference(double)
    other(needle.Tensor(np.random.randn(1, 8, 9, 7), device=needle.cpu(), dtype="float64"))
    assert "preparation: prepared 0 weights" in other.step.explain()


def test_a_parameter_that_is_returned_is_the_present_one() -> None:
    """A replay must return the parameter's current value, though only constants read it."""
    norm = nn.BatchNorm2d(3, device=needle.cpu()).eval()
    x = needle.Tensor(np.random.randn(1, 3, 4, 4), device=needle.cpu(), requires_grad=False)
    step = needle.capture(lambda x: (norm(x), norm.running_mean), state=[norm])
    with needle.no_grad():
        for number in range(3):
            norm.running_mean.data = needle.Tensor(np.full(3, float(number)), device=needle.cpu())
            result, mean = step(x)
            np.testing.assert_array_equal(mean.numpy(), np.full(3, float(number)))
            np.testing.assert_array_equal(result.numpy(), norm(x).numpy())
    assert step.replays == 2


def test_a_view_of_a_larger_array_is_copied_as_it_lies() -> None:
    base = needle.Tensor(np.random.randn(6, 4), device=needle.cpu(), requires_grad=False)
    scale = base[2:5]
    x = needle.Tensor(np.random.randn(3, 4), device=needle.cpu(), requires_grad=False)
    step = needle.capture(
        lambda x: x * scale + scale[1] + scale.transpose()[2:3, 0:1], state=[scale]
    )
    with needle.no_grad():
        for _ in range(3):
            expected = x * scale + scale[1] + scale.transpose()[2:3, 0:1]
            np.testing.assert_array_equal(step(x).numpy(), expected.numpy())
            array = scale.realize_cached_data()
            array[...] = array * 2.0
    assert step.replays == 2


def test_zeros_made_in_a_step_are_a_kernel_call() -> None:
    """No host step splits the recording, so the batch norm is still folded."""
    conv = nn.Conv2d(3, 4, 3, padding=1, bias=False, device=needle.cpu())
    norm = nn.BatchNorm2d(4, device=needle.cpu()).eval()

    def padded(x: Any) -> Any:
        y = conv(x)
        zeros = needle.init.zeros(2, 1, 5, 5, device=x.device)
        return needle.ops.concatenate((norm(y), zeros), axis=1)

    x = needle.Tensor(np.random.randn(2, 3, 5, 5), device=needle.cpu(), requires_grad=False)
    step = needle.capture(padded, state=[conv, norm], exact=False)
    with needle.no_grad():
        expected = padded(x).numpy()
        for _ in range(2):
            np.testing.assert_allclose(step(x).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert len(step.programs[0].recording.segments) == 1
    assert "folded 1 batch norms" in step.explain()


def test_a_batch_of_the_program_is_no_constant() -> None:
    """If x were a constant, all activations would be kept; a replay needs only two at a time."""
    model, x = trained()
    step = needle.capture(lambda: model(x), state=[model, x])
    with needle.no_grad():
        expected = step().numpy()
        np.testing.assert_array_equal(step().numpy(), expected)
    calls = [call.name for call in step.programs[0].recording.calls()]
    assert sum(name.startswith("conv2d") for name in calls) == 3


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_convolution_with_computed_weights_is_not_folded(name: str) -> None:
    """Weights that are computed in each call are new arrays, so they cannot become constants."""
    norm = nn.BatchNorm2d(4, device=needle.cpu()).eval()
    weight, bias = tensor(np.random.randn(4, 3, 3, 3)), tensor(np.random.randn(4))

    def dynamic(x: Any) -> Any:
        given = {"weight": weight, "bias": bias}
        given[name] = given[name] * x.sum()
        return norm(needle.ops.conv2d(x, **given, padding=1))

    step = needle.capture(dynamic, state=[norm, weight, bias], exact=False)
    with needle.no_grad():
        for _ in range(3):
            x = tensor(np.random.randn(2, 3, 5, 5))
            np.testing.assert_allclose(step(x).numpy(), dynamic(x).numpy(), rtol=1e-4, atol=1e-4)
    assert step.replays == 2 and "folded 0 batch norms" in step.explain()


def test_a_convolution_does_not_move_behind_a_write_to_its_input() -> None:
    conv = nn.Conv2d(3, 4, 1, device=needle.cpu())
    norm = nn.BatchNorm2d(4, device=needle.cpu()).eval()

    def clearing(x: Any) -> Any:
        y = conv(x)
        array = x.realize_cached_data()
        array[...] = array * 0.0
        return norm(y)

    step = needle.capture(clearing, state=[conv, norm], exact=False)
    with needle.no_grad():
        for _ in range(3):
            values = np.random.randn(1, 3, 4, 4)
            expected = clearing(tensor(values)).numpy()
            np.testing.assert_allclose(step(tensor(values)).numpy(), expected, rtol=1e-5)
    assert step.replays == 2


@pytest.mark.parametrize("adopted", [True, False])
def test_writes_of_numpy_to_a_shared_parameter_are_seen(adopted: bool) -> None:
    memory = np.ones(64, "float32")
    array = needle.ndarray.from_dlpack(memory, device=needle.cpu())
    scale = needle.Tensor.make_const(array) if adopted else tensor(memory)
    step = needle.capture(lambda x: x * (scale * 2), state=[scale])
    x = tensor(np.ones(64))
    with needle.no_grad():
        step(x)
        step(x)
        shared = memory if adopted else np.asarray(scale.realize_cached_data())
        for value in (7.0, 9.0):
            shared[...] = value
            np.testing.assert_array_equal(step(x).numpy(), np.full(64, 2 * value, "float32"))
    assert step.replays == 3


def test_an_argument_that_shares_a_parameter_is_written_first() -> None:
    """Constants are computed before the replay, so a call that changes them runs eagerly."""
    scale = tensor([1.0, 2.0])

    def doubling(x: Any) -> Any:
        array = x.realize_cached_data()
        array[...] = array * 2.0
        return scale * 3.0

    step = needle.capture(doubling, state=[scale])
    with needle.no_grad():
        step(tensor([5.0, 6.0]))
        assert step(tensor([5.0, 6.0])).numpy().tolist() == [3.0, 6.0]
        shared = needle.Tensor.make_const(scale.realize_cached_data())
        with pytest.warns(needle.CaptureWarning, match="share one buffer"):
            assert step(shared).numpy().tolist() == [6.0, 12.0]
        assert step(tensor([5.0, 6.0])).numpy().tolist() == [6.0, 12.0]
