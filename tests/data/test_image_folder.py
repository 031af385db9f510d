"""ImageFolder: sorted classes and files, decoding, damaged files, no Pillow."""

import os
import sys

import numpy as np
import pytest

from needle import data
from needle.data.datasets import image_folder
from needle.errors import DataError, ShapeError

Image = pytest.importorskip("PIL.Image")


def pixels(seed, size=(5, 4)):
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


@pytest.fixture
def root(tmp_path):
    files = ["dog/b.png", "dog/a.png", "cat/z.PNG", "cat/deep/er/y.png", "ant/x.bmp"]
    for i, name in enumerate(files):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(i)).save(path)
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "README.md").write_text("no class")
    return tmp_path


def test_classes_and_files_in_sorted_order(root):
    dataset = data.ImageFolder(root)
    assert dataset.classes == ("ant", "cat", "dog") and len(dataset) == 5
    paths = [str(dataset.path(i).relative_to(root)) for i in range(5)]
    assert paths == ["ant/x.bmp", "cat/deep/er/y.png", "cat/z.PNG", "dog/a.png", "dog/b.png"]
    assert [dataset[i][1] for i in range(5)] == [0, 1, 1, 2, 2]
    image, label = dataset[-1]
    np.testing.assert_array_equal(image, pixels(0).transpose(2, 0, 1).astype(np.float32) / 255)
    assert image.dtype == np.float32 and image.flags.c_contiguous and label == 2
    assert [item[1] for item in dataset[1:4]] == [1, 1, 2]
    with pytest.raises(IndexError, match="ImageFolder: index must be in"):
        dataset[5]


def test_grey_and_transparent_images_become_rgb(root):
    for mode in ("L", "RGBA", "1", "P"):
        Image.fromarray(pixels(0)).convert(mode).save(root / "ant" / "x.png")
        dataset = data.ImageFolder(root, extensions=[".png"], layout="HWC")
        want = Image.fromarray(pixels(0)).convert(mode).convert("RGB")
        np.testing.assert_array_equal(dataset[0][0] * 255, np.asarray(want, np.float32))


def test_greys_of_sixteen_bits_keep_their_range(root):
    grey = np.linspace(0, 65535, 20).reshape(5, 4).astype(np.uint16)
    Image.fromarray(grey).save(root / "ant" / "x.png")
    image = data.ImageFolder(root, extensions=[".png"], layout="HWC")[0][0]
    np.testing.assert_allclose(image, np.repeat(grey[..., None] / 65535, 3, 2), rtol=1e-6)
    Image.fromarray(grey.astype(np.float32)).save(root / "ant" / "x.tif")
    with pytest.raises(DataError, match=r"x\.tif: the image cannot be decoded.*32 bits"):
        data.ImageFolder(root, extensions=[".tif"])[0]


def test_hidden_files_and_folders_are_no_images_and_no_classes(root):
    (root / ".ipynb_checkpoints").mkdir()
    (root / "ant" / "._x.bmp").write_bytes(b"a note of another system")
    dataset = data.ImageFolder(root)
    assert dataset.classes == ("ant", "cat", "dog") and len(dataset) == 5


def test_a_pipe_is_named_and_not_waited_for(root):
    os.mkfifo(root / "ant" / "a.png")
    with pytest.raises(DataError, match=r"ant/a\.png: an image must be a file, got a folder, pipe"):
        data.ImageFolder(root)[0]


def test_batches_need_one_size(root):
    Image.fromarray(pixels(0, (7, 9))).save(root / "ant" / "w.png")
    with pytest.raises(
        ShapeError, match=r"got \(3, 7, 9\) in sample 0 and \(3, 5, 4\) in sample 1"
    ):
        next(iter(data.DataLoader(data.ImageFolder(root), 2)))
    dataset = data.ImageFolder(root, transforms=[data.Resize((6, 6))])
    assert next(iter(data.DataLoader(dataset, 6)))[0].shape == (6, 3, 6, 6)


@pytest.mark.parametrize("content", [b"", b"garbage", None], ids=["empty", "garbage", "cut"])
def test_a_damaged_file_is_named(root, content):
    path = root / "dog" / "a.png"
    path.write_bytes(path.read_bytes()[:60] if content is None else content)
    with pytest.raises(
        DataError, match=r"dog/a.png: the image cannot be decoded.*replace or remove"
    ):
        data.ImageFolder(root)[3]


def test_folders_without_classes_or_images(tmp_path, root):
    with pytest.raises(DataError, match="root must be a folder with one folder a class, got"):
        data.ImageFolder(root / "nowhere")
    with pytest.raises(DataError, match="got no folder in it"):
        data.ImageFolder(root / "dog")
    with pytest.raises(DataError, match=r"has folders ant, cat, dog but no file ending in \.webp"):
        data.ImageFolder(root, extensions=(".webp",))


def test_without_pillow_the_message_says_what_to_install(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pip install 'needle\[images\]'"):
        data.ImageFolder(root)


def test_the_path_table_keeps_any_name():
    paths = ["a/ü.png", "", "b/\udcff.png", "日本/x"]
    table = image_folder.PathTable(paths)
    assert [table[i] for i in range(len(table))] == paths
