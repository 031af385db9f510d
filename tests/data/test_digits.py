"""The packaged digits are the published ones, split as documented."""

import numpy as np
import pytest

from needle import data


def test_sizes_ranges_and_classes():
    train, test = data.Digits(), data.Digits(train=False)
    assert (len(train), len(test)) == (1497, 300)
    image, label = train[0]
    assert image.shape == (1, 8, 8) and image.dtype == np.float32 and label.dtype == np.int64
    assert train[:][0].min() == 0 and train[:][0].max() == 1
    assert np.bincount(test.labels).tolist() == [30] * 10
    assert data.Digits(layout="HWC")[0][0].shape == (8, 8, 1)
    raw = data.Digits(dtype="uint8")[:][0]
    assert raw.dtype == np.uint8 and raw.max() == 16
    np.testing.assert_array_equal(raw / np.float32(16), train[:][0])


def test_they_are_scikit_learns():
    source = pytest.importorskip("sklearn.datasets").load_digits()
    positions = [np.flatnonzero(source.target == c) for c in range(10)]
    test = np.sort(
        np.concatenate([p[[int((j + 0.5) * len(p) / 30) for j in range(30)]] for p in positions])
    )
    train = np.setdiff1d(np.arange(1797), test)
    for part, dataset in ((train, data.Digits()), (test, data.Digits(train=False))):
        images, labels = dataset[:]
        np.testing.assert_array_equal(images[:, 0] * 16, source.images[part])
        np.testing.assert_array_equal(labels, source.target[part])
