"""Test that data sets can be read from every kind of source to which apps/upload.py writes."""

from pathlib import Path

import numpy as np
import pytest

from apps import upload
from apps.training import sources
from needle.backend_selection import BACKEND
from needle.errors import DataError
from tests.apps import few_digits

pytestmark = pytest.mark.skipif(BACKEND == "np", reason="reading data is the same in both modes")
for package in ("pyarrow", "PIL"):
    pytest.importorskip(package)


@pytest.fixture(autouse=True)
def _few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use 48 training and 20 test digits."""
    monkeypatch.setitem(sources.SOURCES, "digits", few_digits.source(48, 20))


def test_all_sources_have_the_same_samples(tmp_path: Path) -> None:
    """Compare all sources; only floats store the 17 grey levels of the digits exactly."""
    for to in ("folder", "packed"):
        upload.put("digits", to, False, tmp_path)
    opened = [
        sources.open_source("digits", place, tmp_path, True, False) for place in sources.PLACES
    ]
    splits = [sources.open_split(sources.SOURCES["digits"], each, (32, 32)) for each in opened]
    builtin, folder, packed = splits
    assert (packed.images == builtin.images).all() and (packed.labels == builtin.labels).all()
    order = sorted(range(48), key=lambda i: (builtin.labels[i], i))
    assert (folder.labels == builtin.labels[order]).all()
    assert abs(folder.images - builtin.images[order]).max() < 0.5 / 255 / 0.376 + 1e-6


def test_a_limit_keeps_every_class(tmp_path: Path) -> None:
    whole = sources.open_source("digits", "builtin", tmp_path, True, False)
    few = sources.limited(whole, 24)
    counts = np.bincount([few[i][1] for i in range(24)])
    assert len(counts) == 10 and set(counts) == {2, 3} and few.classes == whole.classes
    assert sources.limited(whole, 0) is whole
    with pytest.raises(DataError, match="at least one sample of each of 10 classes, got 9"):
        sources.limited(whole, 9)
    upload.put_split(few, "digits", "train", "packed", True, tmp_path)
    packed = sources.open_source("digits", "packed", tmp_path, True, False)
    thirds = sources.limited(packed, 12)  # labels are unknown before reading
    assert [int(thirds[i][1]) for i in range(12)] == [int(packed[2 * i][1]) for i in range(12)]
