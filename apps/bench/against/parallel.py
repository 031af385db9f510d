"""Time steps of data-parallel training: mpiexec -n 2 python -m apps.bench.against.parallel needle

Every process has one thread and its part of the batch. ``torch`` in place of ``needle`` times
PyTorch's DistributedDataParallel on gloo, which needs no mpi4py. Rank 0 prints a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import needle
from apps.models import build_model, image_size
from needle import config, nn, optim
from needle.distributed import Communicator, DataParallel, communicator

CHANNELS = {"lenet5": 1}
WARMING = 3
Side = tuple[int, int, Callable[[], Any]]
"""Rank, number of processes, and a step."""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="apps.bench.against.parallel", description="Time steps.")
    parser.add_argument("framework", choices=("needle", "torch"))
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--batch-size", type=int, default=128, help="of all processes together")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    side = needle_side if options.framework == "needle" else torch_side
    rank, size, step = side(options)
    times = []
    for _ in range(WARMING + options.steps):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    if rank == 0:
        found = {
            "processes": size,
            "step_ms": round(1e3 * statistics.median(times[WARMING:]), 2),
            "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        print(json.dumps({**vars(options), **found}), flush=True)
    if options.framework == "torch":
        sys.modules["torch"].distributed.barrier()
        # gloo ends a process whose peer has left the barrier early, or which destroys its group.
        time.sleep(0.5)
        os._exit(0)


def _batch(options: argparse.Namespace, size: int) -> tuple[Any, Any]:
    """Return the images and labels of one process."""
    random, count = np.random.default_rng(0), options.batch_size // size
    shape = (count, CHANNELS.get(options.model, 3), *image_size(options.model, 0))
    return random.standard_normal(shape).astype(np.float32), random.integers(0, 10, count)


def needle_side(options: argparse.Namespace) -> Side:
    """Return a step of needle's DataParallel, or of plain needle in one process."""
    group: Communicator = communicator()
    channels = CHANNELS.get(options.model, 3)
    device = needle.default_device()
    model = build_model(options.model, in_channels=channels, num_classes=10, device=device)
    optimizer = optim.SGD(model.parameters(), 0.01, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()
    never = options.steps + WARMING + 1  # a comparison of parameters is a sum that no step needs
    parallel = DataParallel(model, group, check_every=never) if group.size > 1 else None
    pixels, y = _batch(options, group.size)
    x = needle.Tensor(pixels, requires_grad=False)

    @needle.capture
    def passes(x: Any, y: Any) -> Any:
        loss = loss_function(model(x), y)
        loss.backward()
        return loss

    def step() -> None:
        if parallel is None:
            passes(x, y)
        else:
            with parallel.slice(len(y)):
                passes(x, y)
            parallel.average()
        optimizer.step()

    return group.rank, group.size, step


def torch_side(options: argparse.Namespace) -> Side:
    """Return a step of DistributedDataParallel, or of plain PyTorch in one process."""
    import torch
    from torch import distributed

    from .torch_models import MODELS

    rank, size = (int(os.environ.get(name, d)) for name, d in (("PMI_RANK", 0), ("PMI_SIZE", 1)))
    torch.set_num_threads(int(config.NUM_THREADS.read() or 1))
    place = Path(f"/tmp/needle-bench-parallel-{os.getppid()}")
    distributed.init_process_group("gloo", f"file://{place}", rank=rank, world_size=size)
    plain = MODELS[options.model]()
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
