"""Test apps/train.py --data PATH: image folders in several layouts, packed files, predictions."""

import csv
from pathlib import Path

import numpy as np
import pytest

from apps import predict, upload
from apps import train as program
from apps.training.overview import OVERVIEW, SPLIT, remarks, write_overview
from apps.training.own_pictures import as_place, open_own
from needle import data
from needle.errors import DataError
from tests.remote.loopback_store import LoopbackStore

for package in (*program.PACKAGES, "PIL"):
    pytest.importorskip(package)

Image = pytest.importorskip("PIL.Image")

SMALL = ["--epochs", "2", "--batch-size", "8", "--image-size", "16", "--no-report"]


def write_pictures(folder: Path, counts: dict[str, int], first: int = 0) -> Path:
    """Write pictures of different sizes; each class has a colour."""
    random = np.random.default_rng(first)
    for number, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True)
        for i in range(first, first + count):
            pixels = random.integers(0, 60, (*random.integers(20, 50, 2), 3), dtype=np.uint8)
            pixels[..., number % 3] += 180
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def names_of(dataset: object) -> list[str]:
    return [str(dataset.paths[i]) for i in range(len(dataset))]  # type: ignore[attr-defined]


def test_a_fifth_of_each_class_is_the_test_split(tmp_path: Path) -> None:
    root = write_pictures(tmp_path / "animals", {"cat": 20, "dog": 10, "eel": 1})
    train, test = (names_of(open_own(str(root), flag)) for flag in (True, False))
    assert not set(train) & set(test) and len(train) + len(test) == 31
    assert sorted(Path(name).parent.name for name in test) == ["cat"] * 4 + ["dog"] * 2
    assert names_of(open_own(str(root), False)) == test
    image, label = open_own(str(root), True)[0]
    assert image.dtype == np.uint8 and image.shape[2] == 3 and label == 0


@pytest.mark.parametrize(
    "names", [("train", "test"), ("train", "val"), ("Train", "TEST"), ("training", "validation")]
)
def test_splits_of_their_own(names: tuple[str, str], tmp_path: Path) -> None:
    for name, count in zip(names, (6, 3)):
        write_pictures(tmp_path / name, {"cat": count, "dog": count})
    assert [len(open_own(str(tmp_path), flag)) for flag in (True, False)] == [12, 6]


def test_a_lone_split_is_split(tmp_path: Path) -> None:
    write_pictures(tmp_path / "train", {"cat": 10, "dog": 10})
    assert [len(open_own(str(tmp_path), flag)) for flag in (True, False)] == [16, 4]
    assert open_own(str(tmp_path), True).classes == ("cat", "dog")


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_packed_files_give_the_pictures_of_the_folder(
    layout: str, dtype: str, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    root = write_pictures(tmp_path / "animals", {"cat": 10, "dog": 10})
    whole = data.ImageFolder(root, layout="HWC", dtype="uint8")
    data.pack(data.ImageFolder(root, layout=layout, dtype=dtype), tmp_path / "all.arrow")
    seen = []
    for flag, count in ((True, 16), (False, 4)):
        part = open_own(str(tmp_path / "all.arrow"), flag)
        assert tuple(part.classes) == ("cat", "dog")
        assert np.bincount(part.labels).tolist() == [count // 2] * 2
        for i, place in enumerate(part.indices):
            np.testing.assert_array_equal(part[i][0], whole[int(place)][0])
            assert part[i][0].dtype == np.uint8 and part[i][1] == whole[int(place)][1]
        seen += part.indices.tolist()
    assert sorted(seen) == list(range(20))
    write_overview(
        tmp_path, *(open_own(str(tmp_path / "all.arrow"), flag) for flag in (True, False))
    )
    rows = [f"{'train' if i < 16 else 'test'},{place}" for i, place in enumerate(seen)]
    assert (tmp_path / SPLIT).read_text().split() == ["split,sample", *rows]


def test_grey_pictures_get_three_channels_and_labels_become_classes(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    grey = np.arange(8 * 20, dtype=np.uint8).reshape(8, 4, 5, 1)
    layouts = {"last": grey, "none": grey[..., 0], "first": grey.transpose(0, 3, 1, 2)}
    layouts["colour first"] = np.repeat(layouts["first"], 3, axis=1)
    for name, images in layouts.items():
        file = tmp_path / f"{name}.arrow"
        data.pack(data.ArrayDataset(images, np.arange(8) % 2), file)
        part = open_own(str(file), True)
        assert part.classes == ("0", "1") and len(part) == 6
        for i, place in enumerate(part.indices):
            np.testing.assert_array_equal(part[i][0], np.repeat(grey[place], 3, axis=2))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((4, 3), np.uint8), "must be tuples of a picture and the number of its class"),
        (np.zeros((4, 2, 2, 5), np.uint8), r"1 or 3 channels, got the shape \(2, 2, 5\)"),
        (np.full((4, 2, 2, 3), -2.0, np.float32), "floats must lie in 0..1, got -2 to -2"),
    ],
)
def test_packed_files_without_pictures(images: np.ndarray, message: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    data.pack(data.ArrayDataset(images, np.arange(4) % 2), tmp_path / "all.arrow")
    with pytest.raises(DataError, match=message):
        open_own(str(tmp_path / "all.arrow"), True)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("splits", [False, True])
def test_stores_give_the_pictures_of_the_folder(
    packed: bool, splits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("pyarrow", "fsspec", "aiohttp"):
        pytest.importorskip(package)
    monkeypatch.setenv("NEEDLE_CACHE_DIR", str(tmp_path / "cache"))
    root, site = tmp_path / "animals", tmp_path / "site"
    for name in ("train", "val") if splits else ("",):
        folder = write_pictures(root / name, {"cat": 10, "dog": 10})
        own = data.ImageFolder(folder, layout="HWC", dtype="uint8")
        data.upload(own, str(site / name), packed=packed, progress=False)
    with LoopbackStore() as store:
        for path in site.rglob("*.*"):
            store.objects[f"site/{path.relative_to(site)}"] = path.read_bytes()
        for place in (str(site), f"file://{site}", f"{store.endpoint}/site"):
            for flag in (True, False):
                part, wanted = open_own(place, flag), open_own(str(root), flag)
                assert tuple(part.classes) == wanted.classes
                found = [[(np.sum(x, dtype=int), y) for x, y in each] for each in (part, wanted)]
                if splits or not packed:
                    assert found[0] == found[1]
                else:  # workers report only the index of a sample
                    assert len(found[0]) == len(found[1])


def test_remarks_name_what_is_probably_a_mistake(tmp_path: Path) -> None:
    root = write_pictures(tmp_path / "animals", {"cat": 60, "test2": 5, "validation": 5})
    (root / "cat" / "broken.jpg").write_bytes(b"no picture")
    parts = [open_own(str(root), flag) for flag in (True, False)]
    assert sum(map(len, parts)) == 70
    lines = remarks(*parts)
    assert lines[0] == "3 classes: cat, test2, validation"
    assert lines[1] == "warning: 1 files cannot be read: cat/broken.jpg"
    assert "test2, validation became classes but seem to be splits" in lines[2]
    assert lines[3].endswith("pictures: cat 48 + 12, test2 4 + 1, validation 4 + 1")
    assert lines[4] == "warning: the classes are unequal: 48 pictures of cat, 4 of test2"


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (["one/cat", "one/dog", "two/cat", "two/dog"], "each class has the folders cat, dog; if"),
        (["cat", "pets/Train/dog", "pets/test/dog"], "pets has splits inside; perhaps give --data"),
        (["train_data", "cat"], "warning: train_data became classes but seem to be splits"),
        (["trains", "cat", "valley"], None),
    ],
)
def test_splits_that_became_classes(folders: list[str], message: str, tmp_path: Path) -> None:
    write_pictures(tmp_path, dict.fromkeys(folders, 5))
    lines = remarks(*(open_own(str(tmp_path), flag) for flag in (True, False)))
    warnings = [line for line in lines if line.startswith("warning")]
    assert len(warnings) == (message is not None)
    assert message is None or message in warnings[0]


def test_classes_without_pictures_are_named(tmp_path: Path) -> None:
    write_pictures(tmp_path, {"cat": 10, "dog": 10, "eel": 1, "fox": 1})
    (tmp_path / "fox" / "0.png").write_bytes(b"no picture")
    lines = remarks(*(open_own(str(tmp_path), flag) for flag in (True, False)))
    assert lines[2].endswith("cat 8 + 2, dog 8 + 2, eel 1 + 0, fox 0 + 0")
    assert lines[3] == "warning: no training pictures of fox; remove the folders"
    assert lines[4] == "warning: no test pictures of eel; their accuracy is unknown"
    (tmp_path / "fox" / "0.png").unlink()
    with pytest.raises(DataError, match="in the folders fox;"):
        open_own(str(tmp_path), True)


def test_a_file_cut_short_is_left_out(tmp_path: Path) -> None:
    write_pictures(tmp_path, {"cat": 10, "dog": 10})
    cut = tmp_path / "cat" / "3.png"
    cut.write_bytes(cut.read_bytes()[:-60])  # the header stays intact
    parts = [open_own(str(tmp_path), flag) for flag in (True, False)]
    assert sum(map(len, parts)) == 19
    assert [*getattr(parts[0], "unreadable", []), *getattr(parts[1], "unreadable", [])] == [
        "cat/3.png"
    ]


def test_places() -> None:
    assert as_place("mnits") is None  # a misspelt name of a data set, not a path
    assert as_place("s3://bucket/animals") == "s3://bucket/animals"
    assert as_place("somewhere/animals") == str(Path("somewhere/animals").resolve())


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (None, "does not exist; give a folder of pictures"),
        (["cat"], "only one of them has dog"),
        ([], "must have one folder per class.*a folder of its own"),
    ],
)
def test_places_that_are_refused(classes: list[str] | None, message: str, tmp_path: Path) -> None:
    if classes == []:
        (tmp_path / "animals").mkdir()
    if classes:
        write_pictures(tmp_path / "animals" / "train", {"cat": 2, "dog": 2})
        write_pictures(tmp_path / "animals" / "test", dict.fromkeys(classes, 2))
    with pytest.raises(DataError, match=message):
        open_own(str(tmp_path / "animals"), True)


def test_one_picture_in_each_class_is_refused(tmp_path: Path) -> None:
    write_pictures(tmp_path / "animals", {"cat": 1, "dog": 1})
    with pytest.raises(DataError, match="a class of two pictures or more.* got one picture in e"):
        open_own(str(tmp_path / "animals"), False)
    write_pictures(tmp_path / "more", {"cat": 2, "dog": 1})
    assert [len(open_own(str(tmp_path / "more"), train)) for train in (True, False)] == [2, 1]


def test_one_class_is_refused(tmp_path: Path) -> None:
    write_pictures(tmp_path / "animals", {"cat": 5})
    with pytest.raises(DataError, match="at least two classes, got cat alone; put the pictures"):
        open_own(str(tmp_path / "animals"), True)


def test_a_run_on_own_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = write_pictures(tmp_path / "animals", {"cat": 20, "dog": 20}), tmp_path / "run"
    assert program.main(["--data", str(root), *SMALL, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "2 classes: cat, dog" in said and "32 training and 8 test images" in said
    assert Image.open(out / OVERVIEW).size == (760, 128)
    with open(out / SPLIT, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["split"] for row in rows] == ["train"] * 32 + ["test"] * 8
    assert program.main(["--data", str(root), *SMALL, "--out", str(out), "--resume"]) == 0
    capsys.readouterr()
    files = [str(root / row["file"]) for row in rows[-8:]]
    checkpoint = str(out / "model.safetensors")
    assert predict.main(["--checkpoint", checkpoint, "--top", "1", *files]) == 0
    found = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    accuracy = np.mean([name == Path(file).parent.name for name, file in zip(found, files)])
    assert f"{accuracy:.2%}" in said.split("test accuracy ")[-1]


def test_names_of_data_sets_that_are_folders_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, classes in (("pictures", "ab"), ("animals", "cd"), ("digits", "ef")):
        write_pictures(tmp_path / name, dict.fromkeys(classes, 5))
    for options, said in (
        (["--data", "pictures"], "2 classes: a, b"),
        (["--data", "pictures", "--data-dir", "animals"], "2 classes: c, d"),
        (["--data", "./digits"], "2 classes: e, f"),
        (["--data", "digits", "--limit", "20", "--model", "lenet5"], "that is ./digits"),
    ):
        size = ["--epochs", "1", "--no-report"] if "lenet5" in options else SMALL
        assert program.main([*options, *size, "--out", f"run {options[1][:3]}{len(options)}"]) == 0
        assert said in capsys.readouterr().out
    assert upload.main(["--data", "pictures", "--to", "copy"]) == 1
    assert "needs --data-dir" in capsys.readouterr().err


def test_options_that_contradict_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_pictures(tmp_path / "animals", {"cat": 3, "dog": 3})
    assert program.main(["--data", str(root), "--source", "folder"]) == 1
    assert "--source: --data" in capsys.readouterr().err
    asked = ["--data", str(root), "--model", "lenet5", *SMALL, "--out", str(tmp_path / "run")]
    assert program.main(asked) == 1
    assert "--image-size: lenet5 does not take images of 16 pixels" in capsys.readouterr().err
