"""The emulator finds each fault of ``faults.cc``, and none in correct kernels.

It names races with both lines, counts sectors and bank conflicts, and lays the operands of tensor
cores out as the PTX manual specifies.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from needle import accelerated, config
from needle.backend_selection import BACKEND
from needle.shapes import Geometry
from tests.cuda_on_cpu import emulated

faults: Any = emulated.compiled("cuda_faults")
if faults is None:
    pytest.skip("not built: CMake target cuda_on_cpu", allow_module_level=True)
if faults.under_address_sanitizer:
    pytest.skip("the address sanitizer watches instead", allow_module_level=True)
ROOT = Path(__file__).parent.parent.parent
SOURCE = (Path(__file__).parent / "faults.cc").read_text().splitlines()
VALUES = [float(i) for i in range(64)]


@pytest.fixture(params=range(3), ids=["forward", "reversed", "shuffled"])
def order(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test with each order of threads, with race detection."""
    faults.set_order(request.param)
    faults.watch_races(True)
    yield
    faults.watch_races(False)
    faults.set_order(0)


def test_right_kernels_give_right_results(order: None) -> None:
    assert faults.turn_around(VALUES, True) == VALUES[::-1]
    assert faults.turn_warps_around(VALUES, True) == [*VALUES[31::-1], *VALUES[63:31:-1]]
    low, high = sum(VALUES[:32]), sum(VALUES[32:])
    assert faults.sum_warps(VALUES) == [low + 31000] * 32 + [high + 63000 + 1] * 32
    for kernel in (faults.sum_twice, faults.sum_in_place):
        assert kernel(VALUES, True) == [sum(VALUES)] * 64
    assert faults.after_a_shuffle(VALUES, True) == [0.0] * 64
    assert faults.sum_by_last_block(VALUES, 3)[0] == sum(VALUES[:4])
    faults.sum_of_blocks(VALUES, True)
    both = [1000 * (63 - i) + float(i) for i in range(64)]
    assert faults.copy_in_groups(VALUES, True) == both
    both[63] = 0.0  # thread 0 has nothing to copy, so it gets zeros
    assert faults.copy_twice_by_registers(VALUES, True) == both
    assert faults.copy_twice(VALUES, True) == both
    found = np.array(faults.write_bytes(VALUES), "float32").view("uint8")[:64]
    np.testing.assert_array_equal(found, np.arange(64))  # threads may write bytes of one word


def test_uninitialised_memory_is_nan(order: None) -> None:
    for _ in range(2):  # the second block must not find values of the first
        got = faults.uninitialised_shared(VALUES)
        assert np.isnan(got[0]) and got[1:] == [1.0] * 63
    assert np.isnan(faults.count_threads(VALUES)).all()  # NaN remains after atomic additions


RACES = {
    "turn_around": ("shared", "all[threadIdx.x] = in", "out[threadIdx.x] = all[kThreads"),
    "turn_warps_around": ("shared", "all[threadIdx.x] = in", "out[threadIdx.x] = all[threadIdx"),
    "sum_twice": ("shared", "warps[threadIdx.x / 32] = total", "out[threadIdx.x] = warps[0]"),
    "sum_in_place": ("shared", "sum += in", "sum += in"),
    "sum_of_blocks": ("device", "out[0] += mine", "out[0] += mine"),
    "after_a_shuffle": ("shared", "all[threadIdx.x] = in", "all[threadIdx.x ^ 1] - other"),
}
"""Kernels that race without their barrier (or atomic addition): the memory, and both lines."""


@pytest.mark.parametrize("kernel", RACES)
def test_a_race_is_named_with_both_lines(kernel: str, order: None) -> None:
    memory, *lines = RACES[kernel]
    with pytest.raises(RuntimeError, match=f"a race in {memory} memory: thread") as raised:
        getattr(faults, kernel)(VALUES, False)
    said = [SOURCE[int(at) - 1] for at in re.findall(r"faults\.cc:(\d+)", str(raised.value))]
    assert len(said) == 2 and all(any(line in each for line in lines) for each in said), said


UNWAITED = "copies to in .* and has not waited for the copy"
FAULTS: list[tuple[str, tuple[Any, ...], str]] = [
    ("behind_shared", (), r"wrote behind its shared memory of 256 bytes \(byte 256\)"),
    ("behind_buffer", (), "wrote outside a buffer of 256 bytes"),
    ("before_buffer", (), "wrote outside a buffer of 256 bytes"),
    ("never_waits", (), "thread .* ended without waiting for the copies to shared memory"),
    ("half_wait", (), "wait at a barrier that others never reach: thread .* in line"),
    ("two_barriers", (), "wait at the barriers of lines"),
    ("lanes_missing", (), "wait at a barrier that others never reach"),
    ("throws", (), "thrown by a thread"),  # an exercise that is still open raises an exception
    ("copy_twice", (False,), UNWAITED),
    ("copy_in_groups", (False,), UNWAITED),
    ("copy_too_early", (), UNWAITED),
    *[("sum_by_last_block", (n,), "device memory: thread 2 .* thread 1 of") for n in range(3)],
]
"""Kernels with a fault, their further arguments, and what the error says."""


@pytest.mark.parametrize(("kernel", "arguments", "message"), FAULTS)
def test_a_fault_is_an_error(kernel: str, arguments: Any, message: str, order: None) -> None:
    with pytest.raises(RuntimeError, match=message):
        getattr(faults, kernel)(VALUES, *arguments)
    assert faults.turn_around(VALUES, True) == VALUES[::-1]  # the next kernel runs normally


def test_host_code_that_follows_a_device_pointer_is_stopped() -> None:
    code = "from tests.cuda_on_cpu import cuda_faults; cuda_faults.touch_on_host()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60)
    assert done.returncode < 0, done.stderr  # terminated by a signal


# ---- counts and layouts --------------------------------------------------------------------------


def rows(kernel: Any) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return the counts of accesses, parts and necessary parts, by memory and direction."""
    return {
        ("shared" if shared else "device", "write" if write else "read"): tuple(numbers)
        for _, _, shared, write, *numbers in faults.counted(kernel)
    }


@pytest.mark.parametrize(
    ("step", "sectors", "turns"), [(1, 8, 2), (2, 16, 4), (8, 16, 16), (31, 16, 2), (32, 4, 64)]
)
def test_sectors_and_bank_conflicts_are_counted(step: int, sectors: int, turns: int) -> None:
    """Two warps read in[i * step % 64] and write to shared memory with stride ``step``."""
    found = rows(lambda: faults.strided(VALUES, step))
    assert found["device", "read"][:2] == (2, sectors)
    assert found["shared", "write"] == found["shared", "read"] == (2, turns, 2)
    assert found["device", "write"] == (2, 8, 8)


def test_sixteen_bytes_at_a_time_are_one_access() -> None:
    found = faults.counted(lambda: faults.by_fours(VALUES))
    assert [row[0] for row in found] == ["by_fours"] * 2
    assert {SOURCE[int(row[1].split(":")[1]) - 1].strip()[:20] for row in found} == {
        "reinterpret_cast<Flo"
    }
    assert [tuple(row[4:]) for row in found] == [(1, 8, 8)] * 2


@pytest.mark.parametrize("depth", [8, 16])
def test_tensor_cores_take_operands_as_the_manual_lays_them_out(depth: int) -> None:
    """Fragments follow the formulas of the PTX ISA."""
    random = np.random.default_rng(depth)
    a = random.integers(-4, 5, (16, depth)).astype("float32")
    b = random.integers(-4, 5, (depth, 8)).astype("float32")
    group, lane = np.divmod(np.arange(32), 4)
    if depth == 8:  # TF32, one word per element: a0 (g, t), a1 (g + 8, t), a2 (g, t + 4), a3
        of_a = [a[group + 8 * (i % 2), lane + 4 * (i // 2)].view("uint32") for i in range(4)]
        of_b = [b[lane + 4 * i, group].view("uint32") for i in range(2)]
    else:  # bf16, two elements per word: the upper halves of float32

        def both(low: np.ndarray, high: np.ndarray) -> np.ndarray:
            return low.view("uint32") >> 16 | (high.view("uint32") & 0xFFFF0000)

        of_a, of_b = [], []
        for i in range(4):
            row, column = group + 8 * (i % 2), 2 * lane + 8 * (i // 2)
            of_a.append(both(a[row, column], a[row, column + 1]))
        for i in range(2):
            row = 2 * lane + 8 * i
            of_b.append(both(b[row, group], b[row + 1, group]))
    registers = np.stack([*of_a, *of_b], 1).astype("uint32").ravel().tolist()
    found = np.array(faults.one_mma(registers, depth)).reshape(32, 4)
    got = np.empty((16, 8))
    for i in range(4):
        got[group + 8 * (i // 2), 2 * lane + i % 2] = found[:, i]
    np.testing.assert_array_equal(got, a @ b)


@pytest.mark.parametrize("transpose", [False, True])
def test_ldmatrix_gives_lanes_what_the_manual_says(transpose: bool) -> None:
    """Register m of lane 4 g + t has elements 2 t, 2 t + 1 of row g, or column g, of matrix m."""
    matrices = np.random.default_rng(0).integers(0, 1 << 16, (4, 8, 8), dtype=np.uint16)
    found = faults.one_ldmatrix(matrices.ravel().view("uint32").tolist(), transpose)
    # indexed by g, t, m, element
    got = np.array(found, "uint32").view("uint16").reshape(8, 4, 4, 2)
    want = matrices.transpose(0, 2, 1) if transpose else matrices
    assert np.array_equal(got.transpose(2, 0, 1, 3).reshape(4, 8, 8), want)


def test_the_example_prints_what_its_page_shows(tmp_path: Path) -> None:
    if not shutil.which("g++") or not shutil.which("addr2line"):
        pytest.skip("the example needs g++ and addr2line")
    text = (ROOT / "examples" / "emulated_transpose.cc").read_text()
    commands = re.findall(r"^//   (.*)$", text, re.MULTILINE)
    script = "\n".join(["set -e", *commands]).replace("/tmp/t", str(tmp_path / "t"))
    done = subprocess.run(["sh", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs/internals/cuda.md").read_text()
    shown = re.search(r"```text\n(straight\n.*?)```", page, re.S)
    assert shown is not None and done.stdout == shown[1]


needs_backend = pytest.mark.skipif(
    BACKEND == "np" or emulated.module is None, reason="plain NumPy arrays have no backends"
)


@pytest.fixture
def watched() -> Iterator[Any]:
    """Yield the emulated device, with race detection in its kernels."""
    emulated.module.watch_races(True)
    yield needle.device(emulated.NAME)
    emulated.module.watch_races(False)
    emulated.module.set_order("forward")


CONFORMS = """
from needle.testing import conformance
from tests.cuda_on_cpu import emulated
emulated.module.watch_races(True)
emulated.module.set_order("shuffled")
report = conformance.run(emulated.NAME)
assert report.ok, report.table()
"""


@needs_backend
@pytest.mark.slow
def test_the_kernels_have_no_races() -> None:
    done = subprocess.run([sys.executable, "-c", CONFORMS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PRODUCTS = {"matmul_kernel", "conv2d_kernel", "conv2d_weight_grad_kernel"}


@needs_backend
@pytest.mark.parametrize("columns", [130, 132], ids=["scalar", "vectors"])
@pytest.mark.parametrize("precision", config.matmul_precision.choices)
def test_products_have_no_races(precision: str, columns: int, watched: Any) -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s).astype("float32") for s in ((150, 40), (40, columns)))
    with config.matmul_precision.using(precision):
        left, right = (needle.backend_ndarray.array(x, device=watched) for x in (a, b))
        np.testing.assert_allclose((left @ right).numpy(), a @ b, atol=0.2)


@needs_backend
@pytest.mark.parametrize("columns", [64, 32], ids=["large tiles", "small tiles"])
def test_rounded_operands_come_without_conflicts_or_sectors_to_spare(columns: int) -> None:
    """Check a product, a convolution and its gradients in bf16 for bank conflicts and sectors.

    Loads of operands take the fewest sectors except at edges, where lanes read other lanes'
    elements.
    """
    device, how = needle.device(emulated.NAME), Geometry((1, 1), (1, 1), (1, 1), 1)
    x, weight = device.ones((1, 16, 16, 32)), device.ones((3, 3, 32, columns))
    grad = device.ones((1, 16, 16, columns))
    emulated.module.count_accesses(True)
    with config.matmul_precision.using("bf16"):
        _ = device.ones((128, 64)) @ device.ones((64, 2 * columns))
        accelerated.conv2d(x, weight, how)
        accelerated.conv2d_input_grad(grad, weight, x.shape, how)
        accelerated.conv2d_weight_grad(grad, x, weight.shape, how)
    emulated.module.count_accesses(False)
    found = [row for row in emulated.module.counted() if row[0] in PRODUCTS]
    assert {row[0] for row in found} == PRODUCTS
    shared, loads = [r for r in found if r[2]], [r for r in found if not r[2] and not r[3]]
    assert len(shared) > 8 and len(loads) > 4
    assert [row for row in shared if row[5] != row[6]] == []
    assert [row for row in loads if row[5] > 1.1 * row[6]] == []


@needs_backend
def test_the_gradient_of_max_pooling_searches_a_window_once() -> None:
    """A pixel is in up to four windows of nine pixels: searching all takes 19 loads per pixel."""
    device, warps = needle.device(emulated.NAME), 2 * 16 * 16
    x, grad = device.ones((2, 16, 16, 32)), device.ones((2, 8, 8, 32))
    emulated.module.count_accesses(True)
    accelerated.max_pool2d_grad(grad, x, (3, 3), (2, 2), (1, 1))
    emulated.module.count_accesses(False)
    loads = [row[4] for row in emulated.module.counted() if not row[3]]
    assert warps < sum(loads) < 5 * warps
