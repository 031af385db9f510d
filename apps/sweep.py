"""The storage study: python apps/sweep.py apps/bench/storage_study.toml --out runs/storage

One run of train.py for each source and number of workers that the file names; then a table
(study.md, study.csv) and a bar chart (study.png) of the seconds an epoch waits and computes, with
the requests that the store got. Started again with the same --out it runs what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the folder above is where apps.training is found
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from apps.bench.loopback_store import LoopbackStore
from apps.plot import draw, read_run
from apps.training.recipes import tomllib
from apps.upload import put
from needle import config
from needle.errors import DataError, NeedleError, unknown_name

SOURCES = ("builtin", "folder", "packed", "s3-images", "s3-packed")
BUCKET = "s3://study"
TRAIN = Path(__file__).with_name("train.py")
DONE = "case.json"
Train = Callable[[list[str], dict[str, str]], None]


@dataclass(frozen=True)
class Store:
    """url: of a store that is there, else one is started whose GETs wait ``delay_ms``."""

    url: str = ""
    delay_ms: float = 20.0
    keep_images: bool = False


@dataclass(frozen=True)
class Study:
    """What a file of a study says; ``run`` are train.py's options."""

    sources: list[str]
    workers: list[int]
    run: dict[str, Any]
    engine: str = "processes"
    store: Store = field(default_factory=Store)


@dataclass(frozen=True)
class Case:
    """One bar: where the data is, and how many workers load it."""

    source: str
    workers: int

    @property
    def name(self) -> str:
        """Its folder's."""
        return f"{self.source}-{self.workers:02}"


def read_study(path: Path) -> Study:
    """Reads a file; DataError names it and what is wrong in it."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        study = Study(**{**found, "store": Store(**found.get("store", {}))})
    except (tomllib.TOMLDecodeError, TypeError) as error:
        names = ", ".join(each.name for each in fields(Study))
        raise DataError(f"{path}: must be a TOML file with {names}, got {error}") from error
    for source in study.sources:
        if source not in SOURCES:
            raise unknown_name("source", source, SOURCES)
    if "data" not in study.run or not study.workers:
        raise DataError(f"{path}: [run] must name data, and workers a count at least; add them")
    return study


def sweep(study: Study, out: Path, data_dir: Path, train: Train) -> list[dict[str, Any]]:
    """Runs what is missing of the study; the rows of its table, as they are on disk."""
    out.mkdir(parents=True, exist_ok=True)
    _check_same(study, out / "study.json")
    cases = [Case(source, count) for source in study.sources for count in study.workers]
    missing = [case for case in cases if not (out / case.name / DONE).exists()]
    if missing:
        needed = {case.source for case in missing}
        name = study.run["data"]
        for place in needed & {"folder", "packed"}:
            if not (data_dir / f"{name}-{place}").exists():
                put(name, place, False, data_dir)
        with _store(study.store, bool(needed & {"s3-images", "s3-packed"})) as (url, store):
            for source in needed & {"s3-images", "s3-packed"}:
                put(name, f"{url}/{source}", source == "s3-packed", data_dir)
            if store is not None:
                store.delay = study.store.delay_ms / 1000
            for case in missing:
                print(f"{case.name}:", flush=True)
                _run_case(study, case, out, data_dir, url, store, train)
    return [json.loads((out / case.name / DONE).read_text()) for case in cases]


def _run_case(
    study: Study,
    case: Case,
    out: Path,
    data_dir: Path,
    url: str,
    store: LoopbackStore | None,
    train: Train,
) -> None:
    folder, cache = out / case.name, out / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    remote = case.source.startswith("s3-")
    arguments = [
        each for k, v in study.run.items() for each in (f"--{k.replace('_', '-')}", str(v))
    ]
    arguments += ["--source", f"{url}/{case.source}" if remote else case.source]
    arguments += ["--data-dir", str(data_dir), "--workers", str(case.workers)]
    arguments += [
        "--out",
        str(folder),
        "--force",
        *(["--engine", study.engine] * (case.workers > 0)),
    ]
    environment = {"NEEDLE_CACHE_DIR": str(cache.absolute())}
    if case.source == "s3-images" and not study.store.keep_images:
        environment["NEEDLE_CACHE_BYTES"] = "0"
    before = 0 if store is None else len(store.gets)
    train(arguments, environment)
    run = read_run(folder)
    row = {
        **asdict(case),
        "epochs": len(run.training),
        "waiting_s": run.loading,
        "computing_s": run.computing,
        "gets": len(store.gets) - before if remote and store is not None else None,
    }
    shutil.rmtree(cache, ignore_errors=True)
    partial = folder / f".{DONE}.partial"
    partial.write_text(json.dumps(row), encoding="utf-8")
    partial.replace(folder / DONE)


@contextlib.contextmanager
def _store(wanted: Store, needed: bool) -> Iterator[tuple[str, LoopbackStore | None]]:
    """The store's address, and the store itself where it is started here."""
    if wanted.url or not needed:
        yield wanted.url.rstrip("/"), None
        return
    with LoopbackStore() as store:
        there = {
            "AWS_ENDPOINT_URL": store.endpoint,
            "AWS_ACCESS_KEY_ID": "study",
            "AWS_SECRET_ACCESS_KEY": "study",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        before = {name: os.environ.get(name) for name in there}
        os.environ.update(there)
        try:
            yield BUCKET, store
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def train_apart(arguments: list[str], environment: dict[str, str]) -> None:
    """train.py in a process of its own; NeedleError if it fails."""
    ended = subprocess.run(
        [sys.executable, str(TRAIN), *arguments], env={**os.environ, **environment}
    )
    if ended.returncode:
        raise NeedleError(
            f"sweep: train.py ended with {ended.returncode}; once that is mended the same command "
            f"goes on"
        )


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The study in Markdown; ``times`` is against the source that comes first, same workers.

    An epoch is the mean of all, so give two at least where starting workers is not to count. GETs
    are those of the whole run: indices, the test split, every epoch.
    """
    seconds = {(r["source"], r["workers"]): r["waiting_s"] + r["computing_s"] for r in rows}
    first = rows[0]["source"]
    lines = [
        f"| source | workers | waiting s | computing s | an epoch s | times {first} | GETs |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        source, workers = row["source"], row["workers"]
        whole = seconds[source, workers]
        gets = "" if row["gets"] is None else row["gets"]
        lines.append(
            f"| {source} | {workers} | {row['waiting_s']:.2f} | {row['computing_s']:.2f} | "
            f"{whole:.2f} | {whole / seconds[first, workers]:.2f} | {gets} |"
        )
    return lines


def _check_same(study: Study, path: Path) -> None:
    """A study in the same folder must be the same, but for more sources and workers."""
    now = {k: v for k, v in asdict(study).items() if k not in ("sources", "workers")}
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != now:
        raise NeedleError(
            f"sweep: {path.parent} has a study with other options; give another --out"
        )
    path.write_text(json.dumps(now), encoding="utf-8")


def write(rows: list[dict[str, Any]], out: Path) -> None:
    """study.md, study.csv and study.png."""
    (out / "study.md").write_text("\n".join(table(rows)) + "\n", encoding="utf-8")
    with open(out / "study.csv", "w", newline="", encoding="utf-8") as file:
        sheet = csv.DictWriter(file, fieldnames=list(rows[0]))
        sheet.writeheader()
        sheet.writerows(rows)
    cases = [Case(row["source"], row["workers"]) for row in rows]
    runs = [replace(read_run(out / case.name), source=case.source) for case in cases]
    draw(runs, out / "study.png")


def main(arguments: list[str] | None = None, train: Train = train_apart) -> int:
    """Runs the program; returns its exit code."""
    parser = argparse.ArgumentParser(prog="apps/sweep.py", description="The storage study.")
    parser.add_argument("study", type=Path, help="a TOML file, as apps/bench/storage_study.toml")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/storage"), help="folder of the study"
    )
    parser.add_argument("--data-dir", type=Path, help="where the data sets' files are")
    given = parser.parse_args(arguments)
    data_dir = given.data_dir or Path(config.DATA_DIR.read())
    try:
        rows = sweep(read_study(given.study), given.out, data_dir, train)
        write(rows, given.out)
    except (NeedleError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(table(rows)))
    print(f"in {given.out}: study.md, study.csv, study.png, and a folder a run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
