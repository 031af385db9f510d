"""Test NpyDataset: it maps arrays into memory, pickles them as paths, and rejects bad files."""

import pickle

import numpy as np
import pytest

from needle import data
from needle.errors import DataError, ShapeError

IMAGES = np.random.default_rng(0).integers(0, 256, (30, 4, 5, 3), dtype=np.uint8)


@pytest.fixture
def paths(tmp_path):
    np.save(tmp_path / "images.npy", IMAGES)
    np.save(tmp_path / "labels.npy", np.arange(30))
    return tmp_path / "images.npy", tmp_path / "labels.npy"


def test_rows_batches_and_maps(paths):
    dataset = data.NpyDataset(*paths)
    image, label = dataset[7]
    np.testing.assert_array_equal(image, IMAGES[7])
    assert len(dataset) == 30 and label == 7
    images, labels = dataset[np.array([2, 2, 9])]
    np.testing.assert_array_equal(images, IMAGES[[2, 2, 9]])
    np.testing.assert_array_equal(labels, [2, 2, 9])
    whole = dataset.in_memory()
    assert [array.shape for array in whole] == [(30, 4, 5, 3), (30,)]
    assert np.shares_memory(whole[0], image) and not image.flags.writeable
    images, labels = next(iter(data.DataLoader(dataset, 30)))
    np.testing.assert_array_equal(images.numpy(), IMAGES)


def test_it_is_mapped_not_loaded(paths):
    dataset = data.NpyDataset(*paths)
    with open(paths[0], "r+b") as file:
        file.seek(-IMAGES.nbytes, 2)
        file.write(bytes([IMAGES[0, 0, 0, 0] ^ 255]))
    assert dataset[0][0][0, 0, 0] == IMAGES[0, 0, 0, 0] ^ 255


def test_it_pickles_as_paths(paths):
    dataset = data.NpyDataset(*paths)
    message = pickle.dumps(dataset)
    assert len(message) < 1000
    np.testing.assert_array_equal(pickle.loads(message)[29][0], IMAGES[29])
    np.save(paths[1], np.arange(31))
    with pytest.raises(DataError, match=r"labels\.npy: the file has changed since it was opened"):
        pickle.loads(message)


def test_fortran_order_and_big_endian(tmp_path):
    array = np.asfortranarray(np.arange(24, dtype=">f4").reshape(4, 6))
    np.save(tmp_path / "x.npy", array)
    np.testing.assert_array_equal(data.NpyDataset(tmp_path / "x.npy")[2][0], array[2])


def test_files_that_are_none(tmp_path, paths):
    path = tmp_path / "x.npy"
    np.save(path, np.array(3.0))
    with pytest.raises(DataError, match="must hold rows of numbers, got float64 of shape"):
        data.NpyDataset(path)
    np.save(path, np.zeros((29, 2)))
    with pytest.raises(ShapeError, match="the first axes of all arrays must have the same size"):
        data.NpyDataset(path, paths[1])
    with pytest.raises(FileNotFoundError):
        data.NpyDataset(tmp_path / "none.npy")
