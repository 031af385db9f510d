"""Thousands of garbled files, each read in a child: an error that names the file, or a good read.

A crash of the child, which is what a segmentation fault is, fails the test.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from needle import data

pytest.importorskip("pyarrow")
pytest.importorskip("PIL.Image")
simplejpeg = pytest.importorskip("simplejpeg")

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
PAIRS = [(image, i) for i, image in enumerate(IMAGES)]


def write_mixed(path):
    samples = [
        {"image": image[: 3 + i % 3], "text": "é" * i, "raw": bytes(i), "number": np.float32(i)}
        for i, image in enumerate(IMAGES)
    ]
    data.pack(samples, path, progress=False)


def write_tar(path):
    with tarfile.open(path, "w") as tar:
        for i, image in enumerate(IMAGES[:6]):
            array = io.BytesIO()
            np.save(array, image)
            members = {
                "jpg": simplejpeg.encode_jpeg(image),
                "cls": str(i).encode(),
                "json": b'{"a": [1, 2]}',
                "npy": array.getvalue(),
            }
            for extension, content in members.items():
                info = tarfile.TarInfo(f"folder/{'x' * 90}/{i:04d}.{extension}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


FILES = {
    "raw.arrow": lambda path: data.pack(PAIRS, path, progress=False),
    "jpeg.arrow": lambda path: data.pack(PAIRS, path, encode="jpeg", progress=False),
    "mixed.arrow": write_mixed,
    "a.npy": lambda path: np.save(path, IMAGES),
    "a.tar": write_tar,
}
KINDS = {".arrow": "packed", ".npy": "npy", ".tar": "tar"}


def garble(tmp_path, name, first, count):
    """Return the numbers of these mutations that were refused and that were read."""
    source = tmp_path / name
    FILES[name](source)
    (tmp_path / "folder").mkdir()
    script = Path(__file__).with_name("garbling.py")
    kind = KINDS[source.suffix]
    run = subprocess.run(
        [sys.executable, script, kind, source, tmp_path / "folder", str(first), str(count)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0, f"exit {run.returncode}\n{run.stderr[-3000:]}"
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", FILES)
def test_garbled_files(tmp_path, name):
    count = 300 if name == "a.tar" else 1500
    found = garble(tmp_path, name, 0, count)
    assert found["refused"] + found["read"] == count
    assert found["refused"] > count // 4
    if name.endswith(".arrow"):  # with its checksums nearly nothing passes but padding
        assert found["read"] < count // 5


@pytest.mark.parametrize("name", FILES)
def test_every_cut_of_the_file_is_refused(tmp_path, name):
    source, path = tmp_path / name, tmp_path / f"cut{Path(name).suffix}"
    FILES[name](source)
    content = source.read_bytes()
    end = len(content)
    if name == "a.tar":  # what follows the end mark is padding
        end = len(content.rstrip(b"\0")) // 512 * 512 + 1024
    cuts = set(np.linspace(0, end - 1, 150).astype(int).tolist()) | {1, 511, 512, end - 1}
    reader = {".arrow": data.PackedDataset, ".npy": data.NpyDataset}.get(Path(name).suffix)
    for cut in sorted(cuts):
        path.write_bytes(content[:cut])
        with pytest.raises(data.datasets.packed_reading.DataError, match=path.name):
            reader(path) if reader else list(data.TarShards([path]))


@pytest.mark.soak
@pytest.mark.parametrize("name", FILES)
def test_many_garbled_files(tmp_path, name):
    garble(tmp_path, name, 100_000, 40_000)
