"""Test the registry: built-in names, registration by call and by entry point, and its errors."""

import inspect
import math
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import needle
from needle import backends
from needle.backends import base, native
from needle.backends.base import Backend, View
from needle.backends.numpy_backend import NumpyBackend
from needle.backends.numpy_functions import unary
from needle.errors import DeviceError, UnknownNameError
from tests.nn_devices import needs_kernels
from tests.programs import python


def test_the_pages_name_every_attribute_that_declares_a_capability() -> None:
    declared = set(inspect.get_annotations(Backend)) - {"name", "known_failures"}
    for page in (base.__doc__, (ROOT / "ARCHITECTURE.md").read_text("utf-8")):
        (sentence,) = re.findall(r"Four attributes declare\s[^.]*\S:(.*?)\.\s", page, re.DOTALL)
        named = set(re.findall(r"`(\w+)`", sentence))
        assert named == declared and len(declared) == 4


ROOT = Path(__file__).resolve().parents[2]


class Mine(NumpyBackend):
    """A backend as a user would write it."""

    name = "mine"


@pytest.fixture(autouse=True)
def _clean_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(backends, "_registered", dict(backends._registered))
    monkeypatch.setattr(backends, "_loaded", dict(backends._loaded))
    yield


def test_a_backend_is_loaded_once() -> None:
    made: list[Mine] = []

    def factory() -> Mine:
        made.append(Mine())
        return made[-1]

    backends.register("mine", factory)
    assert not made
    assert backends.get("mine") is backends.get("mine") is made[0]
    assert len(made) == 1 and "mine" in backends.names() and backends.available("mine")


@pytest.mark.parametrize("source", [Mine, Mine(), lambda: Mine()])
def test_instances_classes_and_functions_register(source: object) -> None:
    backends.register("mine", source)  # type: ignore[arg-type]
    assert isinstance(backends.get("mine"), Mine)


def test_registering_again_replaces() -> None:
    first, second = Mine(), Mine()
    backends.register("mine", first)
    assert backends.get("mine") is first
    backends.register("mine", second)
    assert backends.get("mine") is second


class Equal(Mine):
    """A backend that compares equal to every other one of its class and is not hashable."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)


@needs_kernels
def test_a_device_has_the_backend_that_was_registered_last() -> None:
    for backend in (Equal(), Equal()):
        backends.register("mine", backend)
        assert needle.device("mine").backend is backend


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="unknown device 'cpu_numpi'.*'cpu_numpy'"):
        backends.get("cpu_numpi")


@pytest.mark.skipif(backends.available("cuda"), reason="there is a GPU")
def test_cuda_says_what_is_missing() -> None:
    assert "cuda" in backends.names()
    for name in ("cuda", "cuda:1"):
        with pytest.raises(DeviceError, match="cuda: .*(NEEDLE_CUDA=on|no GPU).*use needle.cpu"):
            backends.get(name)
    assert not needle.cuda().enabled() and needle.cuda(1).name == "cuda:1"
    assert "needle.cpu()" in needle.cuda(1).why()


def test_a_missing_module_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "MODULE", "needle.backend_ndarray.not_built")
    backends._loaded.pop("cpu", None)
    assert "pip install ." in (backends.why("cpu") or "")


def test_a_disabled_device_says_why_whatever_is_asked_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "MODULE", "needle.backend_ndarray.not_built")
    backends._loaded.pop("cpu", None)
    device = needle.cpu()
    for ask in (lambda: device.memory_stats(), lambda: device.matmul, lambda: device.zeros(2)):
        with pytest.raises(DeviceError, match=r"cpu: the compiled module .*; build it with"):
            ask()
    assert not hasattr(device, "_repr_html_") and not hasattr(device, "colour")
    assert pickle.loads(pickle.dumps(device)) == device


@pytest.mark.parametrize("result", [None, 3, "cpu"])
def test_a_factory_must_give_a_backend(result: object) -> None:
    backends.register("mine", lambda: result)  # type: ignore[arg-type,return-value]
    with pytest.raises(DeviceError, match=r"mine: a backend must be an instance.*; register"):
        backends.get("mine")


def test_a_factory_that_lacks_a_library_makes_the_device_unavailable() -> None:
    def factory() -> Mine:
        raise ImportError("no module named 'opencl'")

    backends.register("mine", factory)
    assert "opencl" in (backends.why("mine") or "")


def test_an_installed_package_provides_a_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy_backend.py").write_text(
        "from needle.backends.numpy_backend import NumpyBackend\n"
        "class Toy(NumpyBackend):\n"
        "    name = 'toy'\n"
    )
    info = tmp_path / "toy_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-backend\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[needle.backends]\ntoy = toy_backend:Toy\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "toy" in backends.names()
    assert backends.get("toy").name == "toy"


def test_numpy_erf_agrees_with_the_c_library_in_every_dtype_and_shape() -> None:
    x = np.linspace(-6, 6, 41).reshape(1, 41)
    assert unary("erf", x).tolist() == [[math.erf(v) for v in x[0]]]
    assert unary("erf", x.astype(np.float32)).dtype == np.float32
    assert unary("erf", np.zeros((0, 2))).shape == (0, 2)


def test_adopt_declines_what_it_cannot_share() -> None:
    backend = NumpyBackend()
    fixed = np.zeros(3, np.float32)
    fixed.setflags(write=False)
    strided, swapped = np.zeros((3, 4), np.float32).T, np.zeros(3, ">f4")
    unaligned = np.zeros(13, np.uint8)[1:].view(np.float32)
    half = np.zeros(3, np.float16)
    assert [backend.adopt(a) for a in (fixed, strided, swapped, unaligned, half)] == [None] * 5


def test_a_kernel_never_warns(recwarn: pytest.WarningsRecorder) -> None:
    backend, dtype = NumpyBackend(), np.dtype(np.int32)
    view = View(backend.allocate(4, dtype), (4,), (1,), 0, dtype)
    backend.upload(np.array([7, -7, 0, -(2**31)], dtype), view)
    backend.binary("remainder", view, 0, view)
    assert backend.download(view).tolist() == [0, 0, 0, 0]
    backend.fill(view, -1)
    backend.binary("power", view, -3, view)
    assert backend.download(view).tolist() == [-1] * 4
    backend.fill(view, float("nan"))
    assert not recwarn.list


def test_devices_pickle_by_name() -> None:
    device = needle.cpu()
    assert pickle.loads(pickle.dumps(device)) == device


IN_A_SUB_INTERPRETER = """
import _xxsubinterpreters as interpreters
program = "import needle; needle.ones(1)"
interpreters.run_string(interpreters.create(), program)
"""


@needs_kernels
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="has another module for them")
def test_the_compiled_backend_refuses_a_sub_interpreter() -> None:
    """In a sub-interpreter the compiled module would wait for itself forever."""
    ended = python("-W", "ignore", "-c", IN_A_SUB_INTERPRETER, check=False)
    assert ended.returncode == 1 and "main interpreter only" in ended.stderr
