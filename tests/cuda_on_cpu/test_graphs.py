"""Test ``needle.capture`` with CUDA graphs: replayed launches give the bits of the eager step.

Also the foundations of graphs: what a recording rejects, whose memory it uses, and errors of
kernels reported at the operation that caused them.
"""

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import needle
from needle.backends import View
from tests.cuda_on_cpu import emulated
from tests.small_training import Training, assert_same

pytestmark = emulated.NEEDED
F32 = np.dtype("float32")


@pytest.fixture
def device() -> Any:
    return needle.device(emulated.NAME)


@pytest.fixture
def waiting() -> Iterator[None]:
    """Run as with NEEDLE_CUDA_SYNC=1."""
    emulated.module.set_synchronous(True)
    yield
    emulated.module.set_synchronous(False)


def test_graphs_give_the_bits_of_the_eager_step(device: Any) -> None:
    """Every loss is kept, so that no step can reuse the buffer of an earlier one."""
    eager, captured = Training(device, False), Training(device, True)
    losses = [run.steps(12) for run in (eager, captured)]
    assert_same(eager, captured, losses)
    (program,) = captured.step.programs
    assert captured.step.replays == 11
    assert program.graphs.refusal is None
    parts = sum(len(part.calls) > 1 for part in program.recording.segments)
    assert parts >= 2  # dropout's draw splits the graph
    assert program.graphs.launched == 11 * parts
    assert program.graphs.recorded <= 10 * parts  # checks (calls 2, 4, 8) record more


def test_graphs_of_a_step_with_a_budget_give_the_same_bits(device: Any) -> None:
    plain = Training(device, True)
    plain.steps(1)
    with pytest.raises(ValueError, match="smallest possible figure is") as refused:
        Training(device, True, memory=1).steps(1)
    least = int(str(refused.value).split("figure is ")[1].split()[0])
    assert least < plain.step.programs[0].planned_bytes
    eager, captured = Training(device, False), Training(device, True, memory=least)
    losses = [run.steps(4) for run in (eager, captured)]
    assert_same(eager, captured, losses)
    (program,) = captured.step.programs
    assert program.graphs.launched and program.planned_bytes <= least


def test_what_kernels_took_while_they_were_recorded_stays_theirs(device: Any) -> None:
    """Arrays created between replays take all free memory; the replays write to none of them."""
    eager, captured = Training(device, False), Training(device, True)
    made: list[Any] = []

    def take() -> None:
        for size in (2, 8, 16, 32, 64, 256, 1024):
            made.extend(device.full((size,), 7.0) for _ in range(6))

    losses = [eager.steps(6), captured.steps(6, take)]
    assert_same(eager, captured, losses)
    assert captured.step.programs[0].graphs.launched > 0
    assert all((array.numpy() == 7).all() for array in made)


def test_memory_goes_back_with_the_graphs(device: Any) -> None:
    gc.collect()  # collects garbage that other tests left
    before = device.memory_stats()["in_use"]
    captured = Training(device, True)
    captured.steps(4)
    assert captured.step.programs[0].graphs.recorded
    del captured
    gc.collect()
    assert device.memory_stats()["in_use"] == before


def test_where_kernels_are_waited_for_they_are_launched_one_by_one(
    device: Any, waiting: None
) -> None:
    eager, captured = Training(device, False), Training(device, True)
    with pytest.warns(needle.CaptureWarning, match="one by one, not as a graph: .*CUDA_SYNC=1"):
        losses = [run.steps(3) for run in (eager, captured)]
    assert_same(eager, captured, losses)
    assert captured.step.replays == 2


def test_graphs_can_be_declined(device: Any) -> None:
    captured = Training(device, True, graphs=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        captured.steps(2)
    assert captured.step.replays == 1 and captured.step.programs[0].graphs is None


def test_a_recording_runs_nothing_and_refuses_to_wait(device: Any) -> None:
    backend = device.backend
    view = View(backend.allocate(4, F32), (4,), (1,), 0, F32)
    backend.fill(view, 1.0)
    launch = backend.record_graph(lambda: backend.fill(view, 2.0))
    assert backend.download(view).tolist() == [1.0] * 4
    launch()
    assert backend.download(view).tolist() == [2.0] * 4
    host = np.zeros(4, "float32")
    for name, waits in {
        "download": lambda: backend.download(view),
        "upload": lambda: backend.upload(host, view),
        "synchronize": backend.synchronize,
        "capture": lambda: backend.record_graph(lambda: None),
    }.items():
        with pytest.raises(RuntimeError, match=f"{name}: this waits for the host or the device"):
            backend.record_graph(waits)
    backend.fill(view, 3.0)  # recording has ended, so the kernel runs at once
    assert backend.download(view).tolist() == [3.0] * 4


def test_an_error_of_a_kernel_shows_later_with_a_hint(device: Any) -> None:
    x = device.full((4,), 2.0)
    emulated.module.fail_next_kernel()
    y = needle.backend_ndarray.exp(x)
    with pytest.raises(RuntimeError, match=r"illegal memory access.*set NEEDLE_CUDA_SYNC=1"):
        y.numpy()


def test_an_error_of_a_kernel_shows_at_its_operation_where_launches_wait(
    device: Any, waiting: None
) -> None:
    x = device.full((4,), 2.0)
    emulated.module.fail_next_kernel()
    with pytest.raises(RuntimeError, match=r"^exp: CUDA reports 'an illegal memory access[^;]*$"):
        needle.backend_ndarray.exp(x)
