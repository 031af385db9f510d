"""Compare the shared loader with a loader for each task, for several tasks on one data set.

Each task is a process that takes batches and discards them. Separate loaders share the
cores: each has cores / tasks workers.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from apps.bench.harness.case import Case, Numbers, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, versus
from apps.bench.harness.turns import Result
from needle.sharing import GlobalDataLoader

from . import ours, peers, pictures
from .process_tree import cpu_seconds

TITLE = "Several tasks on the same photographs: the shared loader beside separate ones"
BATCH, PHOTOS, EPOCHS = 32, 256, 4  # enough that batches prepared before a run hardly matter
OURS = "server"
SYSTEMS = (OURS, "needle apart", "torch apart")
GOALS = {2: 1.8, 4: 3.0}
"""Goals for the ratio of the shared loader's rate to separate loaders', by number of tasks."""


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
    """A measurement of the tasks and the server, if any; a run is a few epochs of each task."""

    def __init__(self, settings: Settings, tasks: int, system: str) -> None:
        count, self.batch = settings.pick((PHOTOS, BATCH), (16, 4))
        self.batches = settings.pick(EPOCHS, 1) * (count // self.batch)
        self.folder = tempfile.TemporaryDirectory(prefix="needle-bench-")  # for this user only
        photos, address = pictures.photo_folder(settings, count), f"{self.folder.name}/s.sock"
        self.server = server(photos, count, address) if system == OURS else None
        workers = max(1, (os.cpu_count() or 1) // tasks)  # separate loaders share the cores
        spawn = multiprocessing.get_context("spawn")
        self.tasks = []
        for name in map(str, range(tasks)):
            mine, theirs = spawn.Pipe()
            given = (theirs, system, photos, self.batch, workers, address, name)
            process = spawn.Process(target=serve, args=given)
            process.start()
            theirs.close()  # so that reading fails once the process has ended
            self.tasks.append((process, mine))
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
        for process, connection in self.tasks:
            connection.close()
            process.join(20)
        if self.server is not None:
            self.server.wait(20)
        self.folder.cleanup()

    def _take(self, count: int) -> list[float]:
        """Return the seconds that each task takes for ``count`` batches, all running at once."""
        for _, connection in self.tasks:
            connection.send(count)
        return [connection.recv() for _, connection in self.tasks]


def server(photos: str, count: int, address: str) -> subprocess.Popen[str]:
    """Start the server, whose cache has room for a fifth of the photographs at 256 x 256."""
    dataset = f"folder:{photos}?dtype=uint8&layout=HWC"
    cache, cores = str(max(1, count // 5 * 256 * 256 * 3 >> 20)), str(os.cpu_count() or 1)
    options = ["--dataset", dataset, "--name", address, "--cache", cache, "--workers", cores]
    command = [sys.executable, "-m", "needle.sharing", *options, "--until-last"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    started.stdout.readline()  # the server is listening now
    return started


def loader(system: str, photos: str, batch: int, workers: int, address: str, name: str) -> Any:
    """Return the loader that a task iterates over once per epoch."""
    if system == OURS:
        options = {"transforms": ours.JPEG_TO_FLOATS, "drop_last": True, "seed": ours.SEED}
        return GlobalDataLoader(address, batch, task=name, **options)
    if system == "torch apart":
        return peers.torch_loader(peers.Photos(photos), batch, workers, drop_last=True)
    return ours.photo_loader(photos, batch, workers, drop_last=True)


def serve(connection: Connection, system: str, *given: Any) -> None:
    """Run one task: take as many batches as requested and send the seconds that this took."""
    source = loader(system, *given)
    batches = itertools.chain.from_iterable(itertools.repeat(source))
    parts = peers.torch_arrays if system == "torch apart" else ours.tensors
    try:
        while True:
            count, started = connection.recv(), time.perf_counter()
            for _ in range(count):
                images, _ = parts(next(batches))
                images[:, 0, 0, 0].sum()  # reads a pixel of each image
            connection.send(time.perf_counter() - started)
    except EOFError:  # the benchmark has closed the connection
        del batches
        getattr(source, "close", lambda: None)()


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
