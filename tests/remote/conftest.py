"""A store on loopback with credentials, and small data sets to upload."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needle import data
from tests.remote.loopback_store import LoopbackStore

pytest.importorskip("s3fs")
Image = pytest.importorskip("PIL.Image")

QUICK = data.Retry(tries=4, timeout=5.0, wait=0.01, longest_wait=0.05)
SECRET = "not-to-be-seen"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackStore]:
    """Yield an empty store to which the environment directs S3 clients."""
    with LoopbackStore() as found:
        for name, value in found.environment(tmp_path, "somebody", SECRET).items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with thirty PNGs, 9 x 8 to 11 x 10 pixels, in three classes, one of them
    nested.
    """
    rng = np.random.default_rng(0)
    for i in range(30):
        name = f"{'ant bee cat'.split()[i % 3]}/{'deep er/' * (i == 4)}{29 - i:02} #.png"
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        size = (9 + i % 3, 8 + i % 3, 3)
        Image.fromarray(rng.integers(0, 256, size, dtype=np.uint8)).save(path)
    return tmp_path / "images"


@pytest.fixture
def web(store: LoopbackStore, folder: Path) -> str:
    """Yield the address of the thirty images on a web server, with their index."""
    store.objects.update(uploaded(data.ImageFolder(folder), folder.parent / "up", "bucket/set"))
    return f"{store.endpoint}/bucket/set"


def uploaded(dataset: Any, target: Path, prefix: str, **options: Any) -> dict[str, bytes]:
    """Return the files that ``upload`` writes for a data set, by name in the store."""
    data.upload(dataset, target, progress=False, **options)
    files = (path for path in target.rglob("*") if path.is_file())
    return {f"{prefix}/{path.relative_to(target)}": path.read_bytes() for path in files}
