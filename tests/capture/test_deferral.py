"""Test deferred calls: when they run, their state after a failure, and their memory."""

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import needle
from needle import nn, optim
from needle.host_steps import host_step
from tests.nn_devices import needs_kernels

pytestmark = [
    needs_kernels,
    pytest.mark.filterwarnings("error::needle.CaptureWarning"),
]


def tensor(*values: float) -> needle.Tensor:
    array = np.array(values, "float32")
    return needle.Tensor(array, device=needle.cpu(), requires_grad=False)


def test_a_host_step_reads_what_was_computed() -> None:
    @host_step
    def total(values: needle.Tensor) -> float:
        return float(values.numpy().sum())

    def step(x: needle.Tensor) -> tuple[needle.Tensor, float]:
        y = x + 1.0
        seen = total(y)
        return y * 2.0, seen

    captured = needle.capture(step)
    for values in ((1, 2), (5, 6), (7, 8)):
        y, seen = captured(tensor(*values))
        assert (y.numpy().tolist(), seen) == ([2 * v + 2 for v in values], sum(values) + 2)
    assert captured.replays == 2


def test_another_thread_reads_what_was_computed() -> None:
    def step(x: needle.Tensor) -> needle.Tensor:
        y = x + 1.0
        read = lambda: vars(reader).update(found=y.numpy().tolist())  # noqa: E731
        reader = threading.Thread(target=read)
        reader.start()
        reader.join()
        assert vars(reader)["found"] == [2, 3]
        return y * 2.0

    assert needle.capture(step)(tensor(1, 2)).numpy().tolist() == [4, 6]


def test_an_exception_of_the_step_leaves_computed_values() -> None:
    kept: dict[str, Any] = {"y": None}

    def step(x: needle.Tensor) -> needle.Tensor:
        kept["y"] = x + 1.0
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        needle.capture(step)(tensor(1, 2))
    assert kept["y"].numpy().tolist() == [2, 3]


def test_a_kernel_that_fails_leaves_the_state_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters, running statistics and gradients still have buffers with values."""
    np.random.seed(0)
    model = nn.Sequential(nn.BatchNorm1d(2, device=needle.cpu()))
    optimizer = optim.SGD(model.parameters(), lr=0.5)

    def step(x: needle.Tensor) -> needle.Tensor:
        optimizer.reset_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    def state() -> list[Any]:
        return [value.numpy().tolist() for value in model.state_dict().values()]

    def failing(*args: Any) -> None:
        raise RuntimeError("no more")

    x = tensor(1, 2, 3, 4).reshape((2, 2))
    before = state()
    with monkeypatch.context() as patch:
        patch.setattr(type(needle.cpu().backend), "binary", staticmethod(failing))
        with pytest.raises(RuntimeError, match="no more"):
            needle.capture(step, state=[model, optimizer])(x)
    assert state() == before and all(p.grad is None for p in model.parameters())
    captured = needle.capture(step, state=[model, optimizer])
    captured(x)
    assert state() != before


def test_two_optimizers_in_one_step_see_each_other() -> None:
    def run(captured: bool) -> list[Any]:
        np.random.seed(0)
        first, second = (nn.Linear(3, 3, device=needle.cpu()) for _ in range(2))
        optimizers = [optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (first, second)]

        def train(x: needle.Tensor) -> needle.Tensor:
            for optimizer in optimizers:
                optimizer.reset_grad()
                loss = (second(first(x).relu()) ** 2).sum()
                loss.backward()
                optimizer.step()
            return loss

        step: Any = needle.capture(train, state=[first, second, optimizers]) if captured else train
        losses = [step(tensor(i, 1, 2).reshape((1, 3))).numpy() for i in range(4)]
        return [*losses, *(p.numpy() for m in (first, second) for p in m.parameters())]

    for one, other in zip(run(True), run(False), strict=True):
        np.testing.assert_array_equal(one, other)


PEAK = """
import sys
from pathlib import Path
import numpy as np, needle
def chain(x):
    kept = [x]
    for _ in range(20):
        kept.append(kept[-1] + 1.0)
    return kept[-1].sum()
step = needle.capture(chain) if sys.argv[1] == "captured" else chain
x = needle.Tensor(np.zeros(1 << 21, "float32"), device=needle.cpu(), requires_grad=False)
status = Path("/proc/self/status")  # ru_maxrss is not less than that of the parent
peak = lambda: int(status.read_text().partition("VmHWM:")[2].split()[0])
before = peak()
assert step(x).item() == 20 * (1 << 21)
print((peak() - before) >> 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_first_call_needs_the_memory_of_a_replay() -> None:
    """20 arrays of 8 MiB stay referenced until the step ends, but only two are needed at a time."""
    found = {}
    for kind in ("eager", "captured"):
        command = [sys.executable, "-c", PEAK, kind]
        found[kind] = int(subprocess.run(command, capture_output=True, check=True).stdout)
    assert found["eager"] > 120 and found["captured"] < 60, found
