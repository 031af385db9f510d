"""Test the published data sets, if NEEDLE_TEST_DATA names a folder that contains them.

The folder has the layout of the downloads: mnist/, cifar-10-batches-py/, cifar-10-batches-bin/.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from needle import data
from needle.errors import DataError

FOLDER = os.environ.get("NEEDLE_TEST_DATA", "")


def need(name):
    if not FOLDER or not (Path(FOLDER) / name).is_dir():
        pytest.skip(f"set NEEDLE_TEST_DATA to a folder with {name}/")
    return Path(FOLDER)


def test_mnist():
    root = need("mnist")
    train, test = data.MNIST(root), data.MNIST(root, train=False)
    assert (len(train), len(test)) == (60000, 10000)
    assert np.bincount(train.labels)[:3].tolist() == [5923, 6742, 5958]
    assert train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    # the usual normalisation constants of MNIST
    assert abs(train.images.mean() / 255 - 0.1307) < 1e-4
    assert abs(train.images.std() / 255 - 0.3081) < 1e-4


def test_mnist_passes_the_checks_of_its_download(tmp_path):
    root = need("mnist")
    for name, digest in data.MNIST.digests.items():
        assert digest.of(root / "mnist" / name) == digest.value


def test_fashion_mnist_refuses_mnists_files():
    root = need("mnist")
    with pytest.raises(DataError, match="got the labels of MNIST"):
        data.FashionMNIST(root / "mnist")


@pytest.mark.parametrize("train", [True, False])
def test_cifar10_is_the_same_in_both_formats(train):
    root = need("cifar-10-batches-py")
    need("cifar-10-batches-bin")
    python = data.CIFAR10(root, train, file_format="python")
    binary = data.CIFAR10(root, train, file_format="binary")
    assert len(python) == (50000 if train else 10000)
    np.testing.assert_array_equal(python.images, binary.images)
    np.testing.assert_array_equal(python.labels, binary.labels)
    assert np.bincount(python.labels).tolist() == [len(python) // 10] * 10
    course = data.CIFAR10Dataset(root / "cifar-10-batches-py", train)
    np.testing.assert_array_equal(course[7][0], python[7][0])
