"""Corrupted files of every format, read in a child process: rejected by name, or read correctly.

A crash of the child, such as a segmentation fault, fails the test. ``make fuzz`` tries more of
them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("PIL.Image")

from needle import data
from needle.errors import DataError
from tests.fuzz.fuzz_files import FORMATS


def garble(name: str, first: int, count: int) -> dict[str, int]:
    """Return how many of these mutations were refused and how many were read."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.fuzz_files", name]
    run = subprocess.run(
        [*command, str(first), str(count)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0, f"exit {run.returncode}\n{run.stderr[-3000:]}"
    found: dict[str, int] = {"read": 0, "refused": 0, **json.loads(run.stdout)}
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_garbled_files(name: str) -> None:
    count = 1000 if name.endswith(".arrow") else 60
    found = garble(name, 0, count)
    assert found["refused"] + found["read"] == count and found["refused"] > count // 5
    if FORMATS[name].exact:  # its checksums leave only padding that may change
        assert found["read"] < count // 5


@pytest.mark.parametrize("name", ["raw.arrow", "jpeg.arrow", "mixed.arrow", "a.npy", "a.tar"])
def test_every_cut_of_the_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    FORMATS[name].make(path)
    content = path.read_bytes()
    end = len(content)
    if name == "a.tar":  # bytes after the end marker are padding
        end = len(content.rstrip(b"\0")) // 512 * 512 + 1024
    cuts = set(np.linspace(0, end - 1, 150).astype(int).tolist()) | {1, 511, 512, end - 1}
    reader = {".arrow": data.PackedDataset, ".npy": data.NpyDataset}.get(path.suffix)
    for cut in sorted(cuts):
        path.write_bytes(content[:cut])
        with pytest.raises(DataError, match=path.name):
            reader(path) if reader else list(data.TarShards([path]))


@pytest.mark.soak
@pytest.mark.parametrize("name", FORMATS)
def test_many_garbled_files(name: str) -> None:
    garble(name, 100_000, 20_000)
