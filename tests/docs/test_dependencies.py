"""docs/dependencies.md lists pyproject.toml's requirements; importing needle loads only NumPy."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FOR_USERS = (
    *("train", "onnx", "bfloat16", "serve", "tensorboard"),
    *("images", "packed", "remote", "mpi", "webgpu"),
)
"""The extras that a program may need; the others are for tests, documentation and builds."""


def name_of(requirement: str) -> str:
    return re.match(r"[\w-]+", requirement)[0].lower()  # type: ignore[index]


def test_the_page_lists_each_package_with_its_extras() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    rows = re.findall(r"^\| (\S+) \| ([^|]+) \| [^|]+ \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)
    listed = {name.lower(): set(extras.split(", ")) for name, extras in rows[1:]}
    wanted: dict[str, set[str]] = {name_of(line): {"–"} for line in PROJECT["dependencies"]}
    for extra in FOR_USERS:
        for line in PROJECT["optional-dependencies"][extra]:
            wanted.setdefault(name_of(line), set()).add(extra)
    assert listed == wanted


def test_every_package_has_an_oldest_version() -> None:
    extras = PROJECT["optional-dependencies"].values()
    for line in [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]:
        assert re.search(r">=|==|needle\[", line), line


def test_importing_needle_loads_numpy_only() -> None:
    code = (
        "import sys; before = set(sys.modules); import needle, needle.data\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {name_of(line) for line in PROJECT["dependencies"]}
    for extra in PROJECT["optional-dependencies"].values():
        packages |= {name_of(line) for line in extra}
    modules = {"pillow": "PIL", "tensorboardx": "tensorboardX"}
    loaded = {name for name in packages if modules.get(name, name) in done.stdout.split()}
    assert loaded - {"needle"} == {"numpy"}
