"""Test that TarShards reads back what write_tar_shards wrote."""

import numpy as np
import pytest

from needle import data
from needle.errors import DataError

pytest.importorskip("PIL.Image")

PIXELS = np.random.default_rng(0).integers(0, 256, (7, 6, 5, 3), dtype=np.uint8)


def test_what_is_written_is_read(tmp_path):
    samples = [(PIXELS[i], i, f"ü{i}", {"a": i}, PIXELS[i, 0] * 1.5, b"x" * i) for i in range(7)]
    fields = ("png", "cls", "txt", "json", "weights.npy", "bin")
    paths = data.write_tar_shards(samples, tmp_path / "t-%03d.tar", 3, fields=fields)
    assert [path.name for path in paths] == ["t-000.tar", "t-001.tar", "t-002.tar"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in paths]
    read = list(data.TarShards(paths, fields))
    assert len(read) == 7
    for got, want in zip(read, samples):
        for left, right in zip(got, want):
            np.testing.assert_array_equal(left, right)


def test_greys_and_jpegs(tmp_path):
    grey = np.full((8, 8, 1), 77, np.uint8)
    paths = data.write_tar_shards([(grey, 1)], tmp_path / "%d.tar", fields=("JPG", "cls"))
    ((image, label),) = data.TarShards(paths, ("JPG", "cls"))
    np.testing.assert_array_equal(image, np.full((8, 8, 3), 77))
    assert label == 1


def test_samples_that_do_not_fit_leave_nothing(tmp_path):
    for sample, words in (
        ((PIXELS[0] / 255, 1), r"sample 0 cannot be written as \.png .*float64 \(6, 5, 3\)"),
        ((PIXELS[0], "cat"), r"sample 0 cannot be written as \.cls"),
        ((PIXELS[0], 1.5), r"sample 0 cannot be written as \.cls .*'float' object"),
        ((PIXELS[0],), "sample 0 must be a tuple of png, cls, got tuple of 1"),
    ):
        with pytest.raises(DataError, match=words):
            data.write_tar_shards([sample], tmp_path / "%d.tar")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="pattern must have a placeholder for the number"):
        data.write_tar_shards([(PIXELS[0], 1)], tmp_path / "x.tar")
    with pytest.raises(DataError, match=r"sample 0 cannot be written as \.id .*it must be bytes"):
        data.write_tar_shards([(PIXELS[0], 3)], tmp_path / "%d.tar", fields=("PNG", "id"))
    wrong = [("txt", other) for other in ("TXT", "", "__key__", "png;jpg", "a/b")]
    for fields in wrong:
        with pytest.raises(ValueError, match="fields must be different file extensions, got"):
            data.write_tar_shards([("a", "b")], tmp_path / "x-%d.tar", fields=fields)
    with pytest.raises(ValueError, match="samples_per_shard must be at least 1, got 0"):
        data.write_tar_shards([], tmp_path / "%d.tar", 0)
