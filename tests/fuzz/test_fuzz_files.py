"""Read corrupted files of every format in a child process: rejected by name, or read correctly.

A crash of the child, such as a segmentation fault, fails the test. ``make fuzz`` tries more of
them.
"""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("PIL.Image")

from needle import data
from needle.errors import DataError
from tests.fuzz.fuzz_files import FORMATS, garble


@pytest.mark.parametrize("name", FORMATS)
def test_garbled_files(name: str) -> None:
    count = {".arrow": 1000, ".onnx": 400}.get(Path(name).suffix, 60)
    found = garble(name, 0, count)
    assert found["refused"] + found["read"] == count and found["refused"] > count // 5
    if FORMATS[name].exact:  # checksums cover all but padding
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
