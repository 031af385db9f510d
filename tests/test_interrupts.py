"""Test that a Ctrl-C in a step, a batch or a change of mode is raised, and leaves no mode on.

The signal arrives before a bytecode instruction; Python raises KeyboardInterrupt when it looks for
signals next, as it does for a user. No clock decides anything, except in the soak tests.
"""

import contextlib
import ctypes
import dis
import fcntl
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import config, nn
from needle.autograd.graph import recording
from needle.data import ArrayDataset, DataLoader, GlobalDataLoader
from needle.data.samples import timing
from needle.data.samples.random_source import draws, keyed
from needle.data.workers.work_queue import ANY_WORKER, Entry, WorkQueue
from needle.host_steps import current
from needle.io import load_checkpoint, save_checkpoint
from needle.optim import SGD, ExponentialAverage
from tests.nn_devices import needs_kernels

pytestmark = needs_kernels


class Signal(int):
    """A signal number; reading ``sent`` raises the signal without letting Python check for it."""

    sent = property(ctypes.CDLL(None)["raise"])


SIGINT = Signal(signal.SIGINT)


LOADS = {
    dis.opmap[name]
    for name in ("LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_DEREF", "PRECALL", "KW_NAMES")
    if name in dis.opmap
}
"""Instructions after which Python does not look for signals; one before is as one after."""


class Probe:
    """A trace function that sends SIGINT before the ``after``-th instruction not in ``seen``."""

    def __init__(self, seen: set[tuple[CodeType, int]], after: int) -> None:
        self.seen, self.left = seen, after
        self.place: tuple[CodeType, int] | None = None

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        place = frame.f_code, frame.f_lasti
        if place in self.seen or frame.f_code.co_code[frame.f_lasti] in LOADS:
            return self
        self.seen.add(place)
        self.left -= 1
        if self.left:
            return self
        self.place = place
        sys.settrace(None)  # in a trace function Python would look for the signal at once
        SIGINT.sent  # noqa: B018 - the property is a C function
        return self


@pytest.fixture(autouse=True)
def printed(monkeypatch: pytest.MonkeyPatch, interruptible: None) -> Iterator[list[Any]]:
    """The exceptions that Python has printed and dropped.

    Python drops what a callback of its garbage collector raises; the test removes the callbacks of
    other packages.
    """
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", found.append)
    others = gc.callbacks[:]
    gc.callbacks.clear()
    try:
        yield found
    finally:
        gc.callbacks.extend(others)
    assert not [each.exc_value for each in found]


def interrupt_everywhere(run: Callable[[], Any], check: Callable[[], None], step: int) -> int:
    """Run it with a Ctrl-C before every ``step``-th of its instructions; return their number."""
    seen: set[tuple[CodeType, int]] = set()
    while True:
        probe, raised = Probe(seen, step), False
        try:
            sys.settrace(probe)
            run()
            for _ in range(2):
                pass
        except KeyboardInterrupt:
            raised = True
        finally:
            sys.settrace(None)
        if probe.place is None:
            return len(seen)
        code, offset = probe.place
        assert raised, f"lost in {code.co_qualname}, {code.co_filename}, offset {offset}"
        check()


EVERY = pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])


def modes() -> dict[str, Any]:
    backend = ndl.default_device().backend
    return {
        "recording": recording.on,
        "draws": draws(),
        "clock": timing._active.get(),
        "device": ndl.default_device(),
        "precision": config.matmul_precision.get(),
        "recorder": current.recorder,
        "functions": [*vars(backend)],
        "random": (random.getstate(), *map(str, np.random.get_state())),
    }


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def weights(model: Any) -> list[Any]:
    return [p.numpy().copy() for p in model.parameters()]


X, Y = ndl.Tensor(np.eye(3, dtype=np.float32)), ndl.Tensor(np.array([0, 1, 1]))


def gradients(model: Any) -> list[Any]:
    """Return the gradients of the model without dropout, from a step that records and clears."""
    model.eval()
    for p in model.parameters():
        p.grad = None
    nn.SoftmaxLoss()(model(X), Y).backward()
    return [p.grad.numpy() for p in model.parameters()]


@pytest.fixture
def model() -> Any:
    ndl.seed(3)
    return Net()


def same(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@EVERY
def test_a_training_step(model: Any, step: int) -> None:
    optimizer = SGD(model.layers[0].parameters(), lr=0.0)
    before, wanted = modes(), gradients(model)

    def once() -> None:
        optimizer.reset_grad()
        model.layers[0](X).sum().backward()
        optimizer.step()

    def check() -> None:
        assert modes() == before
        same(gradients(model), wanted)

    assert interrupt_everywhere(once, check, step) > 300


@EVERY
def test_an_inference_step(model: Any, step: int) -> None:
    before, wanted = modes(), gradients(model)

    @ndl.no_grad()
    def decorated() -> Any:
        with ndl.enable_grad():
            return model(X)

    def once() -> None:
        with ndl.no_grad():
            model(X)
        decorated()

    def check() -> None:
        assert modes() == before
        same(gradients(model), wanted)

    assert interrupt_everywhere(once, check, step) > 100


def halved(image: Any) -> Any:
    draws()
    return image / 2


ENGINES: dict[str, dict[str, Any]] = {
    "inline": {},
    "threads": {"num_workers": 2, "engine": "threads"},
    "processes": {"num_workers": 1, "engine": "processes"},
}


@EVERY
@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_an_epoch_of_a_loader(engine: str, step: int) -> None:
    rows = np.arange(6, dtype=np.float32)
    data = ArrayDataset(rows)
    loader = DataLoader(data, 2, shuffle=True, seed=1, transforms=[halved], **ENGINES[engine])
    before = modes()

    def epoch() -> list[float]:
        return [x for (batch,) in loader for x in batch.numpy().tolist()]

    def check() -> None:
        assert modes() == before
        assert sorted(epoch()) == (rows / 2).tolist()

    with loader:
        check()
        assert interrupt_everywhere(epoch, check, step) > 300


def test_the_lock_of_the_work_queue_is_free_while_the_traceback_lives() -> None:
    queue = WorkQueue.create(1, 1)
    errors: list[KeyboardInterrupt] = []

    def once() -> None:
        try:
            queue.put(0, Entry(0, ANY_WORKER, 0, 0, 0, 1, -1, 0))
            queue.withdraw(0)
        except KeyboardInterrupt as error:
            errors.append(error)
            raise

    def check() -> None:
        pid = os.fork()
        if pid == 0:
            try:
                fcntl.lockf(queue.memory.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0

    assert interrupt_everywhere(once, check, 1) > 20
    queue.close()


@EVERY
def test_large_batches_return_to_the_pool(step: int) -> None:
    image = np.ones((1 << 19,), np.float32)
    before = modes()

    def epoch() -> None:
        for (batch,) in DataLoader(ArrayDataset(np.stack([image] * 3)), 2):
            assert batch.shape[1] == len(image)

    assert interrupt_everywhere(epoch, lambda: None, step) > 100
    assert modes() == before


@EVERY
def test_a_summary(model: Any, step: int) -> None:
    model.layers[0].eval()
    modules = [module for _, module in model.named_modules()]
    trained = [module.training for module in modules]
    before = modes()

    def check() -> None:
        assert modes() == before
        assert [module.training for module in modules] == trained
        assert not any("forward" in vars(module) for module in modules)

    interrupt_everywhere(lambda: ndl.summary(model, (1, 3)), check, step)


def test_the_weights_of_an_average(model: Any) -> None:
    average = ExponentialAverage(model)
    average.update()
    for p in model.parameters():
        p.data = p.data + 1.0
    wanted = weights(model)

    def run() -> None:
        with average.applied():
            assert not (weights(model)[0] == wanted[0]).all()

    interrupt_everywhere(run, lambda: same(weights(model), wanted), 1)


def in_keyed() -> None:
    with keyed(1, 2, 3), timing.Clock().active():
        pass


def in_precision() -> None:
    with config.matmul_precision.using("bf16"):
        pass


def in_no_grad() -> None:
    with ndl.no_grad(), ndl.enable_grad():
        pass


def in_loader() -> None:
    with DataLoader([1, 2]):
        pass


@pytest.mark.parametrize("run", [in_keyed, in_precision, in_no_grad, in_loader])
def test_a_mode(run: Callable[[], None]) -> None:
    before = modes()

    def check() -> None:
        assert modes() == before

    assert interrupt_everywhere(run, check, 1) > 5


def test_the_default_device() -> None:
    before = modes()
    waiting = [ndl.set_default_device("cpu_numpy")]

    def run() -> None:
        with waiting[0]:
            waiting.clear()
            ndl.zeros(1)

    def check() -> None:
        if ndl.default_device() != before["device"]:
            assert waiting  # the interrupt came before the context was entered
            ndl.set_default_device(None)
        assert modes() == before
        waiting[:] = [ndl.set_default_device("cpu_numpy")]

    try:
        assert interrupt_everywhere(run, check, 1) > 5
    finally:
        ndl.set_default_device(None)


def test_a_mode_that_was_entered_and_dropped_ends() -> None:
    """From Python 3.14 on, an interrupt can come between ``__enter__`` and the block."""
    before = draws()
    mode = keyed(1, 2, 3)
    mode.__enter__()
    assert draws() is not before
    with pytest.raises(KeyboardInterrupt):
        try:
            raise KeyboardInterrupt
        finally:
            del mode
    assert draws() is before


@EVERY
def test_a_recorded_step(model: Any, step: int) -> None:
    """Interrupt a first call, which records, the second, which checks, and a replay."""
    model.eval()
    for p in model.parameters():
        p.grad = None
    loss, before = nn.SoftmaxLoss(), modes()
    wanted = float(loss(model(X), Y).numpy())

    def forward(x: Any, y: Any) -> Any:
        return loss(model(x), y)

    def run() -> None:
        recorded = ndl.capture(forward, state=[model])
        for _ in range(3):
            recorded(X, Y)

    def check() -> None:
        assert modes() == before
        assert float(loss(model(X), Y).numpy()) == wanted

    assert interrupt_everywhere(run, check, 5 * step) > 3000


# ---- soak ----------------------------------------------------------------------------------------

TIMES = 2000
Loop = tuple[Callable[[], Any], Callable[[], None]]


class Interrupter:
    """A thread that sends this process a Ctrl-C on request, within ``seconds``."""

    def __init__(self) -> None:
        self.asked, self.sent = SimpleQueue[float | None](), SimpleQueue[bool]()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while (seconds := self.asked.get()) is not None:
            time.sleep(seconds)
            os.kill(os.getpid(), signal.SIGINT)
            self.sent.put(True)

    def interrupted(self, loop: Callable[[], Any], seconds: float) -> bool:
        """Run ``loop`` again and again; return whether the Ctrl-C was raised."""
        try:
            self.asked.put(seconds)
            while self.sent.empty():
                loop()
            for _ in range(3):
                loop()
        except KeyboardInterrupt:
            return True
        finally:
            self.sent.get()
        return False

    def close(self) -> None:
        self.asked.put(None)
        self._thread.join()


def steps(model: Any, tmp_path: Path, kind: str) -> Loop:
    optimizer, loss = SGD(model.parameters(), lr=0.0), nn.SoftmaxLoss()
    wanted = gradients(model)

    def step(x: Any, y: Any) -> Any:
        optimizer.reset_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value

    def inference(x: Any, y: Any) -> Any:
        with ndl.no_grad():
            return model(x)

    def save(x: Any, y: Any) -> None:
        save_checkpoint(tmp_path / "checkpoint", model=model, optimizer=optimizer)

    def check() -> None:
        same(gradients(model), wanted)
        if kind == "save":
            load_checkpoint(tmp_path / "checkpoint", model=model)
            assert len([*tmp_path.iterdir()]) == 1

    if kind == "captured":
        captured = ndl.capture(step, state=[model, optimizer])
        return (lambda: captured(X, Y)), lambda: None
    chosen = {"eager": step, "inference": inference, "save": save}[kind]
    return (lambda: chosen(X, Y)), check


def epochs(loader: Any) -> Loop:
    wanted = [*range(24)]

    def epoch() -> list[int]:
        return [i for (batch,) in loader for i in batch.numpy().tolist()]

    def check() -> None:
        assert sorted(epoch()) == wanted

    return epoch, check


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["eager", "captured", "inference", "save", *ENGINES, "global"])
def test_interrupts_at_random_moments(kind: str, model: Any, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        if kind in ("eager", "captured", "inference", "save"):
            model.eval()
            loop, check = steps(model, tmp_path, kind)
        else:
            data = ArrayDataset(np.arange(24))
            options = ENGINES.get(kind, {"name": f"interrupts-{os.getpid()}", "num_workers": 1})
            make = GlobalDataLoader if kind == "global" else DataLoader
            loop, check = epochs(stack.enter_context(make(data, 4, True, seed=1, **options)))
        loop()
        began = time.perf_counter()
        loop()
        longest, times = 2 * (time.perf_counter() - began), random.Random(7)
        before, lost = modes(), 0
        thread = Interrupter()
        stack.callback(thread.close)
        for _ in range(TIMES):
            lost += not thread.interrupted(loop, times.uniform(0, longest))
            check()
            assert {**modes(), "random": before["random"]} == before
        assert not lost
