"""Delete one leaf package at a time: the core still imports, passes its tests and trains.

ARCHITECTURE.md lists the leaves. The copy of the tree never has ``apps``, the programs.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_tree import PACKAGE, ROOT

from needle import data
from tests.programs import python

LEAVES = (
    *("apps", "backends/webgpu", "capture", "course_names.py"),
    *("distributed", "onnx", "remote", "sharing"),
)
CORE_TESTS = (
    "test_autograd.py",
    "data/test_loader.py",
    "optim/test_schedules.py",
)

PROGRAM = """
import os
import sys
import numpy as np
import pytest
import needle
import needle.data
from needle import data, nn, optim

assert needle.__file__.startswith(os.getcwd()), needle.__file__
np.random.seed(0)
images = np.random.randn(64, 1, 28, 28).astype(np.float32)
labels = np.random.randint(0, 10, 64)
lenet = nn.Sequential(
    nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(400, 84), nn.ReLU(), nn.Linear(84, 10),
)
optimizer = optim.Adam(lenet.parameters(), lr=0.01)
losses = []
for _ in range(3):
    for x, y in data.DataLoader(data.ArrayDataset(images, labels), 32, shuffle=True, seed=0):
        loss = nn.SoftmaxLoss()(lenet(x), y)
        loss.backward()
        optimizer.step()
        optimizer.reset_grad()
        losses.append(loss.numpy().item())
assert losses[-1] < losses[0], losses
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the package and of some tests of its core."""
    copy = tmp_path_factory.mktemp("tree")
    shutil.copytree(PACKAGE, copy / "python" / "needle")
    for name in ("pyproject.toml", "tests/conftest.py", *(f"tests/{name}" for name in CORE_TESTS)):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    return copy


@pytest.fixture
def without(tree: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return the copy without the leaves of this test."""
    moved = []
    for number, name in enumerate(request.param):
        leaf, aside = tree / "python" / "needle" / name, tree / f"deleted {number}"
        if leaf.exists():
            leaf.rename(aside)
            moved.append((aside, leaf))
    yield tree
    for aside, leaf in moved:
        aside.rename(leaf)


ALONE = [pytest.param((leaf,), id=leaf, marks=pytest.mark.slow) for leaf in LEAVES]


@pytest.mark.parametrize("without", [pytest.param(LEAVES, id="any"), *ALONE], indirect=True)
def test_the_core_works_without_a_leaf(without: Path) -> None:
    tests = [f"tests/{name}" for name in CORE_TESTS]
    python("-c", PROGRAM, *tests, cwd=without, PYTHONPATH=str(without / "python"))


@pytest.mark.parametrize("name, leaf", [("GlobalDataLoader", "sharing"), ("upload", "remote")])
def test_a_name_of_a_missing_leaf_says_what_is_missing(
    name: str, leaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, f"needle.{leaf}", None)
    with pytest.raises(ImportError, match=rf"needle\.{leaf}"):
        getattr(data, name)
