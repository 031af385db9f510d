"""Tests of apps/sweep.py with a local store: requests are counted exactly, times are not tested."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from apps import sweep, upload
from apps import train as trainer
from apps.bench import storage_page
from apps.training import sources
from needle.backend_selection import BACKEND
from needle.errors import DataError
from tests.apps import few_digits

pytestmark = pytest.mark.skipif(BACKEND == "np", reason="reading data is the same in both modes")
for package in ("s3fs", "pyarrow", "PIL", *trainer.PACKAGES):
    pytest.importorskip(package)

STUDY = """
sources = [{sources}]
workers = [2]
engine = "threads"
[run]
data = "digits"
epochs = 2
batch_size = 16
[[models]]
model = "lenet5"
limit = 24
[store]
delay_ms = 1
"""


@pytest.fixture(autouse=True)
def _few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use 48 training and 20 test digits, and draw no report."""

    monkeypatch.setitem(sources.SOURCES, "digits", few_digits.source(48, 20))


def in_process(arguments: list[str], environment: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        assert trainer.main(arguments) == 0


def rows_of(out: Path) -> dict[tuple[str, int], dict[str, str]]:
    with open(out / "study.csv", newline="") as file:
        return {(row["source"], int(row["workers"])): row for row in csv.DictReader(file)}


@pytest.mark.slow
def test_the_study_counts_requests_and_goes_on(tmp_path: Path) -> None:
    def file_with(names: str) -> str:
        path = tmp_path / "study.toml"
        path.write_text(STUDY.format(sources=names))
        return str(path)

    out, ran = tmp_path / "out", []

    def train(arguments: list[str], environment: dict[str, str]) -> None:
        if len(ran) == 1:
            raise KeyboardInterrupt
        ran.append(arguments[arguments.index("--source") + 1])
        in_process(arguments, environment)

    given = [file_with('"s3-images", "s3-packed"'), "--out", str(out)]
    page = tmp_path / "STUDY.md"
    given += ["--data-dir", str(tmp_path / "data"), "--page", str(page)]
    environment = dict(os.environ)
    with pytest.raises(KeyboardInterrupt):
        sweep.main(given, train)
    assert dict(os.environ) == environment
    again: list[str] = []

    def go_on(arguments: list[str], environment: dict[str, str]) -> None:
        again.append(arguments[arguments.index("--source") + 1])
        in_process(arguments, environment)

    assert sweep.main(given, go_on) == 0
    images, packed = f"{sweep.BUCKET}/s3-images-24", f"{sweep.BUCKET}/s3-packed-24"
    assert ran == [images] and again == [packed]
    rows = rows_of(out)
    # Expected requests: both indices, each split's first image for its size, the test split once,
    # and every training image in each of two epochs; for shards the indices and each shard once.
    assert int(rows["s3-images", 2]["gets"]) == 2 + 2 + 20 + 2 * 24
    assert int(rows["s3-packed", 2]["gets"]) == 2 + 2
    assert 2 <= int(rows["s3-images", 2]["at_once"]) <= 16 and rows["s3-images", 2]["epochs"] == "2"
    said = page.read_text()
    assert "| s3-packed | 2 |" in said and "](STUDY.png)" in said
    assert "fewer GETs than s3-images | 18.00 | 18.00 to 18.00 | yes |" in said
    assert (out / "study.png").stat().st_size and page.with_suffix(".png").stat().st_size
    given[0] = file_with('"s3-packed"')
    study = sweep.read_study(Path(given[0]))
    assert len(sweep.sweep(study, out, tmp_path / "data", lambda *_: pytest.fail("is there"))) == 1
    Path(given[0]).write_text(Path(given[0]).read_text().replace("epochs = 2", "epochs = 3"))
    assert sweep.main(given, in_process) == 1


def test_all_sources_have_the_same_samples(tmp_path: Path) -> None:
    """Compare all sources; the 17 grey levels of digits are exact only when packed as floats."""
    for to in ("folder", "packed"):
        upload.put("digits", to, False, tmp_path)
    opened = [
        sources.open_source("digits", place, tmp_path, True, False) for place in sources.PLACES
    ]
    splits = [sources.open_split(sources.SOURCES["digits"], each, (32, 32)) for each in opened]
    builtin, folder, packed = splits
    assert (packed.images == builtin.images).all() and (packed.labels == builtin.labels).all()
    order = sorted(range(48), key=lambda i: (builtin.labels[i], i))
    assert (folder.labels == builtin.labels[order]).all()
    assert abs(folder.images - builtin.images[order]).max() < 0.5 / 255 / 0.376 + 1e-6


def row(source: str, workers: int, waiting: float, **more: int | None) -> storage_page.Row:
    first = {"model": "m", "source": source, "workers": workers, "first_s": 9.0}
    return {**first, "waiting_s": waiting, "computing_s": 2.0, "gets": None, "at_once": 8, **more}


def test_the_page_says_which_targets_are_missed() -> None:
    """Test the targets: the median over workers counts, for images only with 8 GETs at once."""
    local = [row("builtin", workers, 0.0) for workers in (0, 1, 2, 3)]
    images = [
        row("s3-images", 0, 9.0, gets=90),
        row("s3-images", 1, 0.5, gets=90, at_once=7),
        row("s3-images", 2, 0.1, gets=90),
        row("s3-images", 3, 0.2, gets=90),
    ]
    shards = [row("s3-packed", workers, 0.1 + 0.2 * workers, gets=10) for workers in (1, 2, 3)]
    assert storage_page.targets([*local, *images, *shards])[2:] == [
        "| m | an epoch from s3-images at most 1.1 of builtin | 1.08 | 1.05 to 1.10 | yes |",
        "| m | an epoch from s3-packed at most 1.1 of builtin | 1.25 | 1.15 to 1.35 | **no** |",
        "| m | s3-packed at least 10 times fewer GETs than s3-images | 9.00 | 9.00 to 9.00 "
        "| **no** |",
    ]
    assert storage_page.targets(local) == []
    assert storage_page.table(images)[2] == (
        "| s3-images | 0 | 9.00 | 9.00 | 2.00 | 11.00 | 1.00 | 90 | 8 |"
    )
    assert storage_page.summary([*local, *images])[2:] == [
        "| m | builtin | 0, 1, 2, 3 | 0.00 | 2.00 |  | 8 |",
        "| m | s3-images | 0, 1, 2, 3 | 0.35 (0.10–9.00) | 2.35 (2.10–11.00) | 90 | 8 |",
    ]


def test_a_limit_keeps_every_class(tmp_path: Path) -> None:
    whole = sources.open_source("digits", "builtin", tmp_path, True, False)
    few = sources.limited(whole, 24)
    counts = np.bincount([few[i][1] for i in range(24)])
    assert len(counts) == 10 and set(counts) == {2, 3} and few.classes == whole.classes
    assert sources.limited(whole, 0) is whole
    with pytest.raises(DataError, match="at least one sample of each of 10 classes, got 9"):
        sources.limited(whole, 9)
    upload.put_split(few, "digits", "train", "packed", True, tmp_path)
    packed = sources.open_source("digits", "packed", tmp_path, True, False)
    thirds = sources.limited(packed, 12)  # whose labels are unknown until they are read
    assert [int(thirds[i][1]) for i in range(12)] == [int(packed[2 * i][1]) for i in range(12)]


def test_a_model_has_its_own_workers(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        STUDY.format(sources='"builtin"') + '[[models]]\nmodel = "vgg11"\nworkers = [0]\n'
    )
    cases = sweep.read_study(path).cases()
    assert [case.name for case in cases] == ["lenet5-builtin-02", "vgg11-builtin-00"]
    assert [case.limit for case in cases] == [24, 0] and "workers" not in cases[1].options


def test_a_mistake_in_the_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "study.toml"
    for text, words in (
        ("sources = [", "must be a TOML file with sources"),
        (STUDY.format(sources='"tape"'), "unknown source 'tape'"),
        (STUDY.format(sources='"builtin"').replace("engine", "motor"), "must be a TOML file"),
        (STUDY.format(sources='"builtin"').replace('model = "lenet5"', ""), "must name data, "),
    ):
        path.write_text(text)
        assert sweep.main([str(path), "--out", str(tmp_path / "out")]) == 1
        assert words in capsys.readouterr().err
