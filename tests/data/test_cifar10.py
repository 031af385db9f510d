"""Read CIFAR-10 in both layouts from small files in its format, and from invalid ones."""

import pickle

import numpy as np
import pytest

from needle import data
from needle.errors import DataError

ROWS = 4


def pixels_and_labels(batch):
    rng = np.random.default_rng(batch)
    pixels = rng.integers(0, 256, (ROWS, 3072), dtype=np.uint8)
    return pixels, rng.integers(0, 10, ROWS).tolist()


def names():
    return [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def write_python(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names()):
        pixels, labels = pixels_and_labels(i)
        record = {b"data": pixels, b"labels": labels, b"batch_label": name.encode()}
        (folder / name).write_bytes(pickle.dumps(record, protocol=2))
    return folder


def write_binary(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names()):
        pixels, labels = pixels_and_labels(i)
        rows = np.concatenate([np.array(labels, np.uint8)[:, None], pixels], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    return folder


@pytest.fixture
def python_folder(tmp_path):
    return write_python(tmp_path / "cifar-10-batches-py")


def truth(train):
    parts = [pixels_and_labels(i) for i in (range(5) if train else [5])]
    pixels = np.concatenate([part[0] for part in parts]).reshape(-1, 3, 32, 32)
    return pixels.astype(np.float32) / 255, [label for part in parts for label in part[1]]


@pytest.mark.parametrize("train", [True, False])
def test_the_courses_dataset(python_folder, train):
    dataset = data.CIFAR10Dataset(str(python_folder), train=train, p=0.5)
    images, labels = truth(train)
    assert len(dataset) == len(labels)
    item = dataset[1]
    assert isinstance(item, tuple) and item[0].dtype == np.float32 and item[1] == labels[1]
    np.testing.assert_array_equal(dataset[:][0], images)
    assert dataset[:][1].tolist() == labels
    batch = next(iter(data.DataLoader(dataset, 3)))
    assert batch[0].shape == (3, 3, 32, 32) and batch[0].dtype == "float32"


def test_the_courses_transforms_see_hwc(python_folder):
    flip = data.RandomFlipHorizontal(1.0)
    dataset = data.CIFAR10Dataset(python_folder, train=True, transforms=[flip])
    np.testing.assert_array_equal(dataset[0][0], truth(True)[0][0][:, :, ::-1])


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("place", ["inside", "above"])
def test_both_file_formats_give_the_same(tmp_path, train, place):
    folders = [write_python(tmp_path / "p" / "cifar-10-batches-py")]
    folders.append(write_binary(tmp_path / "b" / "cifar-10-batches-bin"))
    roots = folders if place == "inside" else [folder.parent for folder in folders]
    images, labels = truth(train)
    for root in roots:
        dataset = data.CIFAR10(root, train)
        np.testing.assert_array_equal(dataset[:][0], images)
        np.testing.assert_array_equal(dataset[0][0], images[0])
        assert dataset[:][1].tolist() == labels
    hwc = data.CIFAR10(roots[1], train, file_format="binary", layout="HWC")
    np.testing.assert_array_equal(hwc[2][0], images[2].transpose(1, 2, 0))
    with pytest.raises(DataError, match="CIFAR10: needs"):
        data.CIFAR10(roots[1], train, file_format="python")


@pytest.mark.parametrize(
    "folder", ["CIFAR-10-batches-py", "cifar_10_batches_py", "cifar-10-batches-py/" * 2, "UPPER"]
)
def test_folders_and_files_are_found_under_other_names(tmp_path, folder):
    written = write_python(tmp_path / folder)
    if folder == "UPPER":
        for path in list(written.iterdir()):
            path.rename(written / path.name.upper())
    root = written if folder == "UPPER" else tmp_path
    assert data.CIFAR10(root, False)[:][1].tolist() == truth(False)[1]
    assert len(data.CIFAR10Dataset(written, False)) == len(truth(False)[1])


def test_missing_files_and_a_wrong_format_name(tmp_path):
    with pytest.raises(DataError, match=r"CIFAR10: needs data_batch_1 ... data_batch_5 \(python\)"):
        data.CIFAR10(tmp_path)
    with pytest.raises(DataError, match=r"CIFAR10Dataset: needs the file .*test_batch, got none"):
        data.CIFAR10Dataset(tmp_path, train=False)
    with pytest.raises(ValueError, match="file_format must be 'auto', 'python' or 'binary', got"):
        data.CIFAR10(tmp_path, file_format="xml")


def change(**fields):
    pixels, labels = pixels_and_labels(0)
    record = {b"data": pixels, b"labels": labels}
    record.update({name.encode(): value for name, value in fields.items()})
    return {key: value for key, value in record.items() if value is not None}


@pytest.mark.parametrize(
    "record, message",
    [
        ([1], "expected a dict with data and labels, got list"),
        (change(data=None), "expected the key 'data', got"),
        (change(labels=None), "expected the key 'labels', got"),
        (change(data=np.zeros((4, 3071), np.uint8)), r"uint8 array \(n, 3072\), got \(4, 3071\)"),
        (change(data=b"abc"), r"uint8 array \(n, 3072\), got bytes"),
        (change(labels=[1, 2, 3]), "labels must be 4 ints below 10, got 3 of them"),
        (change(labels=[1, 2, 3, 10]), "labels must be 4 ints below 10, got something else"),
        (change(labels=b"abcd"), "labels must be 4 ints below 10, got something else"),
        (change(data=np.zeros((4, 3072), np.float32)), "must have dtype uint8, got 'f4'"),
    ],
)
def test_python_batches_that_do_not_fit(python_folder, record, message):
    (python_folder / "data_batch_3").write_bytes(pickle.dumps(record))
    with pytest.raises(DataError, match=message) as caught:
        data.CIFAR10(python_folder)
    assert "data_batch_3" in str(caught.value)


def test_binary_batches_that_do_not_fit(tmp_path):
    folder = write_binary(tmp_path)
    path = folder / "test_batch.bin"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(DataError, match="test_batch.bin: expected .* records of 3073 bytes, got"):
        data.CIFAR10(folder, train=False)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="got 0 bytes"):
        data.CIFAR10(folder, train=False)
    path.write_bytes(b"\x0b" + content[1:])
    with pytest.raises(DataError, match="labels must be below 10, got 11 for sample 0"):
        data.CIFAR10(folder, train=False)
