"""One to six tasks on one data set: the shared loader beside a loader for each task.

Each task is a process that takes batches and does nothing with them. docs/shared_loader.md compares
the server's reads per delivered sample with what the planner promises.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from needle.sharing.client.joining import ask_status
from needle.sharing.wire.address import socket_path

from . import pictures
from .case import Case, Numbers, Subject
from .harness import Result
from .process_tree import cpu_seconds
from .settings import Settings
from .target import Target, median_and_range, short, spread, table
from .training_task import Spec

TITLE = "Several tasks on one data set: the shared loader beside separate ones"
BATCH = 32
PHOTOS, EPOCHS = 256, 4  # enough that batches prepared before a run hardly count
MANY = PHOTOS * EPOCHS * 2  # one epoch for comparing policies; tasks hold some hundred samples
JPEG, CIFAR = "photographs", "CIFAR"


@dataclass(frozen=True)
class Job:
    """A task: intervals of the set, its head start, and seconds per batch."""

    parts: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    ahead: float = 0.0
    pause: float = 0.0


def _windows(*pairs: tuple[float, float]) -> tuple[Job, ...]:
    return tuple(Job((pair,)) for pair in pairs)


SETS: dict[str, tuple[Job, ...]] = {
    **{f"{k} equal": (Job(),) * k for k in (1, 2, 4, 6)},
    "4 staggered": tuple(Job(ahead=k / 4) for k in range(4)),
    "3 nested": _windows((0, 0.25), (0, 0.5), (0, 1)),
    "3 overlapping": _windows((0, 0.5), (0.25, 0.75), (0.5, 1)),
    "5 folds": tuple(Job(((0.0, k / 5), ((k + 1) / 5, 1.0))) for k in range(5)),
    "2 of unequal speed": (Job(), Job(pause=0.1)),
}
EQUAL = tuple(name for name in SETS if "equal" in name and name[0].isdigit() and "un" not in name)
OURS = "server"
SYSTEMS = (OURS, "needle apart", "torch apart")


def prepare(settings: Settings) -> None:
    """Write the files."""
    for photos in (PHOTOS, MANY):
        pictures.photo_folder(settings, settings.pick(photos, 16))


def cases(settings: Settings) -> list[Case]:
    """Return all systems on photographs; CIFAR on equal sets only."""
    found = []
    for sets in settings.pick(tuple(SETS), ("2 equal",)):
        for system in SYSTEMS:
            found.append(_case(JPEG, sets, system))
    for sets in settings.pick(EQUAL[:3], EQUAL[1:2]):
        found += [_case(CIFAR, sets, system) for system in settings.pick(SYSTEMS, (OURS,))]
    return found


def _case(kind: str, sets: str, system: str) -> Case:
    needs = ("torch", "cv2", "simplejpeg") if system.startswith("torch") else ()
    opening = partial(Tasks, kind=kind, sets=sets, system=system)
    name = f"{kind}, {sets}: {system}"
    return Case(name, opening, {"OMP_NUM_THREADS": "1"}, needs, group=f"{kind}, {sets}")


class Tasks(Subject):
    """The tasks, and the server if there is one; a run is some epochs of each task."""

    def __init__(self, settings: Settings, kind: str, sets: str, system: str) -> None:
        super().__init__()
        self.jobs = SETS[sets]
        self.server: Any = None
        compares = kind == JPEG and sets not in EQUAL and system not in SYSTEMS[1:]
        self.epochs = settings.pick(EPOCHS if kind == JPEG and not compares else 1, 1)
        photos = settings.pick(MANY if compares else PHOTOS, 16)
        root = pictures.photo_folder(settings, photos) if kind == JPEG else ""
        self.length = photos if kind == JPEG else settings.pick(50_000, 256)
        self.batch = settings.pick(BATCH if kind == JPEG else 128, 4)
        self.folder = tempfile.TemporaryDirectory(prefix="needle-bench-")  # private
        self.address = f"{self.folder.name}/s.sock"
        self.errors = open(f"{self.folder.name}/errors", "a+")  # noqa: SIM115 - closed by close
        self.tasks: list[Any] = []
        try:
            self._open(system, kind, root, photos, settings)
        except BaseException:
            self.close()
            raise

    def _open(self, system: str, kind: str, root: str, photos: int, settings: Settings) -> None:
        """Start all processes and wait until each has its first batch."""
        if system.startswith("server"):
            quoted = "" if settings.cifar is None else f"&cifar={settings.cifar}"
            small = f"apps.bench.data.training_task:small?quick={settings.quick}".lower() + quoted
            where = f"folder:{root}?dtype=uint8&layout=HWC" if root else small
            self._serve(where, photos)
        self.tasks += [
            self._start(
                Spec(
                    f"task {place}",
                    system.split(",")[0].split()[0],
                    self.batch,
                    [[round(a * self.length), round(b * self.length)] for a, b in job.parts],
                    root,
                    settings.cifar,
                    settings.quick,
                    self.address,
                    max(1, (os.cpu_count() or 1) // len(self.jobs)),
                    job.pause if not settings.quick else 0.0,
                )
            )
            for place, job in enumerate(self.jobs)
        ]
        for task in self.tasks:
            assert self._line(task) == "ready"
        self._take([1 + round(job.ahead * self._batches(job)) for job in self.jobs])

    def run(self, witness: bool) -> Numbers:
        """Run all tasks.

        Returns samples per second of all tasks together, milliseconds that a task waits for a
        batch, CPU seconds per thousand samples, and reads per sample.
        """
        before, cpu = self._counts(), cpu_seconds(os.getpid())
        counts = [
            max(1, self.epochs * self._batches(job) // (2 if job.pause else 1)) for job in self.jobs
        ]
        answers = self._take(counts)
        delivered = sum(answer["samples"] for answer in answers)
        assert delivered == sum(counts) * self.batch
        numbers = {
            "rate": delivered / max(answer["seconds"] for answer in answers),
            "wait": 1000 * sum(answer["waited"] for answer in answers) / sum(counts),
            "cpu": (cpu_seconds(os.getpid()) - cpu) / delivered * 1000,
        }
        after = self._counts()
        if after[1] > before[1]:
            numbers["reads"] = (after[0] - before[0]) / (after[1] - before[1])
        return {} if witness else numbers

    def close(self) -> None:
        """Stop the tasks; the server ends with the last of them."""
        for task in self.tasks:
            with suppress(OSError):  # the process died
                task.stdin.close()
        for task in self.tasks:
            task.wait(20)
        if self.server is not None:
            self.server.terminate()  # if no task came
            self.server.wait(20)
        self.errors.close()
        self.folder.cleanup()

    def _batches(self, job: Job) -> int:
        return int(sum(b - a for a, b in job.parts) * self.length / self.batch + 1e-9)

    def _serve(self, dataset: str, photos: int) -> None:
        command = ["-m", "needle.sharing", "--name", self.address]
        command += ["--dataset", dataset]
        # Room for a fifth of the photographs at 256 x 256; CIFAR always fits.
        cache = str(max(1, photos // 5 * 256 * 256 * 3 >> 20))
        command += ["--cache", cache, "--workers", str(os.cpu_count() or 1)]
        command.append("--until-last")  # also if this process is killed
        self.server = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        self._line(self.server)

    def _start(self, spec: Spec) -> Any:
        command = [sys.executable, "-m", "apps.bench.data.training_task", spec.to_json()]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        return subprocess.Popen(command, text=True, **pipes)

    def _line(self, process: Any) -> str:
        line: str = process.stdout.readline()
        if not line:
            self.errors.seek(0)
            words = self.errors.read().strip().splitlines()[-1:]
            status = process.wait()
            raise RuntimeError(f"a process of the benchmark ended with status {status}: {words}")
        return line.strip()

    def _take(self, counts: list[int]) -> list[dict[str, float]]:
        for task, count in zip(self.tasks, counts):
            task.stdin.write(f"{count}\n")
            task.stdin.flush()
        return [json.loads(self._line(task)) for task in self.tasks]

    def _counts(self) -> tuple[int, int]:
        """Return the server's numbers of reads and deliveries so far."""
        status = ask_status(socket_path(self.address)) if self.server else None
        feeds = status["feeds"] if status else []
        return sum(feed["reads"] for feed in feeds), sum(feed["delivered"] for feed in feeds)


def targets(result: Result) -> list[Target]:
    """Return the targets: equal tasks compared with separate loaders of PyTorch and needle."""
    found = []
    for sets, goal in (("2 equal", 1.8), ("4 equal", 3.0)):
        shared = result.median(f"{JPEG}, {sets}: {OURS}", "rate")
        for system in reversed(SYSTEMS[1:]):
            rate = result.median(f"{JPEG}, {sets}: {system}", "rate")
            what = f"photographs, {sets} tasks, shared loader over separate ones"
            own = median_and_range(result, f"{JPEG}, {sets}: {OURS}", "rate")
            peer = f"{system}: {median_and_range(result, f'{JPEG}, {sets}: {system}', 'rate')}"
            found.append(Target(what, shared / rate, goal, f"{own} samples/s", peer))
    return found


def tables(result: Result) -> list[str]:
    """Return a table with a row for each case."""
    rows = [
        [
            name,
            spread(outcome.median("rate"), outcome.span("rate")),
            short(outcome.median("wait")),
            short(outcome.median("cpu")),
            short(outcome.median("reads")),
            short(outcome.median("pss") / 2**20),
        ]
        for name, outcome in result.outcomes.items()
        if "rate" in outcome.values
    ]
    head = (
        "",
        "samples/s of all tasks, median (range)",
        "ms a batch and task",
        "CPU s per 1000",
        "reads per sample",
        "peak memory, MiB",
    )
    note = (
        f"{PHOTOS} photographs, {EPOCHS} epochs (servers with sets that are not equal: {MANY}, one "
        "epoch), resized to 256, cropped to 224, flipped, normalised, batches of "
        f"{BATCH}; the server keeps a fifth of them, and what tasks have ready is some hundred "
        "samples more. Separate loaders share the cores: cores / tasks workers each, at least one."
    )
    return [note, "", *table(head, rows)]
