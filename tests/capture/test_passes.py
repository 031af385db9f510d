"""Test what each pass removes from a recording or adds to it; results stay bit-identical."""

import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from needle import nn, optim
from needle.backends.base import OPTIONAL, REQUIRED
from needle.capture.buffers import BufferSlot
from needle.capture.calls import writes
from needle.capture.passes import byte_count, plan
from tests.nn_devices import needs_kernels

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("error::needle.CaptureWarning")


class Block(nn.Module):
    """Two convolutions around a shortcut, from single layers."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        options: dict[str, Any] = {"padding": 1, "bias": False, "device": needle.cpu()}
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, **options)
        self.bn1 = nn.BatchNorm2d(after, device=needle.cpu())
        self.conv2 = nn.Conv2d(after, after, 3, **options)
        self.bn2 = nn.BatchNorm2d(after, device=needle.cpu())
        self.relu = nn.ReLU()
        self.down = None
        if before != after:
            options["padding"] = 0
            self.down = nn.Conv2d(before, after, 1, stride=stride, **options)

    def forward(self, x: needle.Tensor) -> needle.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + (x if self.down is None else self.down(x)))


class Training:
    """A small residual network and its training step, eager or captured."""

    def __init__(self, captured: bool, dropout: float = 0.0, **options: Any) -> None:
        np.random.seed(0)
        blocks = [Block(3, 8, 1), Block(8, 8, 1), nn.Dropout(dropout), Block(8, 16, 2)]
        self.model = nn.Sequential(*blocks, Block(16, 16, 1))
        self.head = nn.Linear(16, 10, device=needle.cpu())
        parameters = [*self.model.parameters(), *self.head.parameters()]
        self.optimizer = optim.SGD(parameters, lr=0.05, momentum=0.9)
        self.loss = nn.SoftmaxLoss()
        self.step: Any = (
            needle.capture(self.train, state=[self.model, self.head, self.optimizer], **options)
            if captured
            else self.train
        )

    def train(self, x: needle.Tensor, y: needle.Tensor) -> needle.Tensor:
        self.optimizer.reset_grad()
        loss = self.loss(self.head(self.model(x).mean(axes=(2, 3))), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def steps(self, count: int = 4) -> list[np.ndarray[Any, Any]]:
        """Return the losses, then everything that the steps changed."""
        np.random.seed(1)
        losses = []
        for _ in range(count):
            images = np.random.rand(4, 3, 12, 12).astype("float32")
            place: dict[str, Any] = {"device": needle.cpu(), "requires_grad": False}
            labels = needle.Tensor(np.random.randint(0, 10, 4), dtype="int64", **place)
            losses.append(self.step(needle.Tensor(images, **place), labels).numpy())
        grads = [p.grad.numpy() for p in self.optimizer.params]
        state = [value.numpy() for value in self.model.state_dict().values()]
        return [*losses, *grads, *state]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


# ---- calls -------------------------------------------------------------------------------------


def test_written_arguments_are_those_of_the_kernel_table() -> None:
    header = (ROOT / "src" / "core" / "kernel_table.h").read_text(encoding="utf-8")
    table = header.split("#define NEEDLE_KERNELS(ROW)")[1].split("struct KernelTable")[0]
    rows = re.findall(r"ROW\(\s*(\w+),\s*\((.*?)\)\)", table.replace("\\\n", ""), re.DOTALL)
    assert {name for name, _ in rows} <= {*REQUIRED, *OPTIONAL} and len(rows) > 30
    for name, parameters in rows:
        views = re.findall(r"\b(In|Out|MaybeOut|Views) (\w+)", parameters)
        own = {"velocities", "firsts", "seconds", "outs"}
        expected = {n for kind, n in views if "Out" in kind or n in own}
        given = list(needle.backends.Backend.__dict__[name].__annotations__)
        found = {n for n, written in zip(given, writes(name), strict=False) if written}
        assert found == expected, name


# ---- dead calls --------------------------------------------------------------------------------


@needs_kernels
def test_calls_whose_results_nobody_reads_are_removed() -> None:
    def step(x: needle.Tensor) -> needle.Tensor:
        unused = (x * 3.0).exp()
        kept = x + 1.0
        kept.detach().sum(), unused.sum()
        return kept * 2.0

    captured = needle.capture(step)
    for i in range(3):
        x = needle.Tensor(np.arange(4.0) + i, device=needle.cpu(), requires_grad=False)
        np.testing.assert_array_equal(captured(x).numpy(), (np.arange(4.0) + i + 1) * 2)
    recorded, dead, *_ = captured.programs[0].stages
    assert [len(stage.recording.calls()) for stage in (recorded, dead)] == [6, 2]
    names = [line.split("(")[0] for line in str(captured.programs[0]).splitlines() if "(" in line]
    assert names == ["binary", "binary"] and "exp" in str(recorded) and "exp" not in str(dead)
    assert "dead calls: removed 4 calls; 2 calls" in captured.explain()
    assert str(recorded) in captured.explain(verbose=True)


# ---- planning ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_places_of_live_temporaries_do_not_overlap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots = []
    for number in range(60):
        dtype = np.dtype(["float32", "float32", "float64", "bool"][rng.integers(4)])
        first = int(rng.integers(1, 80))
        slot = BufferSlot(number, int(rng.integers(0, 3000)), dtype)
        slot.first_use, slot.last_use = first, first + int(rng.integers(0, 30))
        slots.append(slot)
    made = plan(slots)
    for i, one in enumerate(slots):
        begin = made.places[one]
        assert begin * one.dtype.itemsize % 64 == 0 and begin + one.size <= made.sizes[one.dtype]
        for other in slots[:i]:
            apart = one.last_use < other.first_use or other.last_use < one.first_use
            after = made.places[other] >= begin + one.size
            assert (
                apart
                or after
                or one.dtype != other.dtype
                or begin >= made.places[other] + other.size
            )


@needs_kernels
def test_the_plan_is_close_to_the_lower_bound() -> None:
    run = Training(True)
    run.steps(2)
    (program,) = run.step.programs
    bound = max(program.recording.live_bytes())
    assert bound <= program.planned_bytes <= 1.03 * bound


@needs_kernels
def test_a_chain_of_elementwise_calls_needs_one_buffer() -> None:
    x = needle.init.randn(1000, device=needle.cpu())

    def chain(x: needle.Tensor) -> needle.Tensor:
        y = x.tanh()
        return ((y * 2).exp() + y).sqrt().sum()

    wanted = chain(x).numpy()
    captured = needle.capture(chain)
    with needle.no_grad():
        for _ in range(3):
            np.testing.assert_array_equal(captured(x).numpy(), wanted)
    assert captured.programs[0].planned_bytes < 2.2 * 4000


@needs_kernels
def test_temporaries_are_freed_while_the_step_itself_runs() -> None:
    device = needle.cpu_numpy()
    x = needle.init.randn(100_000, device=device)
    captured = needle.capture(lambda x: ((x.tanh() * 2).exp() + x).sum(), check=False)
    tracemalloc.start()
    try:
        with needle.no_grad():
            for _ in range(3):
                captured(x)
        (program,) = captured.programs
        held = tracemalloc.get_traced_memory()[0]
        with program.without_memory():
            freed = held - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert freed > 0.9 * program.planned_bytes > 300_000


# ---- rematerialisation -------------------------------------------------------------------------


@needs_kernels
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_a_budget_is_met_with_the_same_bits(dropout: float) -> None:
    expected = Training(False, dropout).steps()
    plain = Training(True, dropout)
    assert_same(plain.steps(), expected)
    needed = plain.step.programs[0].planned_bytes
    with pytest.raises(ValueError, match="smallest possible figure is") as refused:
        Training(True, dropout, memory=1).steps()
    least = int(re.search(r"figure is (\d+)", str(refused.value))[1])  # type: ignore[index]
    assert least < 0.75 * needed
    for budget in (least, (least + needed) // 2, needed):
        run = Training(True, dropout, memory=budget)
        assert_same(run.steps(), expected)
        (program,) = run.step.programs
        assert program.planned_bytes <= budget and run.step.replays == 3
        assert ("repeated 0 calls" in run.step.explain()) == (budget == needed)
    run = Training(True, dropout, memory="least")
    assert_same(run.steps(), expected)
    assert run.step.programs[0].planned_bytes == least


@needs_kernels
@pytest.mark.parametrize("written", [False, True])
def test_a_value_is_not_computed_again_from_an_array_that_changed(written: bool) -> None:
    def step(buffer: Any, x: Any) -> Any:
        doubled = buffer * 2.0
        early = doubled + x
        if written:
            buffer[...] = x
        wide = early.reshape((64, 1)) + x.reshape((1, 64))  # ``doubled`` is live here
        return wide.sum() + (doubled * 3.0).sum()

    def run(function: Any) -> list[np.ndarray[Any, Any]]:
        arrays = [needle.cpu().full((64,), value) for value in (1.0, 5.0)]
        return [array.numpy() for _ in range(3) for array in (function(*arrays), *arrays)]

    with pytest.raises(ValueError, match="smallest possible figure is") as refused:
        run(needle.capture(step, memory=1))
    least = int(re.search(r"figure is (\d+)", str(refused.value))[1])  # type: ignore[index]
    captured = needle.capture(step, memory=least)
    assert_same(run(captured), run(step))
    assert ("repeated 0 calls" in captured.explain()) == written


def random_step(seed: int) -> Any:
    """Return a function of two NDArrays; it also keeps and writes to two NDArrays of its own."""

    def step(kept: list[Any], x: Any, y: Any) -> list[Any]:
        rng = np.random.Generator(np.random.PCG64(seed))
        values, results = [x, y], []
        for _ in range(30):
            a, b = (values[int(rng.integers(len(values)))] for _ in range(2))
            one = kept[int(rng.integers(len(kept)))]
            kind = int(rng.integers(10))
            if kind == 0:
                one[...] = a
            elif kind == 1:
                one[0:3, :] = a[0:3, :]
            elif kind == 2:
                b = b + 0.0
                b[2:5, 1:4] = a[2:5, 1:4]
            elif kind == 3:
                b = (a @ b) * 0.05
            elif kind == 4:
                b = a.sum(axis=0, keepdims=True).broadcast_to(a.shape) * 0.01
            elif kind == 5:
                b = (a.reshape((64,)) - b.reshape((64,))).reshape((8, 8))
            elif kind == 6:
                b = a.permute((1, 0))
            else:
                b = [a + b, a * 0.5, one * 0.5][kind - 7]
            values.append(b * 0.5)
            results += values[-1:] * int(rng.integers(6) == 0)
            if rng.integers(3) == 0 and len(values) > 4:
                values.pop(int(rng.integers(len(values) - 1)))
        return [*results, values[-1]]

    return step


@needs_kernels
def test_random_programs_keep_their_bits() -> None:
    def run(function: Any, seed: int) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(seed)

        def made() -> list[Any]:
            hosts = rng.standard_normal((2, 8, 8)).astype("float32")
            return [needle.backend_ndarray.array(host, device=needle.cpu()) for host in hosts]

        kept = made()
        return [v.numpy() for _ in range(3) for v in (*function(kept, *made()), *kept)]

    repeated = 0
    for seed in range(20):
        expected = run(random_step(seed), seed)
        assert_same(run(needle.capture(random_step(seed)), seed), expected)
        try:
            run(needle.capture(random_step(seed), memory=1), seed)
        except ValueError as refused:
            least = int(re.search(r"figure is (\d+)", str(refused))[1])  # type: ignore[index]
            captured = needle.capture(random_step(seed), memory=least)
            assert_same(run(captured, seed), expected)
            repeated += "repeated 0 calls" not in captured.explain()
    assert repeated > 3


@pytest.mark.parametrize(
    "given, expected",
    [(None, None), (5, 5), ("800MB", 800_000_000), ("1.5 GiB", 3 << 29), ("64KiB", 1 << 16)],
)
def test_memory_is_a_number_of_bytes(given: Any, expected: Any) -> None:
    assert byte_count(given) == expected


@pytest.mark.parametrize("given", [0, -1, True, "", "MB", "12 apples", "0.1B", [3]])
def test_other_memory_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="capture: memory must be a positive number of bytes"):
        needle.capture(print, memory=given)
