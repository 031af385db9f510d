"""Transport of payloads of 1, 8 and 32 MiB from a worker process to the main process.

Every method writes a payload once; the study measures the cost in addition to that copy.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import needle.data as data

from . import ours, peers
from .case import Calls, Case, Numbers, Subject
from .harness import Result
from .process_tree import cpu_seconds
from .settings import Settings
from .target import Target, median_and_range, spread, table

TITLE = "Transport from one worker process"
MIB = 2**20
SIZES = (1, 8, 32)
WAYS = ("needle, NumPy batches", "needle, Tensors", "torch", "multiprocessing pipe")


def cases(settings: Settings) -> list[Case]:
    """Return the cases: each method with each size."""
    found = []
    for size in settings.pick(SIZES, (1,)):
        for way in WAYS:
            needs = ("torch",) if way == "torch" else ()
            opening = partial(Transport, way=way, size=size)
            found.append(Case(f"{way}, {size} MiB", opening, {}, needs, group=f"{size} MiB"))
        opening = partial(open_copy, size=size)
        found.append(Case(f"memory copy, {size} MiB", opening, group=f"{size} MiB"))
    return found


class Transport(Subject):
    """Epochs over payloads: GB/s, and CPU seconds per GiB of all processes and of this one."""

    def __init__(self, settings: Settings, way: str, size: int) -> None:
        super().__init__()
        count = settings.pick(512, 4) // size
        self.total = count * size * MIB
        payloads = ours.Payloads(size * MIB, count)
        self.loader = self.made(way, payloads)
        self.run(False)

    def made(self, way: str, payloads: ours.Payloads) -> Any:
        """Return an iterable over payloads from one worker."""
        if way == "torch":
            return peers.torch_loader(payloads, 1, 1)
        if way == "multiprocessing pipe":
            return Pipe(payloads)
        if way == "needle, NumPy batches":
            ours.numpy_batches()
        return data.DataLoader(payloads, 1, num_workers=1)

    def run(self, witness: bool) -> Numbers:
        """Run one epoch."""
        everyone, own = cpu_seconds(os.getpid()), time.process_time()
        started = time.perf_counter()
        seen = 0
        for batch in self.loader:
            seen += int(np.prod(batch.shape)) * 4
        seconds = time.perf_counter() - started
        own = time.process_time() - own  # before cpu_seconds, which takes time itself
        assert seen == self.total, f"{seen} bytes came of {self.total}"
        gib = self.total / 2**30
        return {
            "rate": self.total / seconds / 1e9,
            "cpu": (cpu_seconds(os.getpid()) - everyone) / gib,
            "main": own / gib,
        }

    def close(self) -> None:
        """Stop the worker."""
        if hasattr(self.loader, "close"):
            self.loader.close()


class Pipe:
    """A worker process that pickles payloads into a pipe when asked for an epoch."""

    def __init__(self, payloads: ours.Payloads) -> None:
        self.here, there = multiprocessing.Pipe()
        self.count = len(payloads)
        with there:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(there.fileno())],
                pass_fds=[there.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        self.here.send(payloads)

    def __iter__(self) -> Iterator[Any]:
        self.here.send(True)
        for _ in range(self.count):
            yield self.here.recv()

    def close(self) -> None:
        """Stop the worker."""
        self.here.send(False)
        self.process.wait()


SERVE = "import sys; from apps.bench.data.study_transport import serve; serve(int(sys.argv[1]))"


def serve(descriptor: int) -> None:
    """The worker's side of ``Pipe``."""
    pipe: Any = Connection(descriptor)
    payloads = pipe.recv()
    while pipe.recv():
        for i in range(len(payloads)):
            pipe.send(payloads[i])


class Copy(Subject):
    """A plain copy of a payload: GB/s and CPU seconds per GiB."""

    def __init__(self, size: int, least: float) -> None:
        super().__init__()
        count = 256 // size
        self.source = np.ones(size * MIB, np.uint8)
        self.targets = np.ones((max(count, 2), size * MIB), np.uint8)
        self.bytes = self.targets.nbytes
        self.calls = Calls(self.copies, least=least)

    def copies(self) -> None:
        """Copy to all places."""
        for place in self.targets:
            np.copyto(place, self.source)

    def run(self, witness: bool) -> Numbers:
        """Run one epoch of copies."""
        seconds = self.calls.run(witness)["us"] / 1e6
        return {"rate": self.bytes / seconds / 1e9, "cpu": seconds / (self.bytes / 2**30)}


def open_copy(settings: Settings, size: int) -> Subject:
    """Open a case of plain copies on one thread."""
    return Copy(size, settings.pick(0.2, 0.01))


def targets(result: Result) -> list[Target]:
    """Return the target: nearly no CPU time in the main process."""
    ours, copying = "needle, NumPy batches, 32 MiB", "memory copy, 32 MiB"
    return [
        Target(
            "transport of 32 MiB: CPU time of the main process per GiB, over that of one copy",
            result.median(ours, "main") / result.median(copying, "cpu"),
            0.1,
            f"{median_and_range(result, ours, 'main')} s a GiB",
            f"copy {median_and_range(result, copying, 'cpu')}, torch "
            f"{median_and_range(result, 'torch, 32 MiB', 'main')}",
            at_most=True,
        )
    ]


def tables(result: Result) -> list[str]:
    """Return a table of all numbers."""
    rows = [
        [name, *(spread(o.median(k), o.span(k)) for k in ("rate", "cpu", "main"))]
        for name, o in result.outcomes.items()
        if "rate" in o.values
    ]
    head = ("", "GB/s", "CPU s a GiB, all processes", "of it in the main process")
    return table(head, rows)
