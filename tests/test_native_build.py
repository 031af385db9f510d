"""Test the compiled module: object files, instruction sets, threads, memory, invalid views."""

import multiprocessing
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needle import backends
from needle.backends import View
from needle.backends.base import OPTIONAL, REQUIRED, provides
from tests.programs import python

pytestmark = pytest.mark.skipif(not backends.available("cpu"), reason="the module is not built")
ROOT = Path(__file__).parent.parent
OBJECTS = sorted(
    path
    for part in ("cpu", "data")
    for path in (ROOT / "build").glob(f"**/CMakeFiles/needle_{part}_*.dir/src/{part}/*.o")
)
# The C++ runtime's pointer to its exception handler: data that is the same in every object.
HARMLESS = "DW.ref.__gxx_personality_v0"
F32 = np.dtype("float32")


@pytest.fixture
def backend() -> Any:
    return backends.get("cpu")


@pytest.mark.skipif(not OBJECTS or not shutil.which("nm"), reason="needs the build folder and nm")
def test_objects_of_an_instruction_set_share_no_code() -> None:
    """A weak symbol would let the linker use AVX-512 code in functions that others call."""
    for path in OBJECTS:
        listing = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True)
        weak = [
            line
            for line in listing.stdout.splitlines()
            if line[17:18] in "VWvwu" and HARMLESS not in line
        ]
        assert not weak, f"{path.name}: {weak[:5]}"


def test_every_row_is_a_method(backend: Any) -> None:
    missing = [name for name in OPTIONAL if not provides(backend, name)]
    assert not missing
    assert set(REQUIRED) <= set(dir(backend.module))


def test_isa_of_the_environment_is_used() -> None:
    code = "from needle import backends; print(backends.get('cpu').module.isa)"
    lowest = backends.get("cpu").module.available_isas()[0]  # type: ignore[attr-defined]
    assert python("-c", code, NEEDLE_CPU_ISA=lowest).stdout.strip() == lowest


@pytest.mark.parametrize(
    "variable, value, message",
    [
        ("NEEDLE_CPU_ISA", "sse9", "names no instruction set that runs here; use one of"),
        ("NEEDLE_NUM_THREADS", "many", "must be a whole number from 1 to 4096, got 'many'"),
        ("NEEDLE_NUM_THREADS", "0", "must be a whole number from 1 to 4096"),
        ("NEEDLE_CONV2D", "fft", "unknown NEEDLE_CONV2D 'fft'; known: auto, direct, winograd"),
    ],
)
def test_an_invalid_variable_is_a_clear_error(variable: str, value: str, message: str) -> None:
    code = "from needle import backends; backends.get('cpu')"
    done = python("-c", code, check=False, **{variable: value})
    assert done.returncode != 0
    assert message in done.stderr and "needle.errors." in done.stderr


def test_select_isa_refuses_unknown_names(backend: Any) -> None:
    with pytest.raises(ValueError, match="choose one of .*" + backend.module.isa):
        backend.module.select_isa("sse9")


def total(n: int) -> float:
    backend: Any = backends.get("cpu")
    handle, out = backend.allocate(n, F32), backend.allocate(1, F32)
    backend.fill(View(handle, (n,), (1,), 0, F32), 1.0)
    backend.reduce("sum", View(handle, (n,), (1,), 0, F32), View(out, (1,), (1,), 0, F32))
    return float(backend.download(View(out, (), (), 0, F32)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_can_run_kernels(backend: Any) -> None:
    before = backend.module.num_threads()
    backend.module.set_num_threads(4)
    try:
        assert total(1_000_000) == 1e6  # starts the parent's threads
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map_async(total, [1_000_000] * 4).get(timeout=30) == [1e6] * 4
        assert total(1_000_000) == 1e6
    finally:
        backend.module.set_num_threads(before)


def test_the_interpreter_ends_with_threads_running() -> None:
    code = (
        "import threading; from needle import backends; b = backends.get('cpu')\n"
        "b.module.set_num_threads(4); import numpy as np\n"
        "from needle.backends import View; d = np.dtype('float32')\n"
        "v = View(b.allocate(10**6, d), (10**6,), (1,), 0, d); b.fill(v, 1.0); print('done')"
    )
    done = python("-c", code)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_memory_is_counted_reused_and_released(backend: Any) -> None:
    backend.empty_cache()
    before = backend.memory_stats()
    handle = backend.allocate(10_000, F32)
    address, during = handle.ptr(), backend.memory_stats()
    assert during["in_use"] - before["in_use"] >= 40_000 == 4 * handle.size
    assert address % 64 == 0 and during["peak"] >= during["in_use"]
    del handle
    assert backend.memory_stats()["in_use"] == before["in_use"]
    again = backend.allocate(10_000, F32)
    assert again.ptr() == address
    assert backend.memory_stats()["reuses"] == before["reuses"] + 1
    del again
    backend.empty_cache()
    assert backend.memory_stats()["cached"] == 0


def test_an_impossible_request_says_what_is_in_use(backend: Any) -> None:
    with pytest.raises(MemoryError, match=r"no \d+ bytes left, \d+ bytes are in use and \d+"):
        backend.allocate(2**57, F32)
    with pytest.raises(ValueError, match="must not be negative"):
        backend.allocate(-1, F32)


def test_adopt_and_export_share_memory_and_keep_it_alive(backend: Any) -> None:
    source = np.arange(6, dtype="int64")
    handle = backend.adopt(source)
    shown = backend.export(View(handle, (3, 2), (1, 3), 0, source.dtype))
    source[4] = 40
    del handle
    np.testing.assert_array_equal(shown, [[0, 3], [1, 40], [2, 5]])
    shown[0, 0] = -1
    assert source[0] == -1
    for impossible in (source[::2], source.astype("complex64"), source.astype(">i8")):
        assert backend.adopt(impossible) is None
    frozen = source.copy()
    frozen.flags.writeable = False
    assert backend.adopt(frozen) is None


@pytest.mark.parametrize(
    "source",
    [
        np.arange(24.0).reshape(4, 6)[::2, ::-1],
        np.arange(24.0).astype(">f8").reshape(4, 6).T,
        np.zeros(3, [("a", "u1"), ("b", "f8")])["b"],
        np.array(3.0),
        np.zeros((0, 3)),
    ],
    ids=["strided", "byte order", "packed field", "0-d", "empty"],
)
def test_upload_takes_any_host_layout(backend: Any, source: np.ndarray) -> None:
    double = np.dtype("float64")
    strides = tuple(s // 8 for s in np.empty(source.shape).strides)
    view = View(backend.allocate(source.size, double), source.shape, strides, 0, double)
    backend.upload(source, view)
    np.testing.assert_array_equal(backend.download(view), source)


def bad_views(handle: Any) -> list[Any]:
    return [
        View(handle, (11,), (1,), 0, F32),
        View(handle, (10,), (1,), 1, F32),
        View(handle, (2,), (-1,), 0, F32),
        View(handle, (2, 2), (2**62, 2**62), 0, F32),
        View(handle, (2**40, 2**40), (0, 0), 0, F32),
        View(handle, (-1,), (1,), 0, F32),
        View(handle, (1,), (1,), -1, F32),
        View(handle, (1, 1), (1,), 0, F32),
        View(handle, (1,) * 17, (1,) * 17, 0, F32),
        View(handle, (10,), (1,), 0, np.dtype("int32")),
        View(handle, (1.5,), (1,), 0, F32),
        View(np.zeros(10, F32), (10,), (1,), 0, F32),
        View(handle, [10], [1], 0, F32),
        (handle, (10,)),
        None,
    ]


@pytest.mark.parametrize("which", range(15))
def test_a_wrong_view_raises(backend: Any, which: int) -> None:
    handle = backend.allocate(10, F32)
    good = View(handle, (10,), (1,), 0, F32)
    backend.fill(good, 0.0)
    with pytest.raises((ValueError, TypeError)):
        backend.copy(bad_views(handle)[which], good)


def test_arguments_by_name_and_their_errors(backend: Any) -> None:
    view = View(backend.allocate(4, F32), (4,), (1,), 0, F32)
    backend.fill(view, value=2.0)
    backend.unary(out=view, name="square", a=view)
    np.testing.assert_array_equal(backend.download(view), np.full(4, 4.0))
    with pytest.raises(TypeError, match="fill: takes 2 arguments, got 1"):
        backend.fill(view)
    with pytest.raises(TypeError, match="named 'wert'"):
        backend.fill(view, wert=1)
