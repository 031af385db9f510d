"""Several tasks on the same photographs: the shared loader beside a loader for each task.

Each task is a process that takes batches and does nothing with them. The server's cache has room
for a fifth of the photographs. Separate loaders share the cores: each has cores / tasks workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import partial
from typing import Any

from apps.bench.harness.case import Case, Numbers, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, versus
from apps.bench.harness.turns import Result

from . import pictures
from .process_tree import cpu_seconds

TITLE = "Several tasks on the same photographs: the shared loader beside separate ones"
BATCH, PHOTOS, EPOCHS = 32, 256, 4  # enough that batches prepared before a run hardly count
OURS = "server"
SYSTEMS = (OURS, "needle apart", "torch apart")
GOALS = {2: 1.8, 4: 3.0}
"""The goals of the shared loader's rate over that of separate ones, by the number of tasks."""


def prepare(settings: Settings) -> None:
    """Write the files."""
    pictures.photo_folder(settings, settings.pick(PHOTOS, 16))


def cases(settings: Settings) -> list[Case]:
    """Return a case for each system and number of tasks."""
    return [
        Case(
            name_of(tasks, system),
            partial(Tasks, tasks=tasks, system=system),
            {"OMP_NUM_THREADS": "1"},
            ("torch", "cv2", "simplejpeg") if system == "torch apart" else (),
            group=f"{tasks} tasks",
        )
        for tasks in settings.pick((1, *GOALS), (2,))
        for system in SYSTEMS
    ]


def name_of(tasks: int, system: str) -> str:
    """Return the name of the case."""
    return f"{system}, {tasks} tasks"


class Tasks(Subject):
    """The tasks, and the server if there is one; a run is some epochs of each task."""

    def __init__(self, settings: Settings, tasks: int, system: str) -> None:
        photos, self.batch = settings.pick((PHOTOS, BATCH), (16, 4))
        self.batches = settings.pick(EPOCHS, 1) * (photos // self.batch)
        self.folder = tempfile.TemporaryDirectory(prefix="needle-bench-")  # private
        self.errors = open(f"{self.folder.name}/errors", "a+")  # noqa: SIM115 - closed by close
        self.server: Any = None
        self.tasks: list[Any] = []
        try:
            self._open(pictures.photo_folder(settings, photos), tasks, system)
        except BaseException:
            self.close()
            raise

    def _open(self, photos: str, tasks: int, system: str) -> None:
        """Start all processes and wait until each has its first batch."""
        address, cores = f"{self.folder.name}/s.sock", os.cpu_count() or 1
        if system == OURS:
            cache = str(max(1, len(pictures.files(photos)) // 5 * 256 * 256 * 3 >> 20))
            options = {"name": address, "cache": cache, "workers": str(cores)}
            options["dataset"] = f"folder:{photos}?dtype=uint8&layout=HWC"
            words = [word for key, text in options.items() for word in (f"--{key}", text)]
            self.server = self._start("needle.sharing", *words, "--until-last")
            self._line(self.server)
        workers = str(max(1, cores // tasks))  # separate loaders share the cores
        for task in range(tasks):
            words = (system.split()[0], photos, str(self.batch), workers, address, str(task))
            self.tasks.append(self._start("apps.bench.data.training_task", *words))
        for task in self.tasks:
            assert self._line(task) == "ready"
        self._take(1)

    def run(self) -> Numbers:
        """Return the samples per second of all tasks, and CPU milliseconds per sample."""
        cpu = cpu_seconds(os.getpid())
        seconds = self._take(self.batches)
        samples = self.batches * self.batch * len(self.tasks)
        used = cpu_seconds(os.getpid()) - cpu
        return {"rate": samples / max(seconds), "cpu ms": used / samples * 1000}

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

    def _start(self, module: str, *arguments: str) -> Any:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        return subprocess.Popen([sys.executable, "-m", module, *arguments], text=True, **pipes)

    def _line(self, process: Any) -> str:
        line: str = process.stdout.readline()
        if not line:
            self.errors.seek(0)
            words = self.errors.read().strip().splitlines()[-1:]
            status = process.wait()
            raise RuntimeError(f"a process of the benchmark ended with status {status}: {words}")
        return line.strip()

    def _take(self, count: int) -> list[float]:
        """Return the seconds in which each task takes so many batches, all at once."""
        for task in self.tasks:
            task.stdin.write(f"{count}\n")
            task.stdin.flush()
        return [json.loads(self._line(task)) for task in self.tasks]


def targets(result: Result) -> list[Target]:
    """Return the targets: equal tasks compared with separate loaders of PyTorch and needle."""
    return [
        versus(
            f"photographs, {tasks} equal tasks, shared loader over separate ones",
            result,
            (name_of(tasks, OURS), name_of(tasks, other)),
            goal,
            unit="samples/s",
        )
        for tasks, goal in GOALS.items()
        for other in SYSTEMS[:0:-1]
    ]
