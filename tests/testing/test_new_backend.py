"""Test packages that new_backend writes: they are found, fail as listed, pass when filled in."""

from pathlib import Path
from typing import Any

import pytest

from needle.backend_selection import BACKEND
from needle.backends.base import REQUIRED
from needle.errors import NeedleError, UnknownNameError
from needle.testing import conformance
from needle.testing.new_backend import KINDS, package_files, write_package
from needle.testing.new_backend.__main__ import main
from tests.testing.package_checks import ROOT, assert_written, command, entry_point, imported, judge

LISTS = ROOT / "examples" / "backend_lists"
OWN_FILES = ("README.md", "needle_lists/backend.py", "needle_lists/known_failures.txt")


def borrow_from_numpy(backend: Path) -> None:
    """Fill in the ten functions with those of NumPy's backend."""
    head = backend.read_text().split("    def allocate")[0]
    head = head.replace(
        "import DType\n", "import DType\nfrom needle.backends.numpy_backend import NumpyBackend\n"
    )
    ten = (f"    {name} = NumpyBackend.{name}\n" for name in REQUIRED)
    backend.write_text(head + "".join(ten))


@pytest.fixture
def skeleton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the package of a device ``toy``, which is not installed, as a module."""
    return imported(write_package("toy", "python", tmp_path / "toy"), monkeypatch)


def test_an_empty_package_fails_exactly_as_listed(skeleton: Any) -> None:
    backend = skeleton.load()
    report = conformance.run(backend)
    assert report.ok and report.failed and set(report.failed) == set(backend.known_failures)
    assert "the ten: 0 done (allocate no, " in report.table()
    assert "unary 0 of 33" in report.table() and "known failures: " in report.table()
    first = report.row("fill").failures[0]
    assert "NotImplementedError: " in first and first.endswith("still to be written")
    # ``only`` also filters the package's list of known failures.
    assert conformance.run(backend, only="where").ok


def test_each_function_documents_its_contract(skeleton: Any) -> None:
    own = vars(type(skeleton.load()))
    for name in REQUIRED:
        assert own[name].__doc__ == getattr(conformance.Backend, name).__doc__, name
        assert len(own[name].__doc__) > 20


@pytest.mark.slow
def test_completing_the_ten_empties_the_list_and_lenet_trains(tmp_path: Path) -> None:
    """The package is used only from the command line, through its entry point."""
    folder = write_package("toy", "python", tmp_path / "toy")
    entry_point(folder, "toy")
    failures = folder / "needle_toy" / "known_failures.txt"
    assert judge(folder, "toy", "--only", "fill").returncode == 0

    borrow_from_numpy(folder / "needle_toy" / "backend.py")
    done = judge(folder, "toy", "--only", "reduce")
    assert done.returncode == 1 and "listed as failing but not so: reduce.all" in done.stdout
    done = judge(folder, "toy", "--only", "reduce", "--shrink", failures)
    assert done.returncode == 0, done.stdout
    left = failures.read_text().split()
    assert "unary.exp" in left and not [name for name in left if name.startswith("reduce")]
    done = judge(folder, "toy", "--shrink", failures)
    assert done.returncode == 0 and " 0 FAILS" in done.stdout, done.stdout + done.stderr
    assert failures.read_text() == ""

    pytest.importorskip("matplotlib")
    options = ["--device", "toy", "--epochs", "1", "--out", tmp_path / "run"]
    done = command(ROOT / "apps" / "train.py", *options, path=folder)
    assert done.returncode == 0, done.stderr
    assert "device toy" in done.stdout
    assert float(done.stdout.split("test accuracy ")[1].split("%")[0]) > 80


def test_pip_installs_it(tmp_path: Path) -> None:
    pytest.importorskip("pip")
    folder, site = write_package("toy", "python", tmp_path / "toy"), tmp_path / "site"
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--quiet", "--target", site]
    done = command("-m", "pip", "install", *options, folder, path=tmp_path)
    assert done.returncode == 0, done.stderr
    done = judge(site, "toy", "--only", "where")
    assert done.returncode == 0 and "known failures: where (1)" in done.stdout, done.stdout


def test_a_pure_python_package_needs_no_build_tool_of_needles() -> None:
    files = package_files("toy", "python")
    assert 'requires = ["setuptools>=70.1"]' in files["pyproject.toml"]
    assert "scikit" not in "".join(files.values())
    assert "pip install --no-deps -e ." in files["README.md"]
    for kind in ("cpp", "cuda"):
        files = package_files("toy", kind)
        assert 'requires = ["scikit-build-core>=0.10", "pybind11>=2.13"]' in files["pyproject.toml"]
        assert "pip install --no-build-isolation --no-deps -e ." in files["README.md"]


@pytest.mark.skipif(BACKEND == "np", reason="devices are of needle's own arrays")
def test_training_on_an_empty_backend_names_the_missing_function(tmp_path: Path) -> None:
    folder = write_package("toy", "python", tmp_path / "toy")
    entry_point(folder, "toy")
    done = command(ROOT / "apps" / "train.py", "--device", "toy", path=folder)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: toy: allocate: still to be written; python -m needle.testing" in done.stderr


def test_the_example_is_such_a_package() -> None:
    assert_written(LISTS, "lists", "python", OWN_FILES)


@pytest.mark.parametrize("kind", KINDS)
def test_every_placeholder_is_filled(kind: str) -> None:
    files = package_files("my_gpu", kind)
    assert {"pyproject.toml", "README.md", "needle_my_gpu/known_failures.txt"} <= set(files)
    for path, text in files.items():
        assert "@name@" not in text and "@package@" not in text and "@" not in path, path
    assert 'my_gpu = "needle_my_gpu:load"' in files["pyproject.toml"]


def test_invalid_arguments_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, message in (
        ("My-GPU", "of lower-case letters"),
        ("cpu", "the device 'cpu' already exists"),
    ):
        with pytest.raises(NeedleError, match=message):
            write_package(name, "python", tmp_path / "x")
    with pytest.raises(UnknownNameError, match="unknown kind 'rust'; known: "):
        write_package("toy", "rust", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    assert main(["toy", "--dir", str(tmp_path / "full")]) == 2
    assert "must be a new or empty folder" in capsys.readouterr().err
    assert main(["toy", "--dir", str(tmp_path / "new")]) == 0
    assert "python -m needle.testing.conformance toy" in capsys.readouterr().out
