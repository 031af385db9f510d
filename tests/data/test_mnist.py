"""Read MNIST and Fashion-MNIST from small IDX files: search paths, samples, and bad files."""

import hashlib

import numpy as np
import pytest

from needle import data
from needle.data import write_idx
from needle.errors import DataError

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 28, 28), dtype=np.uint8)
LABELS = (np.arange(20) % 10).astype(np.uint8)


def write_set(folder, suffix=".gz", stems=("train", "t10k"), images=IMAGES, labels=LABELS):
    folder.mkdir(parents=True, exist_ok=True)
    for stem in stems:
        write_idx(folder / f"{stem}-images-idx3-ubyte{suffix}", images)
        write_idx(folder / f"{stem}-labels-idx1-ubyte{suffix}", labels)
    return folder


def pair(folder, stem="train", suffix=".gz"):
    kinds = ("images-idx3", "labels-idx1")
    return [folder / f"{stem}-{kind}-ubyte{suffix}" for kind in kinds]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_courses_dataset(tmp_path, suffix):
    dataset = data.MNISTDataset(*map(str, pair(write_set(tmp_path, suffix), suffix=suffix)))
    assert len(dataset) == 20
    image, label = dataset[3]
    assert image.shape == (784,) and image.dtype == np.float32 and label == 3
    np.testing.assert_array_equal(image, IMAGES[3].ravel().astype(np.float32) / 255)
    images, labels = dataset[2:5]
    np.testing.assert_array_equal(images, np.stack([dataset[i][0] for i in (2, 3, 4)]))
    assert labels.tolist() == [2, 3, 4]
    seen = data.MNISTDataset(*pair(tmp_path, suffix=suffix), transforms=[lambda x: x[:2]])
    assert seen[0][0].shape == (2, 28, 1)


def test_the_courses_dataset_says_which_file_is_missing(tmp_path):
    images, labels = pair(write_set(tmp_path))
    labels.unlink()
    with pytest.raises(DataError, match=r"MNISTDataset: needs the file .*train-labels.*, got none"):
        data.MNISTDataset(images, labels)


def test_a_file_of_another_name_is_mentioned(tmp_path):
    data.write_idx(tmp_path / "train-images.idx3-ubyte", IMAGES)
    with pytest.raises(DataError, match=r"ubyte\.gz, got .*train-images\.idx3-ubyte; give"):
        data.MNISTDataset(tmp_path / "train-images-idx3-ubyte.gz", tmp_path / "x")
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.zip").touch()
    with pytest.raises(DataError, match=r"mnist has train-images-idx3-ubyte\.zip; give another"):
        data.MNIST(tmp_path)


@pytest.mark.parametrize("place", ["", "mnist", "MNIST/raw", "MNIST"])
@pytest.mark.parametrize("train", [True, False])
def test_mnist_is_found_in_the_usual_folders(tmp_path, place, train):
    write_set(tmp_path / place, stems=["train" if train else "t10k"])
    dataset = data.MNIST(tmp_path, train)
    assert dataset[0][0].shape == (1, 28, 28) and dataset.classes[3] == "3"
    assert data.MNIST(tmp_path, train, layout="HWC")[0][0].shape == (28, 28, 1)
    with pytest.raises(DataError, match=r"MNIST: needs .*images-idx3-ubyte .* got none in .*mnist"):
        data.MNIST(tmp_path, not train)


OTHER_NAMES = {
    "dots": "{}.{}",
    "dots and gz": "{}.{}.gz",
    "folders": "{0}-{1}/{0}-{1}",
    "folders and dots": "{0}-{1}/{0}.{1}",
    "upper case": "{0}-{1}",
    "underscores": "Mnist/{0}_{1}",
}


@pytest.mark.parametrize("kind", OTHER_NAMES)
def test_mnist_is_found_under_the_names_of_archivers(tmp_path, kind):
    for name, array in (("train-images idx3-ubyte", IMAGES), ("train-labels idx1-ubyte", LABELS)):
        name = OTHER_NAMES[kind].format(*name.split())
        path = tmp_path / (name.upper() if kind == "upper case" else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        data.write_idx(path, array)
    np.testing.assert_array_equal(data.MNIST(tmp_path).labels, LABELS)


def test_exact_and_plain_names_come_first(tmp_path):
    for name, count in (("{}.{}", 4), ("{}-{}.gz", 3), ("{}-{}", 2), ("{0}-{1}x/{0}-{1}", 1)):
        for part, array in (("images idx3", IMAGES), ("labels idx1", LABELS)):
            path = tmp_path / f"train-{name.format(*f'{part}-ubyte'.split())}"
            path.parent.mkdir(exist_ok=True)
            data.write_idx(path, array[:count])
    assert len(data.MNIST(tmp_path)) == 2


def test_the_root_is_the_data_folder_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("NEEDLE_DATA_DIR", str(write_set(tmp_path)))
    assert len(data.MNIST()) == 20


def test_fashion_mnist_is_not_taken_for_mnist_nor_the_other_way(tmp_path, monkeypatch):
    write_set(tmp_path / "fashion-mnist")
    assert data.FashionMNIST(tmp_path).classes[9] == "Ankle boot"
    with pytest.raises(DataError, match="MNIST: needs"):
        data.MNIST(tmp_path)
    content = bytes([0, 0, 8, 1, 0, 0, 0, 20]) + LABELS.tobytes()
    known = data.download.Digest("sha256", hashlib.sha256(content).hexdigest(), True)
    monkeypatch.setattr(data.MNIST, "digests", {"labels": known})
    with pytest.raises(DataError, match="expected Fashion-MNIST, got the labels of MNIST"):
        data.FashionMNIST(write_set(tmp_path / "course"))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"labels": LABELS[:19]}, "expected 20 labels, as many as images in .* got 19"),
        ({"labels": LABELS + 1}, "labels must be below 10, got 10 for sample 9"),
        ({"images": LABELS}, r"expected 3 axes \(byte 3\), got 1; are images and labels swapped"),
        ({"labels": IMAGES}, r"expected 1 axes \(byte 3\), got 3"),
        ({"images": IMAGES.astype("int32")}, "expected unsigned bytes .* got int32"),
    ],
)
def test_files_that_do_not_fit(tmp_path, change, message):
    with pytest.raises(DataError, match=message) as caught:
        data.MNIST(write_set(tmp_path, **change))
    assert str(tmp_path) in str(caught.value)
