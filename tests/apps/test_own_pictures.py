"""apps/train.py --data PATH: folders of pictures in several layouts, packed files, predictions."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from apps import predict
from apps import train as program
from apps.training.own_pictures import OVERVIEW, SPLIT, as_place, open_own, remarks
from needle import data
from needle.errors import DataError

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


@pytest.mark.parametrize("names", [("train", "test"), ("train", "val"), ("training", "validation")])
def test_splits_of_their_own(names: tuple[str, str], tmp_path: Path) -> None:
    for name, count in zip(names, (6, 3)):
        write_pictures(tmp_path / name, {"cat": count, "dog": count})
    assert [len(open_own(str(tmp_path), flag)) for flag in (True, False)] == [12, 6]


def test_a_lone_split_is_split(tmp_path: Path) -> None:
    write_pictures(tmp_path / "train", {"cat": 10, "dog": 10})
    assert [len(open_own(str(tmp_path), flag)) for flag in (True, False)] == [16, 4]
    assert open_own(str(tmp_path), True).classes == ("cat", "dog")


def test_packed_files(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    root = write_pictures(tmp_path / "animals", {"cat": 10, "dog": 10})
    data.pack(data.ImageFolder(root, layout="HWC", dtype="uint8"), tmp_path / "all.arrow")
    for flag, count in ((True, 16), (False, 4)):
        part = open_own(str(tmp_path / "all.arrow"), flag)
        assert len(part) == count and tuple(part.classes) == ("cat", "dog")


def test_remarks_name_what_is_probably_a_mistake(tmp_path: Path) -> None:
    root = write_pictures(tmp_path / "animals", {"cat": 60, "test2": 5, "validation": 5})
    (root / "cat" / "broken.jpg").write_bytes(b"no picture")
    parts = [open_own(str(root), flag) for flag in (True, False)]
    assert sum(map(len, parts)) == 70
    lines = remarks(*parts)
    assert lines[0] == "3 classes: cat, test2, validation"
    assert lines[1] == "warning: 1 files cannot be read: cat/broken.jpg"
    assert "validation became classes but seem to be splits" in lines[2]
    assert lines[3] == "warning: the classes are unequal: 48 pictures of cat, 4 of test2"


def test_places() -> None:
    assert as_place("mnits") is None  # a misspelt name of a data set, no path
    assert as_place("s3://bucket/animals") == "s3://bucket/animals"
    assert as_place("somewhere/animals") == str(Path("somewhere/animals").resolve())


@pytest.mark.parametrize(
    ("classes", "message"),
    [(None, "does not exist; give a folder of pictures"), (["cat"], "only one of them has dog")],
)
def test_places_that_are_refused(classes: list[str] | None, message: str, tmp_path: Path) -> None:
    if classes:
        write_pictures(tmp_path / "animals" / "train", {"cat": 2, "dog": 2})
        write_pictures(tmp_path / "animals" / "test", dict.fromkeys(classes, 2))
    with pytest.raises(DataError, match=message):
        open_own(str(tmp_path / "animals"), True)


def test_a_run_on_own_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = write_pictures(tmp_path / "animals", {"cat": 20, "dog": 20}), tmp_path / "run"
    assert program.main(["--data", str(root), *SMALL, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "2 classes: cat, dog" in said and "32 training and 8 test images" in said
    assert Image.open(out / OVERVIEW).size == (640, 128)
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


def test_options_that_contradict_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_pictures(tmp_path / "animals", {"cat": 3, "dog": 3})
    assert program.main(["--data", str(root), "--source", "folder"]) == 1
    assert "--source: --data" in capsys.readouterr().err
    asked = ["--data", str(root), "--model", "lenet5", *SMALL, "--out", str(tmp_path / "run")]
    assert program.main(asked) == 1
    assert "--image-size: lenet5 does not take images of 16 pixels" in capsys.readouterr().err
