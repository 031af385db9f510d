"""Fingerprints differ if data sets deliver different samples; equal data sets have equal ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from server_checks import as_data_loader, assert_same, by_index, folder, loader, served
from server_sets import Images

from needle import data
from needle.errors import DataError
from needle.sharing.wire.fingerprint import fingerprint
from tests.programs import python

RNG = np.random.default_rng(3)
PIXELS = RNG.integers(0, 256, (400, 4, 4, 3), dtype=np.uint8)
LABELS = np.arange(400)


def changed(array: Any, place: int) -> Any:
    """Return a copy that differs in one element, which is not the first, middle or last."""
    other = array.copy()
    other[place] += 1
    return other


def arrays(pixels: Any = PIXELS, labels: Any = LABELS, **options: Any) -> data.ImageArrays:
    return data.ImageArrays(pixels, labels, **options)


class Scaled(data.Dataset):
    """A user's class with arrays, numbers, texts and functions as attributes."""

    def __init__(self, scale: float, function: Any = None) -> None:
        super().__init__()
        self.scale, self.function, self.names = scale, function, {"b", "a", "long name"}

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        return np.full(3, self.scale * index)


class Marked(Scaled):
    """A class that declares what its samples depend on."""

    def fingerprint(self) -> Any:
        return round(self.scale)


class Filed(data.Dataset):
    """Lines of a file that an attribute names, with a log of reads."""

    def __init__(self, file: Path, log: Path) -> None:
        super().__init__()
        self.file, self.log = str(file), log

    def __len__(self) -> int:
        return len(Path(self.file).read_text().split())

    def __getitem__(self, index: int) -> Any:
        with open(self.log, "a") as out:
            print(index, file=out)
        return float(Path(self.file).read_text().split()[index])


def plus(number: int) -> Any:
    return lambda x: x + number


DIFFERENT: dict[str, tuple[Any, Any]] = {
    "a label": (arrays(), arrays(labels=changed(LABELS, 77))),
    "a pixel": (arrays(), arrays(pixels=changed(PIXELS, 78))),
    "an option": (arrays(), arrays(dtype="uint8")),
    "a transform": (
        arrays(transforms=[data.CenterCrop(2)]),
        arrays(transforms=[data.CenterCrop(3)]),
    ),
    "a function": (arrays(transforms=[plus(1)]), arrays(transforms=[plus(2)])),
    "the shape": (data.ArrayDataset(np.zeros((4, 6))), data.ArrayDataset(np.zeros((4, 2, 3)))),
    "the dtype": (data.ArrayDataset(np.zeros(4)), data.ArrayDataset(np.zeros(4, np.int64))),
    "a subset": (data.Subset(arrays(), range(9)), data.Subset(arrays(), [*range(8), 9])),
    "a part": (
        data.ConcatDataset(arrays(), arrays()),
        data.ConcatDataset(arrays(), arrays(labels=changed(LABELS, 9))),
    ),
    "deep inside": (
        data.Subset(data.ConcatDataset(arrays()), range(9)),
        data.Subset(data.ConcatDataset(arrays(labels=changed(LABELS, 300))), range(9)),
    ),
    "a list": ([(i, i) for i in range(9)], [(i, i + (i == 4)) for i in range(9)]),
    "a mask": (
        [np.ma.masked_array([1, 2], [0, 1])],
        [np.ma.masked_array([1, 2], [1, 0])],
    ),
    "an attribute": (Scaled(1.0), Scaled(1.5)),
    "a callable": (Scaled(1.0, plus(1)), Scaled(1.0, plus(2))),
    "the class": (Scaled(1.0), Marked(1.0)),
    "what the class says": (Marked(1.0), Marked(2.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_data_sets_have_two_fingerprints(name: str) -> None:
    one, other = DIFFERENT[name]
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(one)


EQUAL: dict[str, tuple[Any, Any]] = {
    "copies": (arrays(), arrays(PIXELS.copy(), LABELS.copy())),
    "transforms": (arrays(transforms=[data.Pad(2)]), arrays(transforms=[data.Pad(2)])),
    "classes": (Images(30), Images(30)),
    "functions": (Scaled(1.0, plus(1)), Scaled(1.0, plus(1))),
    "what the class says": (Marked(1.0), Marked(1.1)),
    "one text or two": (Scaled(1.0, ["a b"] * 2), Scaled(1.0, ["a b", " ".join("ab")])),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_data_sets_have_one_fingerprint(name: str) -> None:
    one, other = EQUAL[name]
    assert fingerprint(one) == fingerprint(other)


def test_a_cycle_ends() -> None:
    dataset = Scaled(1.0)
    dataset.function = [dataset]
    again = Scaled(1.0)
    again.function = [again]
    assert fingerprint(dataset) == fingerprint(again) != fingerprint(Scaled(1.0))


def test_what_cannot_be_pickled_equals_nothing() -> None:
    dataset = Scaled(1.0, open(os.devnull))  # noqa: SIM115
    assert fingerprint(dataset) != fingerprint(dataset)
    dataset.function.close()


def write_images(root: Path, shade: int) -> None:
    for name in ("a", "b"):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(4):
            body = f"P5 2 2 255\n{chr(65 + i) * 3}{chr(shade)}"
            (root / name / f"{i}.pgm").write_text(body)


def same_times(path: Path, body: bytes) -> None:
    """Overwrite a file and restore its times."""
    status = path.stat()
    path.write_bytes(body)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_changed_file_of_any_kind_is_seen(tmp_path: Path) -> None:
    write_images(tmp_path / "images", 65)
    np.save(tmp_path / "x.npy", PIXELS)
    data.pack(arrays(dtype="uint8", layout="HWC"), tmp_path / "x.arrow")
    makers = {
        tmp_path / "images" / "a" / "2.pgm": lambda: data.ImageFolder(tmp_path / "images"),
        tmp_path / "x.npy": lambda: data.NpyDataset(tmp_path / "x.npy"),
        tmp_path / "x.arrow": lambda: data.PackedDataset(tmp_path / "x.arrow"),
    }
    for path, make in makers.items():
        before = fingerprint(make())
        assert before == fingerprint(make())
        body = bytearray(path.read_bytes())
        body[len(body) // 2] ^= 1
        same_times(path, bytes(body))
        assert fingerprint(make()) != before, path


def test_the_folders_that_links_lead_to_are_seen(tmp_path: Path) -> None:
    write_images(tmp_path / "elsewhere", 65)
    (tmp_path / "root").mkdir()
    for name in ("a", "b"):
        (tmp_path / "root" / name).symlink_to(tmp_path / "elsewhere" / name)
    (tmp_path / "root" / "a" / "broken.pgm").symlink_to(tmp_path / "nothing")
    (tmp_path / "elsewhere" / "a" / "back").symlink_to(tmp_path / "root")
    before = fingerprint(data.ImageFolder(tmp_path / "root"))
    assert before == fingerprint(data.ImageFolder(tmp_path / "root"))
    same_times(tmp_path / "elsewhere" / "b" / "3.pgm", b"P5 2 2 255\nabcd")
    assert fingerprint(data.ImageFolder(tmp_path / "root")) != before


def test_files_that_change_places_are_seen(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1 2 3")
    other.write_text("4 5 6")
    first, second = Scaled(1.0, [one, other]), Scaled(1.0, [other, one])
    assert fingerprint(first) != fingerprint(second)


def test_a_mapped_array_is_known_by_its_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", PIXELS)
    mapped = [np.load(tmp_path / "x.npy", mmap_mode="r") for _ in range(2)]
    one, other = (data.ArrayDataset(each) for each in mapped)
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(data.ArrayDataset(mapped[0][1:])) != fingerprint(
        data.ArrayDataset(mapped[0][:-1])
    )


def test_a_file_that_a_class_names_is_seen_and_its_log_is_not(tmp_path: Path) -> None:
    file, log = tmp_path / "numbers", tmp_path / "log"
    file.write_text("1 2 3")
    log.write_text("")
    before = fingerprint(Filed(file, log))
    Filed(file, log)[1]
    assert fingerprint(Filed(file, log)) == before
    file.write_text("1 2 4")
    assert fingerprint(Filed(file, log)) != before


PROGRAM = """
import abc
import functools
import sys
from dataclasses import dataclass
import numpy as np
from needle import data
from needle.sharing.wire.fingerprint import fingerprint

SHADE = int(sys.argv[1])

@functools.lru_cache
def cached(index):
    return index

@dataclass
class Size:
    height: int = 3
    width: int = 4

class Options:
    low: float = 0.0
    high: "float" = 1.0

    def __init__(self):
        self.first, self.second, self.third, self.fourth = range(4)

class Mine(data.Dataset, abc.ABC):
    names = {"one", "two", "three"}
    options = Options(), Size()
    transform = data.Pad(3)
    __slots__ = ("place",)

    @property
    def shade(self):
        return cached(3)

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return np.full(3, SHADE), [x for x in self.names]

before = fingerprint(Mine())
print(before)
Options.__annotations__  # Python 3.14 keeps what it evaluates
assert fingerprint(Mine()) == before
"""


@pytest.mark.slow
def test_a_class_of_the_main_program_has_one_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)

    def told(shade: str, seed: str) -> str:
        return python(tmp_path / "program.py", shade, PYTHONHASHSEED=seed).stdout

    assert told("1", "1") == told("1", "2") != told("2", "1")


@pytest.mark.slow
def test_a_module_of_ones_own_that_changes_is_seen(tmp_path: Path) -> None:
    program = (
        "from mine import Mine\nfrom needle.sharing.wire.fingerprint import fingerprint\n"
        "print(fingerprint(Mine()))"
    )
    (tmp_path / "mine.py").write_text(
        "import parts\nclass Mine:\n    def __len__(self):\n        return 3\n"
        "    def __getitem__(self, i):\n        return parts.number"
    )
    found = []
    for number in (1, 1, 2):
        text = f"number = {number}"
        if not found or number == 2:
            (tmp_path / "parts.py").write_text(text)
        path = os.pathsep.join([str(tmp_path), *sys.path])
        found.append(python("-c", program, PYTHONPATH=path).stdout)
    assert found[0] == found[1] != found[2]


def test_two_data_sets_never_share_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The data sets differ in 149 labels, but not in the first, middle and last sample."""
    labels = LABELS.copy()
    labels[20:169] += 1000
    one, other = data.ArrayDataset(PIXELS, LABELS), data.ArrayDataset(PIXELS, labels)
    with folder() as place:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
        with loader(one, num_workers=0) as first, loader(other, num_workers=0) as second:
            assert first.server_status()["pid"] != second.server_status()["pid"]
            for task, dataset in ((first, one), (second, other)):
                assert_same(by_index(task), as_data_loader(dataset, 1, 0), dataset.arrays[1])


def test_another_data_set_at_a_named_server_is_an_error() -> None:
    one = data.ArrayDataset(PIXELS, LABELS)
    other = data.ArrayDataset(PIXELS, changed(LABELS, 77))
    shorter = data.ArrayDataset(PIXELS[:399], LABELS[:399])
    with served(one) as path:
        for source, options in (
            (path, {"fallback": shorter}),
            (path, {"fallback": other}),
            (other, {"name": str(path)}),
        ):
            with pytest.raises(DataError, match="different data set"):
                loader(source, **options)
        loader(data.ArrayDataset(PIXELS, LABELS), name=str(path)).close()
