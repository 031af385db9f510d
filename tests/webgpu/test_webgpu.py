"""Test the WebGPU backend: conformance, limits of its dtypes, memory, and a network.

Tests with the fixture ``gpu`` need the package wgpu and a driver, for example Mesa's lavapipe.
"""

import importlib
import re
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import needle
from apps import profile_layers
from needle import nn
from needle.backends.webgpu import adapters, sources
from needle.errors import DeviceError, DeviceLostError, DeviceMemoryError, DTypeError
from needle.testing import conformance
from tests.programs import python
from tests.small_training import Training, assert_same

ROOT = Path(__file__).parents[2]
CPP_ROW = re.compile(r"^ +ROW\((\w+), (\w+), (\w+), (.+?)\) *\\?$", re.MULTILINE)


@pytest.fixture
def gpu():
    device = needle.webgpu()
    if not device.enabled():
        pytest.skip(device.why())
    return device


def in_wgsl(formula: str) -> str:
    """Return a formula from elementwise_ops.h in the syntax of elementwise.wgsl."""
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


def test_without_the_package_the_device_says_what_to_install():
    program = (
        "import sys; sys.modules['wgpu'] = None\n"
        "import needle\n"
        "print(needle.webgpu().enabled(), needle.webgpu().why())"
    )
    said = python("-c", program).stdout
    assert said.startswith("False webgpu: the package wgpu cannot be imported")
    assert "pip install 'needle[webgpu]'" in said


@pytest.mark.slow
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


def test_gpus_come_before_software(monkeypatch):
    kinds = [("CPU", "Vulkan"), ("IntegratedGPU", "OpenGL"), ("DiscreteGPU", "Vulkan")]
    kinds += [("IntegratedGPU", "Metal")]
    found = [
        SimpleNamespace(info={"adapter_type": kind, "backend_type": driver, "device": "one"})
        for kind, driver in kinds
    ]
    wgpu = SimpleNamespace(gpu=SimpleNamespace(enumerate_adapters_sync=lambda: found))
    monkeypatch.setitem(sys.modules, "wgpu", wgpu)
    monkeypatch.setattr(adapters, "adapters", adapters.adapters.__wrapped__)
    names = [adapters.name_of(adapters.adapter(i)) for i in range(4)]
    assert names == [
        "one (Vulkan)",
        "one (Metal)",
        "one (OpenGL)",
        "one (Vulkan, software)",
    ]
    found.clear()
    with pytest.raises(DeviceError, match="no adapter was found; install a driver for Vulkan"):
        adapters.adapter(0)


def test_each_adapter_is_a_device_of_its_own(gpu, monkeypatch):
    (best, *_) = adapters.adapters()
    monkeypatch.setattr(adapters, "adapters", lambda: (best, best))
    backends = importlib.import_module("needle.backends")
    try:
        second = needle.webgpu(1)
        assert second.enabled() and str(second) == "webgpu:1()" and second != gpu
        x = needle.Tensor(np.arange(3, dtype="float32"), device=gpu)
        np.testing.assert_array_equal((x.to(second) + 1).numpy(), [1, 2, 3])
        with pytest.raises(DeviceError, match="one device"):
            x + x.to(second)
    finally:
        backends._loaded.pop("webgpu:1", None)


def test_the_name_of_software_says_so(gpu):
    kind = adapters.adapter(0).info["adapter_type"]
    assert ("software" in gpu.adapter_name) == (kind == "CPU")


def test_a_profile_names_the_adapter(gpu):
    assert str(profile_layers.Column("webgpu")) == f"webgpu: {gpu.adapter_name}"


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
    with pytest.raises(
        DeviceMemoryError, match=r"a buffer may have at most \d+ bytes on this adapter"
    ):
        gpu.backend.allocate(2**40, np.dtype("float32"))
    assert issubclass(DeviceMemoryError, MemoryError)


class Failing:
    """A device whose ``create_buffer`` fails a number of times."""

    def __init__(self, device, times: int, error: Exception) -> None:
        self.device, self.times, self.error = device, times, error

    def create_buffer(self, **given):
        self.times -= 1
        if self.times >= 0:
            raise self.error
        return self.device.create_buffer(**given)


@pytest.fixture
def full(gpu, monkeypatch):
    """Return a function that makes the next allocations fail as if memory were exhausted."""
    pool = gpu.backend.queue.pool
    gpu.empty_cache()

    def plant(times: int) -> None:
        error = importlib.import_module("wgpu").GPUOutOfMemoryError("planted")
        monkeypatch.setattr(pool, "_device", Failing(pool._device, times, error))

    return plant


def test_exhausted_memory_drops_the_cache_and_tries_again(gpu, full):
    (needle.Tensor(np.ones(4321, "float32"), device=gpu) + 1).numpy()
    assert gpu.memory_stats()["cached"] > 0
    assert gpu.backend.queue._batch.groups
    full(1)
    kept = needle.Tensor(np.full(98765, 3, "float32"), device=gpu)
    assert gpu.memory_stats()["cached"] == 0
    assert not gpu.backend.queue._batch.groups  # a pending batch would keep its bound memory
    np.testing.assert_array_equal(kept.numpy(), np.full(98765, 3))


def test_exhausted_memory_is_a_typed_error(gpu, full):
    in_use = gpu.memory_stats()["in_use"]
    full(2)
    with pytest.raises(DeviceMemoryError, match=r"40192 bytes cannot be allocated.*smaller batch"):
        needle.Tensor(np.ones(10000, "float32"), device=gpu)
    assert gpu.memory_stats()["in_use"] == in_use
    after = needle.Tensor(np.ones(10000, "float32"), device=gpu)
    np.testing.assert_array_equal(after.numpy(), np.ones(10000))


def test_memory_that_a_driver_exhausts_in_a_submission_is_a_typed_error(gpu, monkeypatch):
    queue = gpu.backend.queue
    a = needle.Tensor(np.ones(5, "float32"), device=gpu)

    def exhausted(*batches) -> None:
        raise importlib.import_module("wgpu").GPUOutOfMemoryError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(queue, "_submit", exhausted)
        with pytest.raises(DeviceMemoryError, match=r"memory is exhausted.*planted"):
            (a + 1).numpy()
    np.testing.assert_array_equal((a + 1).numpy(), np.full(5, 2))


def test_a_lost_device_is_a_typed_error():
    """Run in a process of its own, since the device is unusable afterwards."""
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
    done = python("-c", program, check=False)
    assert done.stdout.startswith("lost: webgpu: the device was lost"), done.stderr[-2000:]
    assert issubclass(DeviceLostError, DeviceError)


@pytest.mark.parametrize("seed", [0, 2**63 + 12345])
def test_random_numbers_have_the_bits_of_the_cpu(gpu, seed):
    for fill, options in (
        (needle.init.randn, {"mean": 0.5, "std": 2.0}),
        (needle.init.rand, {"low": -2.0, "high": 3.3}),
        (needle.init.randb, {"p": 0.3}),
    ):
        made = [
            fill(301, 67, device=device, generator=needle.init.Generator(seed), **options).numpy()
            for device in (needle.cpu_numpy(), gpu)
        ]
        assert made[0].tobytes() == made[1].tobytes()
        assert (len(np.unique(made[0])) > 10**4) == (fill is not needle.init.randb)


def training(device, captured: bool, dropout: bool = True, **options) -> Training:
    """Return a training so large that conv2d_weight_grad allocates temporary memory."""
    noise = nn.Dropout(0.25, needle.init.Generator(3)) if dropout else nn.Identity()
    return Training(device, captured, noise, images=(20, 1, 12, 12), **options)


@pytest.mark.parametrize("adam", [True, False], ids=["adam", "sgd"])
def test_a_network_has_the_losses_of_numpy(gpu, adam):
    """Dropout drops the same values as on NumPy's backend."""
    expected, got = (
        [loss.numpy() for loss in training(device, False, adam=adam).steps(6)]
        for device in (needle.cpu_numpy(), gpu)
    )
    np.testing.assert_allclose(got, expected, rtol=2e-4)


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("graphs", [True, False])
def test_a_captured_step_gives_the_same_bits(gpu, graphs, dropout):
    eager = training(gpu, False, dropout, adam=True)
    captured = training(gpu, True, dropout, adam=True, graphs=graphs)
    assert_same(eager, captured, [run.steps(7) for run in (eager, captured)])
    ((program, *others),) = [captured.step.programs]
    assert not others and program.calls == 7
    assert (program.graphs is not None) == graphs
    if graphs:
        assert program.graphs.refusal is None
        assert program.graphs.launched >= 6


def test_a_recording_refuses_to_wait_and_leaves_nothing_behind(gpu):
    backend, dtype = gpu.backend, np.dtype("float32")
    view = needle.backends.View(backend.allocate(4, dtype), (4,), (1,), 0, dtype)
    backend.fill(view, 1.0)

    def reads() -> None:
        backend.fill(view, 9.0)
        backend.download(view)

    def writes() -> None:
        backend.upload(np.full(4, 9, dtype), view)

    for run in (reads, writes, backend.synchronize, backend.empty_cache):
        with pytest.raises(DeviceError, match="recorded step cannot read or write memory"):
            backend.record_graph(run)
    np.testing.assert_array_equal(backend.download(view), np.ones(4))


def test_a_graph_of_several_batches_runs_after_what_came_before(gpu):
    backend, dtype = gpu.backend, np.dtype("float32")
    view = needle.backends.View(backend.allocate(4, dtype), (4,), (1,), 0, dtype)
    backend.upload(np.zeros(4, dtype), view)

    def count() -> None:
        for _ in range(200):
            backend.binary("add", view, 1.0, view)

    launch = backend.record_graph(count)
    np.testing.assert_array_equal(backend.download(view), np.zeros(4))
    backend.binary("multiply", view, 2.0, view)
    backend.fill(view, 5.0)
    before = backend.queue.submissions
    launch()
    launch()
    assert backend.queue.submissions == before + 2
    np.testing.assert_array_equal(backend.download(view), np.full(4, 405))


@pytest.mark.slow
def test_the_products_of_the_page_on_kernels(gpu, capsys):
    page = (ROOT / "docs" / "own_webgpu_kernel.md").read_text("utf-8")
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {})
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said] == ["naive", "tiles"]
