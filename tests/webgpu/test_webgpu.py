"""The WebGPU backend: the conformance suite, limits of its dtypes, memory, and a network.

Tests with the fixture ``gpu`` need the package wgpu and a driver; Mesa's lavapipe will do.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import needle
from needle import nn, optim
from needle.backends.webgpu import adapters, sources
from needle.errors import DeviceError, DeviceLostError, DeviceMemoryError, DTypeError
from needle.testing import conformance

ROOT = Path(__file__).parents[2]
CPP_ROW = re.compile(r"^ +ROW\((\w+), (\w+), (\w+), (.+?)\) *\\?$", re.MULTILINE)


@pytest.fixture
def gpu():
    device = needle.webgpu()
    if not device.enabled():
        pytest.skip(device.why())
    return device


def in_wgsl(formula: str) -> str:
    """Return a formula of elementwise_ops.h as elementwise.wgsl writes it."""
    if formula == "x != x":
        return "math_is_nan(x)"
    named = re.sub(r"std::(sqrt|floor|ceil|trunc)\b", r"\1", formula).replace("std::rint", "round")
    named = named.replace("math::", "math_").replace("std::", "math_").replace("x& y", "x & y")
    return re.sub(r"\b([xy]) != (T\(0\)|y)", r"!(\1 == \2)", named)


def test_the_formulas_are_those_of_cpp():
    header = (ROOT / "src/core/elementwise_ops.h").read_text(encoding="utf-8")
    expected = [row for row in CPP_ROW.findall(header) if row[0] != "name"]
    assert len(expected) == len(sources.rows()) >= 60
    for name, domain, result, formula in expected:
        got = sources.rows()[name]
        assert (got.domain, got.result) == (domain, result), name
        assert got.formula == in_wgsl(formula), name


def test_conversions_have_a_formula_for_every_pair():
    for source in map(np.dtype, ("float32", "int32", "int64", "uint8", "bool")):
        for target in map(np.dtype, ("float32", "int32", "int64", "uint8", "bool")):
            assert "fn compute" in sources.conversion(source, target)


def test_without_the_package_the_device_says_what_to_install():
    program = (
        "import sys; sys.modules['wgpu'] = None\n"
        "import needle\n"
        "print(needle.webgpu().enabled(), needle.webgpu().why())"
    )
    run = [sys.executable, "-c", program]
    said = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said.startswith("False webgpu: the package wgpu cannot be imported")
    assert "pip install 'needle[webgpu]'" in said


def test_conformance(gpu):
    report = conformance.run("webgpu")
    assert report.ok, report.table()
    for name in ("matmul", "conv2d", "conv2d_input_grad", "conv2d_weight_grad", "adam_step"):
        assert report.row(name).state == "passes"


def test_an_adapter_that_does_not_exist(gpu):
    count = len(adapters.adapters())
    with pytest.raises(DeviceError, match=f"adapter {count} does not exist, this machine has"):
        adapters.adapter(count)
    assert not needle.webgpu(count).enabled()


def test_the_name_of_software_says_so(gpu):
    kind = adapters.adapter(0).info["adapter_type"]
    assert ("software" in gpu.adapter_name) == (kind == "CPU")


def test_float64_has_a_remedy(gpu):
    with pytest.raises(DTypeError, match=r"float64; WebGPU has no 64-bit floats, cast to float32"):
        needle.Tensor(np.zeros(3), dtype="float64", device=gpu)


def test_int64_beyond_32_bits_is_refused(gpu):
    good = np.array([-(2**31), 2**31 - 1])
    kept = needle.Tensor(good, dtype="int64", device=gpu)
    np.testing.assert_array_equal(kept.numpy(), good)
    for value in (2**31, -(2**31) - 1):
        with pytest.raises(DTypeError, match=f"int64 is stored in 32 bits.*got {value}"):
            needle.Tensor(np.array([0, value]), dtype="int64", device=gpu)


def test_memory_is_used_again(gpu):
    def once() -> None:
        needle.Tensor(np.ones(12345, "float32"), device=gpu)

    once()
    before = gpu.memory_stats()
    for _ in range(10):
        once()
    after = gpu.memory_stats()
    assert after["allocations"] == before["allocations"]
    assert after["reuses"] >= before["reuses"] + 10


def test_handles_in_cycles_give_their_memory_back_once(gpu):
    """The garbage collector finalises a cycle in any order and in any thread."""
    held = needle.Tensor(np.arange(7, dtype="float32"), device=gpu)
    for _ in range(50):
        cycle: list = [needle.Tensor(np.ones(7, "float32"), device=gpu)]
        cycle.append(cycle)
    del cycle
    collector = threading.Thread(target=__import__("gc").collect)
    collector.start()
    collector.join()
    fresh = [needle.Tensor(np.full(7, i, "float32"), device=gpu) for i in range(60)]
    for i, tensor in enumerate(fresh):
        np.testing.assert_array_equal(tensor.numpy(), np.full(7, i, "float32"))
    np.testing.assert_array_equal(held.numpy(), np.arange(7))


def test_commands_are_submitted_together(gpu):
    a = needle.Tensor(np.ones(5, "float32"), device=gpu)
    a.numpy()
    queue = gpu.backend.queue
    before = queue.submissions
    for _ in range(20):
        a = a + 1
    assert queue.submissions == before
    np.testing.assert_array_equal(a.numpy(), np.full(5, 21))
    assert queue.submissions == before + 1


def test_a_write_comes_after_the_commands_that_read_the_buffer(gpu):
    backend, dtype = gpu.backend, np.dtype("float32")
    View = needle.backends.View
    a = View(backend.allocate(4, dtype), (4,), (1,), 0, dtype)
    out = View(backend.allocate(4, dtype), (4,), (1,), 0, dtype)
    backend.upload(np.full(4, 2, dtype), a)
    backend.binary("add", a, 1.0, out)
    backend.upload(np.full(4, 50, dtype), a)
    np.testing.assert_array_equal(backend.download(out), np.full(4, 3))


def test_a_buffer_that_is_too_large(gpu):
    with pytest.raises(DeviceMemoryError, match=r"a buffer may have \d+ bytes on this adapter"):
        gpu.backend.allocate(2**40, np.dtype("float32"))
    assert issubclass(DeviceMemoryError, MemoryError)


def test_a_lost_device_is_a_typed_error():
    """In a process of its own, since the device is gone afterwards."""
    if not needle.webgpu().enabled():
        pytest.skip(needle.webgpu().why())
    program = (
        "import numpy as np, needle\n"
        "from needle.backends.webgpu import WebGpuBackend, adapters\n"
        "backend = WebGpuBackend(adapters.adapter(0), 'lost')\n"
        "dtype = np.dtype('float32')\n"
        "view = needle.backends.View(backend.allocate(4, dtype), (4,), (1,), 0, dtype)\n"
        "backend.upload(np.ones(4, dtype), view)\n"
        "backend.queue._device.destroy()\n"
        "try:\n"
        "    backend.binary('add', view, 1.0, view)\n"
        "    backend.download(view)\n"
        "except needle.errors.DeviceLostError as error:\n"
        "    print('lost:', error)\n"
    )
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.startswith("lost: webgpu: the device was lost"), done.stderr[-2000:]
    assert issubclass(DeviceLostError, DeviceError)


def losses(device, optimizer) -> list[float]:
    np.random.seed(3)
    model = nn.Sequential(
        nn.Conv(1, 4, 3, device=device),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 6 * 6, 10, device=device),
    )
    step, loss_of = optimizer(model.parameters()), nn.SoftmaxLoss()
    random = np.random.default_rng(1)
    images = needle.Tensor(random.normal(size=(8, 1, 12, 12)).astype("float32"), device=device)
    labels = needle.Tensor(random.integers(0, 10, 8), device=device)
    found = []
    for _ in range(6):
        loss = loss_of(model(images), labels)
        step.reset_grad()
        loss.backward()
        step.step()
        found.append(float(loss.numpy()))
    return found


@pytest.mark.parametrize(
    "optimizer",
    [lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: optim.Adam(p, lr=0.01)],
    ids=["sgd", "adam"],
)
def test_a_network_has_the_losses_of_numpy(gpu, optimizer):
    expected, got = losses(needle.cpu_numpy(), optimizer), losses(gpu, optimizer)
    assert got[-1] < got[0] / 1.5
    np.testing.assert_allclose(got, expected, rtol=2e-4)


def test_a_captured_step_gives_the_same_bits(gpu):
    def run(captured: bool) -> list[bytes]:
        np.random.seed(5)
        model = nn.Linear(6, 3, device=gpu)
        step = optim.SGD(model.parameters(), lr=0.1)

        def train(x):
            loss = (model(x) ** 2).sum()
            step.reset_grad()
            loss.backward()
            step.step()
            return loss

        act = needle.capture(train) if captured else train
        random = np.random.default_rng(2)
        batches = [random.normal(size=(4, 6)).astype("float32") for _ in range(5)]
        return [act(needle.Tensor(x, device=gpu)).numpy().tobytes() for x in batches]

    assert run(True) == run(False)
