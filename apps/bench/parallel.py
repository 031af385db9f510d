"""Step times of data-parallel training: mpiexec -n 2 python -m apps.bench.parallel --model resnet20

Every process has one thread and its part of the batch. ``--framework torch`` times PyTorch's
DistributedDataParallel on gloo; it needs PyTorch instead of mpi4py in the Python that is named.
Rank 0 prints one line of JSON; processor_ms is its processor time, which other programs on the
machine change less than step_ms. Of needle's sums over the processes, sums_ms is what they take by
themselves, and waiting_ms what the best step waits for them: the rest is hidden behind backward.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import needle
from apps.models import build_model, image_size
from needle import config, nn, optim
from needle.distributed import Communicator, DataParallel, communicator
from needle.distributed.communicator import Array, Wait

try:
    import torch
    from torch import distributed

    from apps.bench.against import torch_models
except ImportError:
    torch = None  # type: ignore[assignment]

CHANNELS = {"lenet5": 1}
WARMING = 3


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="apps.bench.parallel", description="Time steps.")
    parser.add_argument("--framework", choices=("needle", "torch"), default="needle")
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--batch-size", type=int, default=128, help="of all processes together")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--slices", type=int, help="virtual replicas (default: none)")
    options = parser.parse_args()
    side = needle_side if options.framework == "needle" else torch_side
    group, step = side(options)
    group.forget()
    times, busy = zip(*_timed(step, options.steps))
    sums = group.measured(options.steps)
    if group.rank == 0:
        found = {
            "processes": group.size,
            "step_ms": round(1e3 * statistics.median(times), 2),
            "fastest_ms": round(1e3 * min(times), 2),
            "processor_ms": round(1e3 * statistics.median(busy), 2),
            "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            **sums,
        }
        print(json.dumps({**vars(options), **found}))
    if options.framework == "torch":
        distributed.barrier()
        # gloo ends a process whose peer has left the barrier early, or which destroys its group.
        time.sleep(0.5)
        sys.stdout.flush()
        os._exit(0)


def _timed(step: Callable[[], Any], count: int) -> Iterator[tuple[float, float]]:
    """Yield the seconds and the processor seconds of each step, after a few others."""
    for _ in range(WARMING):
        step()
    for _ in range(count):
        began, busy = time.perf_counter(), time.process_time()
        step()
        yield time.perf_counter() - began, time.process_time() - busy


class Watched(Communicator):
    """A group that measures how long a program waits for its sums."""

    def __init__(self, group: Communicator) -> None:
        self.group, self.rank, self.size = group, group.rank, group.size
        self.sums: list[tuple[int, Any]] = []
        self.waits: list[float] = []

    def begin_all_reduce(self, array: Array, ordered: bool = False) -> Wait:
        """Begin a sum; the function that is returned measures its wait."""
        self.sums.append((array.size, array.dtype))
        wait = self.group.begin_all_reduce(array, ordered)

        def measured() -> None:
            began = time.perf_counter()
            wait()
            self.waits.append(time.perf_counter() - began)

        return measured

    def broadcast(self, array: Array, root: int = 0) -> None:
        """Pass on the call."""
        self.group.broadcast(array, root)

    def barrier(self, seconds: float | None = None) -> None:
        """Pass on the call."""
        self.group.barrier(seconds)

    def forget(self) -> None:
        """Forget the sums so far, those of the beginning."""
        self.sums.clear()
        self.waits.clear()

    def measured(self, steps: int) -> dict[str, float]:
        """Return milliseconds of waiting in the best step, and of the same sums by themselves."""
        if self.size == 1 or not self.sums:
            return {}
        count, rest = divmod(len(self.sums), steps + WARMING)
        assert not rest, "each step has as many sums"
        waiting = [sum(self.waits[i : i + count]) for i in range(0, len(self.waits), count)]
        arrays = [np.ones(size, dtype) for size, dtype in self.sums[-count:]]
        alone = []
        for _ in range(steps):
            self.group.barrier()
            began = time.perf_counter()
            for wait in [self.group.begin_all_reduce(array) for array in arrays]:
                wait()
            alone.append(time.perf_counter() - began)
        return {
            "waiting_ms": round(1e3 * min(waiting[WARMING:]), 3),
            "sums_ms": round(1e3 * statistics.median(alone), 3),
        }


def _batch(options: argparse.Namespace, size: int) -> tuple[Any, Any]:
    """Return the images and labels of one process."""
    random, count = np.random.default_rng(0), options.batch_size // size
    shape = (count, CHANNELS.get(options.model, 3), *image_size(options.model, 0))
    return random.standard_normal(shape).astype(np.float32), random.integers(0, 10, count)


def needle_side(options: argparse.Namespace) -> tuple[Watched, Callable[[], Any]]:
    """Return the group and a step of needle's DataParallel, or of plain needle in one process."""
    group = Watched(communicator())
    model = build_model(
        options.model,
        in_channels=CHANNELS.get(options.model, 3),
        num_classes=10,
        device=needle.default_device(),
    )
    optimizer = optim.SGD(model.parameters(), 0.01, momentum=0.9)
    loss_function, alone = nn.CrossEntropyLoss(), group.size == 1 and not options.slices
    never = options.steps + WARMING + 1  # a comparison of parameters is a sum that no step needs
    parallel = None if alone else DataParallel(model, group, options.slices, check_every=never)
    pixels, labels = _batch(options, group.size)
    parts = len(parallel.slices) if parallel else 1
    batches = [
        (needle.Tensor(np.array(pixels[i::parts]), requires_grad=False), labels[i::parts])
        for i in range(parts)
    ]

    @needle.capture
    def passes(x: Any, y: Any) -> Any:
        loss = loss_function(model(x), y)
        loss.backward()
        return loss

    def step() -> None:
        for x, y in batches:
            if parallel is None:
                passes(x, y)
                continue
            with parallel.slice(len(y)):
                passes(x, y)
        if parallel:
            parallel.average()
        optimizer.step()

    return group, step


def torch_side(options: argparse.Namespace) -> tuple[Watched, Callable[[], Any]]:
    """Return the group and a step of DistributedDataParallel, or of plain PyTorch in one."""
    rank, size = (int(os.environ.get(name, d)) for name, d in (("PMI_RANK", 0), ("PMI_SIZE", 1)))
    torch.set_num_threads(int(config.NUM_THREADS.read() or 1))
    place = Path(f"/tmp/needle-bench-parallel-{os.getppid()}")
    distributed.init_process_group("gloo", f"file://{place}", rank=rank, world_size=size)
    plain = torch_models.MODELS[options.model]()
    model = torch.nn.parallel.DistributedDataParallel(plain) if size > 1 else plain
    optimizer = torch.optim.SGD(plain.parameters(), 0.01, momentum=0.9)
    group = Watched(Communicator())
    group.rank, group.size = rank, size
    x, y = (torch.from_numpy(each) for each in _batch(options, size))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return group, step


if __name__ == "__main__":
    main()
