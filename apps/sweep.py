"""The storage study: python apps/sweep.py apps/bench/storage_study.toml --out runs/storage

Runs train.py for each model, source and number of workers in the file. Then it writes study.md
(and a summary to --page) with targets, tables and a chart: the seconds an epoch waits and computes,
and the requests that the store received. The same command with the same --out runs the missing
cases. bench/storage_page.py writes the pages.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: apps.training is found from the folder above
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from apps.bench.loopback_store import LoopbackStore
from apps.bench.storage_page import draw, later_epochs, models_of, page, table, targets
from apps.plot import read_run
from apps.training.recipes import tomllib
from apps.training.sources import limited, open_source
from apps.upload import SPLITS, as_bytes, put_split
from needle import config
from needle.errors import DataError, NeedleError, unknown_name
from needle.remote.catalogue import INDEX

SOURCES = ("builtin", "folder", "packed", "s3-images", "s3-packed")
BUCKET = "s3://study"
TRAIN = Path(__file__).with_name("train.py")
DONE = "case.json"
Train = Callable[[list[str], dict[str, str]], None]


@dataclass(frozen=True)
class Store:
    """The object store at ``url``, else one started here that delays GETs by ``delay_ms``."""

    url: str = ""
    delay_ms: float = 20.0
    keep_images: bool = False


@dataclass(frozen=True)
class Study:
    """The content of a study's file.

    run: options of train.py. models: further options for each model; ``workers`` among them is a
    list that replaces the study's. threads: number of threads of the computation, 0 for all cores.
    """

    sources: list[str]
    workers: list[int]
    run: dict[str, Any]
    models: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    engine: str = "processes"
    threads: int = 0
    store: Store = field(default_factory=Store)
    file: str = ""

    def cases(self) -> list[Case]:
        """Return all cases, with those that are compared next to each other."""
        return [
            Case(options["model"], source, count, options)
            for given in self.models
            for options in [{**self.run, **{k: v for k, v in given.items() if k != "workers"}}]
            for count in given.get("workers", self.workers)
            for source in self.sources
        ]


@dataclass(frozen=True)
class Case:
    """One run, a bar of the chart: model, source, number of workers, and train.py's options."""

    model: str
    source: str
    workers: int
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the case's folder."""
        return f"{self.model}-{self.source}-{self.workers:02}"

    @property
    def limit(self) -> int:
        """The number of samples of a split that are used; 0: all."""
        return int(self.options.get("limit", 0))


def read_study(path: Path) -> Study:
    """Read a study's file; DataError names the file and what is wrong in it."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        study = Study(**{**found, "store": Store(**found.get("store", {})), "file": str(path)})
    except (tomllib.TOMLDecodeError, TypeError) as error:
        names = ", ".join(each.name for each in fields(Study))
        raise DataError(f"{path}: must be a TOML file with {names}, got {error}") from error
    for source in study.sources:
        if source not in SOURCES:
            raise unknown_name("source", source, SOURCES)
    named = all("model" in {**study.run, **each} for each in study.models)
    if "data" not in study.run or not named or not study.workers:
        raise DataError(
            f"{path}: [run] must name data, [run] or each of [[models]] must name a model, and "
            "workers must have at least one number; add them"
        )
    return study


def sweep(
    study: Study, out: Path, data_dir: Path, train: Train, minutes: float = math.inf
) -> list[dict[str, Any]]:
    """Run the missing cases of the study; return the rows of its table as they are on disk.

    No further case starts after ``minutes``.
    """
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    _check_same(study, out / "study.json")
    cases = study.cases()
    missing = [case for case in cases if not (out / case.name / DONE).exists()]
    needed = {case.source for case in missing}
    with _store(study.store, bool(needed & {"s3-images", "s3-packed"})) as (url, store):
        where = Places(study.run["data"], out, data_dir, url)
        where.put_all({(case.source, case.limit) for case in missing})
        if store is not None:
            store.delay = study.store.delay_ms / 1000
        for number, case in enumerate(missing, start=1):
            if time.monotonic() - began > minutes * 60:
                print(f"{len(missing) - number + 1} cases are left; run the same command again")
                break
            print(f"{case.name} ({number} of {len(missing)}):", flush=True)
            _run_case(study, case, out, where, store, train)
    done = [path for case in cases if (path := out / case.name / DONE).exists()]
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in done]
    models = [case.model for case in cases]
    place = study.sources.index
    return sorted(rows, key=lambda r: (models.index(r["model"]), place(r["source"]), r["workers"]))


@dataclass(frozen=True)
class Places:
    """The place of each source's data: the whole in the data folder, a part of it below ``out``."""

    name: str
    out: Path
    data_dir: Path
    url: str

    def folder(self, source: str, limit: int) -> Path:
        """Return the --data-dir of a case."""
        made_here = limit and source in ("folder", "packed")
        return self.out / f"data-{limit}" if made_here else self.data_dir

    def source(self, source: str, limit: int) -> str:
        """Return the --source of a case."""
        remote = source.startswith("s3-")
        return f"{self.url}/{source}-{limit or 'all'}" if remote else source

    def put_all(self, wanted: set[tuple[str, int]]) -> None:
        """Write the missing ones of (source, limit); the data set is read once."""
        wanted = {each for each in wanted if each[0] != "builtin"}
        for split in SPLITS if wanted else ():
            whole = open_source(self.name, "builtin", self.data_dir, split == "train", False)
            for source, limit in sorted(wanted):
                dataset = limited(as_bytes(whole), limit)
                to, folder = self.source(source, limit), self.folder(source, limit)
                made = {"packed": f"{split}.arrow", "folder": f"{split}/{INDEX}"}.get(source, "")
                if not made or not (folder / f"{self.name}-{source}" / made).exists():
                    put_split(dataset, self.name, split, to, source == "s3-packed", folder)


def _run_case(
    study: Study,
    case: Case,
    out: Path,
    where: Places,
    store: LoopbackStore | None,
    train: Train,
) -> None:
    folder, cache = out / case.name, out / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    remote = case.source.startswith("s3-")
    options = {
        **case.options,
        "source": where.source(case.source, case.limit),
        "data_dir": where.folder(case.source, case.limit),
        "workers": case.workers,
        "out": folder,
        **({"engine": study.engine} if case.workers else {}),
    }
    arguments = [each for k, v in options.items() for each in (f"--{k.replace('_', '-')}", str(v))]
    environment = {"NEEDLE_CACHE_DIR": str(cache.absolute())}
    if study.threads:
        environment["NEEDLE_NUM_THREADS"] = str(study.threads)
    if case.source == "s3-images" and not study.store.keep_images:
        environment["NEEDLE_CACHE_BYTES"] = "0"
    before = 0
    if store is not None:
        before, store.most_at_once = len(store.gets), 0
    train([*arguments, "--force", "--no-report"], environment)
    run = read_run(folder)
    later, counted = later_epochs(run), remote and store is not None
    row = {
        **asdict(case),
        "epochs": len(run.training),
        "first_s": run.training[0]["duration"],
        "waiting_s": later.loading,
        "computing_s": later.computing,
        "gets": len(store.gets) - before if counted and store else None,
        "at_once": store.most_at_once if counted and store else None,
    }
    shutil.rmtree(cache, ignore_errors=True)
    partial = folder / f".{DONE}.partial"
    partial.write_text(json.dumps(row), encoding="utf-8")
    partial.replace(folder / DONE)


@contextlib.contextmanager
def _store(wanted: Store, needed: bool) -> Iterator[tuple[str, LoopbackStore | None]]:
    """Yield the store's address, and the store itself if it is started here, else None."""
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
    """Run train.py in its own process; NeedleError if it fails."""
    ended = subprocess.run(
        [sys.executable, str(TRAIN), *arguments], env={**os.environ, **environment}
    )
    if ended.returncode:
        raise NeedleError(
            f"sweep: train.py failed with exit code {ended.returncode}; correct it and run the "
            "same command again"
        )


def _check_same(study: Study, path: Path) -> None:
    """Check that the folder's study has the same options, apart from sources and workers."""
    now = {k: v for k, v in asdict(study).items() if k not in ("sources", "workers")}
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else now
    if {**before, "file": study.file} != now:
        raise NeedleError(
            f"sweep: {path.parent} holds a study with other options; give another --out"
        )
    path.write_text(json.dumps(now), encoding="utf-8")


def write(rows: list[dict[str, Any]], out: Path, to: Path | None) -> None:
    """Write study.md, study.csv and study.png; a summary page and the picture also to ``to``."""
    with open(out / "study.csv", "w", newline="", encoding="utf-8") as file:
        sheet = csv.DictWriter(file, fieldnames=[name for name in rows[0] if name != "options"])
        sheet.writeheader()
        sheet.writerows({k: v for k, v in row.items() if k != "options"} for row in rows)
    folders = [out / f"{r['model']}-{r['source']}-{r['workers']:02}" for r in rows]
    study = json.loads((out / "study.json").read_text(encoding="utf-8"))
    facts = json.loads((folders[0] / "run.json").read_text(encoding="utf-8"))
    picture = out / "study.png"
    draw(rows, folders, picture)
    for target in [out / "study.md", *([] if to is None else [to])]:
        beside = target.with_suffix(".png")
        if beside != picture:
            shutil.copyfile(picture, beside)
        text = page(rows, study, facts, beside.name, full=target != to)
        target.write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None, train: Train = train_apart) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m needle sweep", description="The storage study."
    )
    parser.add_argument(
        "study", type=Path, help="a TOML file such as apps/bench/storage_study.toml"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/storage"), help="folder of the study"
    )
    parser.add_argument("--data-dir", type=Path, help="folder of the data sets' files")
    parser.add_argument(
        "--page", type=Path, help="file for a summary page; its picture goes beside it"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="start no further case after so many minutes",
    )
    given = parser.parse_args(arguments)
    data_dir = given.data_dir or Path(config.DATA_DIR.read())
    try:
        rows = sweep(read_study(given.study), given.out, data_dir, train, given.minutes)
        if not rows:
            raise NeedleError("sweep: no case is finished yet; give more --minutes")
        write(rows, given.out, given.page)
    except (NeedleError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for model in models_of(rows):
        print(f"{model}:", *table([row for row in rows if row["model"] == model]), sep="\n")
    print(*targets(rows), sep="\n")
    print(f"in {given.out}: study.md, study.csv, study.png, and a folder for each run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
