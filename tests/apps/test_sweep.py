"""apps/sweep.py on a store of this machine: requests are counted exactly, times not asserted."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from apps import sweep, upload
from apps import train as trainer
from apps.training import sources
from needle.backend_selection import BACKEND
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
model = "lenet5"
epochs = 2
batch_size = 16
[store]
delay_ms = 1
"""


@pytest.fixture(autouse=True)
def _few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """48 digits for training and 20 for testing; no report's pictures."""

    monkeypatch.setitem(sources.SOURCES, "digits", few_digits.source(48, 20))
    monkeypatch.setattr(trainer, "write_report", lambda *arguments: None)


def in_process(arguments: list[str], environment: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        assert trainer.main(arguments) == 0


def rows_of(out: Path) -> dict[tuple[str, int], dict[str, str]]:
    with open(out / "study.csv", newline="") as file:
        return {(row["source"], int(row["workers"])): row for row in csv.DictReader(file)}


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
    given += ["--data-dir", str(tmp_path / "data")]
    environment = dict(os.environ)
    with pytest.raises(KeyboardInterrupt):
        sweep.main(given, train)
    assert dict(os.environ) == environment
    again: list[str] = []

    def go_on(arguments: list[str], environment: dict[str, str]) -> None:
        again.append(arguments[arguments.index("--source") + 1])
        in_process(arguments, environment)

    assert sweep.main(given, go_on) == 0
    images, packed = f"{sweep.BUCKET}/s3-images", f"{sweep.BUCKET}/s3-packed"
    assert ran == [images] and again == [packed]
    rows = rows_of(out)
    # Both indices, the first image of each split for its size, the test split once, and every
    # training image in each of two epochs; of the shards the indices, and each one once.
    assert int(rows["s3-images", 2]["gets"]) == 2 + 2 + 20 + 2 * 48
    assert int(rows["s3-packed", 2]["gets"]) == 2 + 2
    assert (out / "study.png").stat().st_size and "| s3-packed | 2 |" in (
        out / "study.md"
    ).read_text()
    given[0] = file_with('"s3-packed"')
    study = sweep.read_study(Path(given[0]))
    assert len(sweep.sweep(study, out, tmp_path / "data", lambda *_: pytest.fail("is there"))) == 1
    Path(given[0]).write_text(Path(given[0]).read_text().replace("epochs = 2", "epochs = 3"))
    assert sweep.main(given, in_process) == 1


def test_all_sources_have_the_same_samples(tmp_path: Path) -> None:
    """Digits have 17 values, which bytes hold exactly only when packed as floats."""
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


def test_a_mistake_in_the_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "study.toml"
    for text, words in (
        ("sources = [", "must be a TOML file with sources"),
        (STUDY.format(sources='"tape"'), "unknown source 'tape'"),
        (STUDY.format(sources='"builtin"').replace("engine", "motor"), "must be a TOML file"),
    ):
        path.write_text(text)
        assert sweep.main([str(path), "--out", str(tmp_path / "out")]) == 1
        assert words in capsys.readouterr().err
