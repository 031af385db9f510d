"""The suites, each a subset of the tests, and the devices of this machine as a fixture.

``pytest --suite check`` finds most mistakes (make check). Plain ``pytest`` checks every promise
once (make test). ``pytest --suite extended`` runs the slow tests, and repeats others on the lower
instruction sets and the emulated GPU (make test-all). With NEEDLE_BACKEND=np, NUMPY_MODE and
NUMPY_REPEATED are the suites test and extended. A file or folder named on the command line is
collected in any suite, on every instruction set.
"""

import os
import signal
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

import needle
from needle import backends
from needle.backend_selection import BACKEND
from needle.errors import NeedleError
from needle.ndarray.device import usable_device

TESTS = Path(__file__).parent

CHECK = """
    accelerated/* backends/* capture/* course/* data/test_* init/* native/* ndarray/* nn/* ops/*
    optim/* properties/* test_architecture.py test_autograd*.py test_course_* test_data_rooms.py
    test_io*.py test_refusals.py
""".split()
"""Files of ``--suite check``, without their slow tests and on one instruction set."""

EXTENDED = "browser/* cuda_on_cpu/* gpu/* s3/*".split()
"""Files of ``--suite extended``, to which tests that are slow or need a GPU belong too."""

NUMPY_MODE = """
    course/* init/test_default_dtype.py test_course_autograd.py test_draw.py test_io*.py
    test_refusals.py
""".split()
"""Files that test the differences of NumPy mode; without compiled code they pass in full."""

NUMPY_REPEATED = """
    accelerated/* init/* nn/* ops/* optim/* testing/test_accuracy.py
""".split()
"""Files that repeat in NumPy mode their tests of the device ``cpu_numpy``."""

REPEATED = (
    "*/apps/test_models.py::test_a_step_lowers_the_loss?cpu_numpy-*",
    "*/complaints/test_errors.py::test_17_odd_*-collate-processes?",
    "*/complaints/test_errors.py::test_17_odd_*-transform-processes?",
)
"""Id patterns of expensive tests, only in ``extended``; other parameters cover the same code."""

ON_REQUEST = ("soak", "s3", "browser")
"""Marks of tests that run only if ``-m`` selects them or the command line names them."""

ASKED = os.environ.get("NEEDLE_TEST_DEVICES")
"""Comma-separated names that replace the devices of ``device``; make test-cuda sets the GPU."""
BEST_ISA = backends.get("cpu").module.isa if backends.available("cpu") else None  # type: ignore[attr-defined]
"""The instruction set that needle selects on this machine; only ``extended`` tests the others."""
DEVICES = ASKED.split(",") if ASKED else ("cpu_numpy", "cpu") if BACKEND == "nd" else ("cpu",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--suite", choices=("check", "test", "extended"), default="test", help="see CONTRIBUTING.md"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Exit with one line if a whole suite is requested but the extension is not compiled."""
    whole = not any(TESTS in path.parents for path in _arguments(config))
    if whole and BACKEND != "np" and not backends.available("cpu"):
        raise pytest.UsageError(
            "needle: the compiled extension is missing; run make build, or NEEDLE_BACKEND=np pytest"
        )
    try:
        for name in DEVICES if ASKED else ():
            usable_device(name)
    except NeedleError as error:
        raise pytest.UsageError(f"needle: NEEDLE_TEST_DEVICES: {error}") from error


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore the files of other suites, unless the command line names them or their folder."""
    if collection_path.suffix != ".py" or TESTS not in collection_path.parents:
        return None
    for named in _arguments(config):
        if TESTS in named.parents and named in (collection_path, *collection_path.parents):
            return None
    suite = config.option.suite
    numpy_mode = NUMPY_REPEATED if suite == "extended" else NUMPY_MODE
    left_out = (
        (BACKEND == "np" and not _matches(collection_path, numpy_mode))
        or (suite == "check" and not _matches(collection_path, CHECK))
        or (suite == "test" and _matches(collection_path, EXTENDED))
    )
    return left_out or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other suites. A file named on the command line keeps its slow tests."""
    if any("::" in argument for argument in config.args):
        return
    named = [path for path in _arguments(config) if TESTS in path.parents]
    kept = [item for item in items if _belongs(item, config, named)]
    left = set(items) - set(kept)
    # Slow tests start first, so that no worker runs one at the end while the others are idle.
    items[:] = sorted(kept, key=lambda item: item.get_closest_marker("slow") is None)
    if left:
        config.hook.pytest_deselected(items=list(left))


def _belongs(item: pytest.Item, config: pytest.Config, named: list[Path]) -> bool:
    """Return True if the test belongs to the suite that runs."""
    asked, suite = config.option.markexpr or "", config.option.suite
    on_request = [mark for mark in ON_REQUEST if mark not in asked]
    if suite == "extended":
        on_request = ["soak"]
    if any(map(item.get_closest_marker, on_request)):
        return False
    slow = item.get_closest_marker("slow") is not None
    repeated = _isa(item) not in (None, BEST_ISA) or any(
        fnmatch(item.nodeid, pattern) for pattern in REPEATED
    )
    if suite == "extended":
        needs_gpu = "gpu" in getattr(item, "fixturenames", ())
        listed = BACKEND == "np" or _matches(item.path, EXTENDED)
        return slow or repeated or needs_gpu or listed
    if repeated and not any(path in (item.path, *item.path.parents) for path in named):
        return False
    return not slow or item.path in named or "slow" in asked


def _isa(item: pytest.Item) -> str | None:
    """Return the instruction set for which the test is repeated, if any."""
    parameters = getattr(item, "callspec", None)
    values = parameters.params if parameters else {}
    return values.get("kernels", values.get("isa"))


def _arguments(config: pytest.Config) -> list[Path]:
    """Return the files and folders that the command line names."""
    folder = config.invocation_params.dir
    return [(folder / argument.split("::")[0]).resolve() for argument in config.args]


def _matches(path: Path, patterns: list[str]) -> bool:
    """Return True if one of the patterns matches the file's path below tests/."""
    below = path.relative_to(TESTS).as_posix()
    return any(fnmatch(below, pattern) for pattern in patterns)


@pytest.fixture(autouse=True)
def own_backends() -> Iterator[None]:
    """Remove the backends that a test registered, since errors name all that are known."""
    before = set(backends._registered)
    yield
    for name in set(backends._registered) - before:
        del backends._registered[name]
        backends._loaded.pop(name, None)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Enable SIGINT here and in child processes, even in a background job that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    """Return each device in turn; skip a device that is not built here."""
    found = needle.device(request.param)
    if not found.enabled():
        pytest.skip(f"{found} is not available: build the extension (make build)")
    return found
