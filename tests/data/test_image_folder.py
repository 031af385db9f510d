"""Test ImageFolder: sorted classes and files, decoding, damaged files, and a missing Pillow."""

import pickle
import shutil
import sys
import tarfile
import warnings

import numpy as np
import pytest

from needle import data
from needle.data.samples.timing import Clock
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


def test_slices_and_index_arrays_give_a_list_of_items(root):
    dataset = data.ImageFolder(root)
    assert [item[1] for item in dataset[np.array([4, -5])]] == [2, 0]
    subset = data.Subset(dataset, [3, 1, 0])
    assert [item[1] for item in subset[0:5]] == [2, 1, 0]
    assert [item[1] for item in subset[[0]]] == [2]
    np.testing.assert_array_equal(subset[1:2][0][0], dataset[1][0])
    joined = data.ConcatDataset(subset, dataset)
    assert [item[1] for item in data.Subset(joined, range(2, 5))[:]] == [0, 0, 1]
    with pytest.raises(IndexError, match="out of bounds"):
        dataset[[5]]


@pytest.mark.parametrize("hidden", [".ipynb_checkpoints", "__MACOSX", "@EADIR", "$RECYCLE.BIN"])
@pytest.mark.parametrize("below", ["", "ant", "cat/deep"])
def test_hidden_files_and_folders_are_no_images_and_no_classes(root, below, hidden):
    shutil.copytree(root / "dog", root / below / hidden / "dog")
    (root / "ant" / "._x.bmp").write_bytes(b"a note of another system")
    dataset = data.ImageFolder(root)
    assert dataset.classes == ("ant", "cat", "dog") and len(dataset) == 5


def test_images_without_a_class_are_told(root):
    shutil.copy(root / "ant" / "x.bmp", root / "x.bmp")
    (root / "notes.txt").write_text("no image")
    with pytest.warns(UserWarning, match=r"1 images of .* are in no class, such as x\.bmp; move"):
        assert len(data.ImageFolder(root)) == 5


@pytest.mark.parametrize("name", [None, "x.heic", "@eaDir/x.bmp", "link"])
@pytest.mark.filterwarnings("ignore:.*links to folders")
def test_a_class_without_an_image_is_named(root, name):
    (root / "eel" / "@eaDir").mkdir(parents=True)
    if name == "link":
        (root / "eel" / name).symlink_to(root / "ant")
    elif name:
        shutil.copy(root / "ant" / "x.bmp", root / "eel" / name)
    with pytest.raises(DataError, match=r"got no file ending in .*\.pgm in the folders eel;"):
        data.ImageFolder(root)


def test_links_to_folders_are_told(root):
    (root / "dog" / "more").symlink_to(root)
    with pytest.warns(UserWarning, match="links to folders below a class are not .* dog/more"):
        assert len(data.ImageFolder(root)) == 5


def test_broken_links_and_images_of_other_formats_are_told(root):
    (root / "eel").symlink_to("nowhere")
    (root / "cat" / "phone.HEIC").write_bytes(b"no matter")
    with pytest.warns(UserWarning) as caught:
        dataset = data.ImageFolder(root)
    told = [str(each.message) for each in caught]
    assert len(told) == 2 and "eel" in told[0] and "cat/phone.HEIC" in told[1]
    assert dataset.classes == ("ant", "cat", "dog") and len(dataset) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (root / "eel").unlink()
        assert len(data.ImageFolder(root, extensions=[".bmp", ".png", ".heic"])) == 6


def folder_as_files(root, kind):
    """Return the folder's data set by a relative path, copied to a file of this kind."""
    folder = data.ImageFolder(root.name, dtype="uint8", layout="HWC")
    if kind == "packed":
        pytest.importorskip("pyarrow")
        return data.PackedDataset(data.pack(folder, "files", encode="keep", progress=False))
    if kind == "npy":
        np.save("files.npy", np.stack([image for image, _ in folder[:]]))
        return data.NpyDataset("files.npy")
    if kind == "tar":
        return data.TarShards(data.write_tar_shards(folder, "files-%d.tar"), ("png", "cls"))
    return data.Subset(folder, range(5)) if kind == "subset" else folder


@pytest.mark.parametrize("kind", ["folder", "subset", "packed", "npy", "tar"])
def test_a_relative_path_outlives_chdir(root, kind, monkeypatch):
    monkeypatch.chdir(root.parent)
    dataset = folder_as_files(root, kind)
    monkeypatch.chdir(root)
    for copy in (dataset, pickle.loads(pickle.dumps(dataset))):
        image = next(iter(copy))[0] if kind == "tar" else copy[0][0]
        np.testing.assert_array_equal(image, pixels(4))


def opened_photograph(path, kind, **options):
    """Return the images that this kind of reader yields for a file, the only one in its class."""
    if kind == "folder":
        return data.ImageFolder(path.parents[1], layout="HWC", dtype="uint8", **options)
    with tarfile.open(path.with_suffix(".tar"), "w") as tar:
        tar.add(path, "0.jpg")
    return [[image] for (image,) in data.TarShards([path.with_suffix(".tar")], ["jpg"], **options)]


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_photographs_are_upright(tmp_path, kind):
    exif, path = Image.Exif(), tmp_path / "a" / "photo.jpg"
    exif[0x0112] = 6
    path.parent.mkdir()
    stored = np.kron(pixels(0, (3, 8)), np.ones((8, 8, 1), np.uint8))
    Image.fromarray(stored).save(path, exif=exif, quality=95)
    upright = opened_photograph(path, kind)[0][0]
    raw = opened_photograph(path, kind, oriented=False)[0][0]
    assert raw.shape == stored.shape and abs(raw.astype(int) - stored).mean() < 20
    np.testing.assert_array_equal(upright, np.rot90(raw, -1))


def test_batches_need_one_size(root):
    Image.fromarray(pixels(0, (7, 9))).save(root / "ant" / "w.png")
    with pytest.raises(ShapeError, match=r"got \(3, 7, 9\) in sample 0 and \(3, 5, 4\) in sample"):
        next(iter(data.DataLoader(data.ImageFolder(root), 2)))
    dataset = data.ImageFolder(root, transforms=[data.Resize((6, 6))])
    assert next(iter(data.DataLoader(dataset, 6)))[0].shape == (6, 3, 6, 6)


@pytest.mark.parametrize("content", [b"", b"garbage", None], ids=["empty", "garbage", "cut"])
def test_a_damaged_file_is_named(root, content):
    path = root / "dog" / "a.png"
    path.write_bytes(path.read_bytes()[:60] if content is None else content)
    with pytest.raises(DataError, match="dog/a.png: the image cannot be decoded.*replace or"):
        data.ImageFolder(root)[3]


def test_folders_without_classes_or_images(tmp_path, root):
    with pytest.raises(DataError, match="root must be a folder with one folder per class, got"):
        data.ImageFolder(root / "nowhere")
    with pytest.raises(DataError, match="got no folder in it"):
        data.ImageFolder(root / "dog")
    with pytest.raises(DataError, match=r"no file ending in \.webp in the folders ant, cat, dog;"):
        data.ImageFolder(root, extensions=(".webp",))


def test_without_pillow_the_message_says_what_to_install(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"pip install 'needle\[images\]'"):
        data.ImageFolder(root)


def test_bytes_of_pixels_for_plans(root):
    dataset = data.ImageFolder(root, layout="HWC", dtype="uint8")
    image, label = dataset[3]
    np.testing.assert_array_equal(image, pixels(1))
    assert image.dtype == np.uint8 and label == 2
    want = data.ImageFolder(root, layout="HWC")[3][0]
    np.testing.assert_array_equal(want, image / np.float32(255))
    with pytest.raises(ValueError, match="ImageFolder: dtype must be 'float32' or 'uint8', got"):
        data.ImageFolder(root, dtype="float16")


def test_a_large_image_is_refused(root):
    with pytest.raises(
        DataError, match=r"dog/a\.png: an image may have at most 19 pixels, got 5 x 4"
    ):
        data.ImageFolder(root, max_pixels=19)[3]


def test_decoding_is_counted_as_its_own_stage(root):
    clock = Clock()
    with clock.active():
        data.ImageFolder(root)[0]
    assert set(clock.seconds) == {"decode"} and clock.seconds["decode"] > 0


def test_the_root_of_splits_warns(root, tmp_path_factory):
    for names in (("train", "test"), ("train", "val", "Test")):
        whole = tmp_path_factory.mktemp("-".join(names))
        for name in names:
            shutil.copytree(root, whole / name)
        with pytest.warns(
            UserWarning, match="which look like names of splits; give the folder of one"
        ):
            assert data.ImageFolder(whole).classes == tuple(sorted(names))
    shutil.copytree(root / data.ImageFolder(root).classes[0], whole / "cat")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.ImageFolder(whole)
        data.ImageFolder(whole / "train")
