"""Step times of data-parallel training: mpiexec -n 2 python -m apps.bench.parallel --model resnet20

Every process has one thread and its part of the batch. ``--framework torch`` times PyTorch's
DistributedDataParallel on gloo; it needs PyTorch instead of mpi4py in the Python that is named.
Rank 0 prints one line of JSON; processor_ms is its processor time, which other programs on the
machine change less than step_ms.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import needle
from apps.models import build_model, image_size
from needle import config, nn, optim
from needle.distributed import Communicator, DataParallel, communicator

try:
    import torch
    from torch import distributed

    from apps.bench.against import torch_models
except ImportError:
    torch = None  # type: ignore[assignment]

CHANNELS = {"lenet5": 1}


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
    rank, size, step = side(options)
    times, busy = zip(*_timed(step, options.steps))
    if rank == 0:
        found = {
            "processes": size,
            "step_ms": round(1e3 * statistics.median(times), 2),
            "fastest_ms": round(1e3 * min(times), 2),
            "processor_ms": round(1e3 * statistics.median(busy), 2),
            "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        print(json.dumps({**vars(options), **found}))
    if options.framework == "torch":
        distributed.destroy_process_group()


def _timed(step: Callable[[], Any], count: int) -> Iterator[tuple[float, float]]:
    """Yield the seconds and the processor seconds of each step, after three others."""
    for _ in range(3):
        step()
    for _ in range(count):
        began, busy = time.perf_counter(), time.process_time()
        step()
        yield time.perf_counter() - began, time.process_time() - busy


def _batch(options: argparse.Namespace, size: int) -> tuple[Any, Any]:
    """Return the images and labels of one process."""
    random, count = np.random.default_rng(0), options.batch_size // size
    shape = (count, CHANNELS.get(options.model, 3), *image_size(options.model, 0))
    return random.standard_normal(shape).astype(np.float32), random.integers(0, 10, count)


def needle_side(options: argparse.Namespace) -> tuple[int, int, Callable[[], Any]]:
    """Return rank, size and a step of needle's DataParallel, or of plain needle in one process."""
    group: Communicator = communicator()
    model = build_model(
        options.model,
        in_channels=CHANNELS.get(options.model, 3),
        num_classes=10,
        device=needle.default_device(),
    )
    optimizer = optim.SGD(model.parameters(), 0.01, momentum=0.9)
    loss_function, alone = nn.CrossEntropyLoss(), group.size == 1 and not options.slices
    parallel = None if alone else DataParallel(model, group, options.slices)
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

    return group.rank, group.size, step


def torch_side(options: argparse.Namespace) -> tuple[int, int, Callable[[], Any]]:
    """Return rank, size and a step of DistributedDataParallel, or of plain PyTorch in one."""
    rank, size = (int(os.environ.get(name, d)) for name, d in (("PMI_RANK", 0), ("PMI_SIZE", 1)))
    torch.set_num_threads(int(config.NUM_THREADS.read() or 1))
    place = Path(f"/tmp/needle-bench-parallel-{os.getppid()}")
    distributed.init_process_group("gloo", f"file://{place}", rank=rank, world_size=size)
    plain = torch_models.MODELS[options.model]()
    model = torch.nn.parallel.DistributedDataParallel(plain) if size > 1 else plain
    optimizer = torch.optim.SGD(plain.parameters(), 0.01, momentum=0.9)
    x, y = (torch.from_numpy(each) for each in _batch(options, size))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return rank, size, step


if __name__ == "__main__":
    main()
