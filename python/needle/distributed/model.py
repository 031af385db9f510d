"""A model of data-parallel training: predicts the efficiency on any number of processes.

``python -m needle.distributed.model`` prints a table; ``mpiexec -n 2 python -m
needle.distributed.model --measure`` measures the network. The page docs/scaling.md shows the curves
and the formulas. Nothing in needle depends on this file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from .communicator import Communicator, communicator
from .flat import BUCKET_BYTES

FLOAT = 4
BACKWARD = 2 / 3
"""The part of a step in which gradients are computed: two products for one of the forward pass."""


@dataclass(frozen=True)
class Network:
    """Links between machines of ``processes`` processes each, which share their machine's link.

    latency: seconds of a message; bandwidth: bytes/s of a machine. The fields that begin with
    ``inner`` are those between processes of one machine, as measured by ``--measure``.
    """

    latency: float
    bandwidth: float
    processes: int = 8
    inner_latency: float = 5e-6
    inner_bandwidth: float = 2.5e9


@dataclass(frozen=True)
class Work:
    """A training step in one process: ``fixed`` seconds, and ``per_sample`` for each sample.

    handling: seconds in which DataParallel copies gradients. crowding: the time of a step relative
    to one alone, while other processes of the machine compute too.
    """

    parameters: int
    fixed: float
    per_sample: float
    sample_bytes: int = 3072
    handling: float = 0.0
    crowding: float = 1.0

    def seconds(self, samples: float) -> float:
        """Return the time of a step with so many samples."""
        return self.fixed + self.per_sample * samples


@dataclass(frozen=True)
class Supply:
    """Limits of loading: the workers of each process, and a store that all processes share.

    loader: samples/s of a process's workers; requests, bandwidth: samples/s and bytes/s of the
    store. Infinity: no limit.
    """

    loader: float = math.inf
    requests: float = math.inf
    bandwidth: float = math.inf


@dataclass(frozen=True)
class Prediction:
    """A step on ``processes`` processes; efficiency: relative to one that computes alone."""

    processes: int
    seconds: float
    efficiency: float
    limit: str


# ---- all-reduce ------------------------------------------------------------------------------
# Formulas: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
# MPICH" (2005), without the time of the additions.


def ring(processes: int, size: float, latency: float, bandwidth: float) -> float:
    """Return the seconds of an all-reduce of ``size`` bytes around a ring."""
    steps = 2 * (processes - 1)
    return steps * (latency + size / processes / bandwidth)


def tree(processes: int, size: float, latency: float, bandwidth: float) -> float:
    """Return the seconds of an all-reduce by recursive doubling: few messages of the full size."""
    return math.ceil(math.log2(processes)) * (latency + size / bandwidth)


def hierarchical(processes: int, size: float, network: Network) -> float:
    """Return the seconds of a sum in each machine, a ring of the machines, and a broadcast."""
    inside = min(processes, network.processes)
    machines = math.ceil(processes / network.processes)
    return tree(inside, 2 * size, network.inner_latency, network.inner_bandwidth) + ring(
        machines, size, network.latency, network.bandwidth
    )


def all_reduce(processes: int, size: float, network: Network) -> float:
    """Return the seconds of the fastest of the three: MPI libraries choose by size."""
    if processes <= network.processes:
        links = network.inner_latency, network.inner_bandwidth
    else:  # the processes of a machine send at once
        links = network.latency, network.bandwidth / network.processes
    return min(
        ring(processes, size, *links),
        tree(processes, size, *links),
        hierarchical(processes, size, network),
    )


def exposed(work: Work, compute: float, processes: int, network: Network) -> float:
    """Return the seconds that all-reduces last beyond backward, bucket after bucket.

    Bucket k of n can be sent when k/n of backward have passed, and after the bucket before it.
    """
    size = work.parameters * FLOAT
    buckets = max(1, round(size / BUCKET_BYTES))
    each = all_reduce(processes, size / buckets, network)
    end = compute * (1 - BACKWARD)
    for k in range(1, buckets + 1):
        ready = compute * (1 - BACKWARD + BACKWARD * k / buckets)
        end = max(end, ready) + each
    return end - compute


def slowest(processes: int, deviation: float) -> float:
    """Return the expected largest of so many step times with mean 1, normally distributed.

    Blom's approximation of the largest order statistic (1958).
    """
    if processes == 1:
        return 1.0
    return 1 + deviation * NormalDist().inv_cdf((processes - 0.375) / (processes + 0.25))


def predict(
    work: Work, samples: int, processes: int, network: Network, supply: Supply, deviation: float
) -> Prediction:
    """Return the step of ``processes`` processes with ``samples`` samples each.

    deviation: standard deviation of a process's step time, relative to its mean.
    """
    alone = work.seconds(samples)
    crowding, handling = (work.crowding, work.handling) if processes > 1 else (1.0, 0.0)
    compute = alone * crowding * slowest(processes, deviation)
    waiting = exposed(work, compute, processes, network)
    total = samples * processes
    costs = {
        "network": waiting,
        "slowest process": compute - alone * crowding,
        "shared caches": alone * (crowding - 1),
        "copies of gradients": handling,
    }
    seconds = compute + waiting + handling
    supplies = {
        "loader": samples / supply.loader,
        "requests to the store": total / supply.requests,
        "bandwidth of the store": total * work.sample_bytes / supply.bandwidth,
    }
    costs |= {name: least - seconds for name, least in supplies.items()}
    limit = max(costs, key=lambda name: costs[name])
    seconds = max(seconds, *supplies.values())
    return Prediction(processes, seconds, alone / seconds, limit)


# ---- figures ---------------------------------------------------------------------------------

WORKS = {
    "lenet5": Work(61_706, 1.7e-4, 2.7e-5, 1024, 2.5e-4, 1.0),
    "resnet20": Work(269_722, 4.1e-3, 9.7e-4, 3072, 6.5e-3, 1.1),
    "resnet18": Work(11_173_962, 2.7e-2, 8.4e-3, 3072, 5.4e-2, 1.0),
    "resnet50": Work(23_520_842, 4.6e-2, 3.53e-2, 3072, 0.134, 1.03),
}
"""Images of 32 x 32 pixels, processes with one thread of a 2-core AMD EPYC (Zen 5, AVX-512):
``NEEDLE_NUM_THREADS=1 python -m apps.bench.parallel`` with two batch sizes, two programs at once,
and under ``mpiexec -n 2``."""

NETWORKS = {
    "ethernet": Network(3e-5, 1.25e9),
    "infiniband": Network(2e-6, 2.5e10),
}
"""Machines on 10 Gbit/s Ethernet and 200 Gbit/s InfiniBand, by their nominal rates."""


def measure(group: Communicator, rounds: int = 30) -> dict[str, float]:
    """Return the latency (s) and the bandwidth (bytes/s) of all-reduces between two processes.

    Of two sizes, the median times give both: two processes exchange the array once.
    """
    sizes, times = (2, 1 << 20), []
    for size in sizes:
        array, found = np.zeros(size, np.float32), []
        for _ in range(rounds):
            group.barrier()
            began = time.perf_counter()
            group.all_reduce(array)
            found.append(time.perf_counter() - began)
        times.append(statistics.median(found))
    bandwidth = FLOAT * (sizes[1] - sizes[0]) / max(times[1] - times[0], 1e-9)
    return {"latency": times[0], "bandwidth": bandwidth}


# ---- the program -----------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    options = _parse(arguments)
    if options.measure:
        group = communicator()
        found = measure(group)
        if group.rank == 0:
            print(json.dumps(found))
        return
    print(table(options))
    if options.plot:
        plot(options)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="needle.distributed.model", description="Predict the efficiency of many processes."
    )
    add = parser.add_argument
    add("--measure", action="store_true", help="measure the network between 2 processes of mpiexec")
    add("--model", nargs="+", choices=WORKS, default=list(WORKS))
    add("--network", choices=NETWORKS, default="ethernet")
    add("--latency", type=float, help="seconds of a message (default: that of --network)")
    add("--bandwidth", type=float, help="bytes/s of a machine (default: that of --network)")
    add("--samples", type=int, default=64, help="of a process's batch (default: %(default)s)")
    add("--deviation", type=float, default=0.02, help="of step times, relative (%(default)s)")
    add("--loader", type=float, default=math.inf, help="samples/s of a process's workers")
    add("--requests", type=float, default=math.inf, help="samples/s of a store")
    add("--store-bandwidth", type=float, default=math.inf, help="bytes/s of a store")
    add("--plot", metavar="FILE", help="draw the curves, as SVG or PNG")
    return parser.parse_args(arguments)


def predictions(options: argparse.Namespace, network: Network) -> dict[str, list[Prediction]]:
    """Return for each model what is predicted for 1, 2, 4 ... 4096 processes."""
    supply = Supply(options.loader, options.requests, options.store_bandwidth)
    return {
        name: [
            predict(WORKS[name], options.samples, 2**k, network, supply, options.deviation)
            for k in range(13)
        ]
        for name in options.model
    }


def table(options: argparse.Namespace) -> str:
    """Return efficiencies as text, each with what costs most if it is below 90 %."""
    network = NETWORKS[options.network]
    latency, bandwidth = options.latency or network.latency, options.bandwidth or network.bandwidth
    found = predictions(options, replace(network, latency=latency, bandwidth=bandwidth))
    lines = [f"{options.samples} samples a process, network: {options.network}"]
    lines.append("processes" + "".join(f"{name:>28}" for name in found))
    for row in zip(*found.values()):
        cells = (
            f"{each.efficiency:.0%}" + (f" {each.limit}" if each.efficiency < 0.9 else "")
            for each in row
        )
        lines.append(f"{row[0].processes:>9}" + "".join(f"{cell:>28}" for cell in cells))
    return "\n".join(lines)


def plot(options: argparse.Namespace) -> None:
    """Draw efficiency over the number of processes, for each network."""
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, all_axes = pyplot.subplots(
        1, len(NETWORKS), figsize=(8, 3), sharey=True, layout="constrained"
    )
    for axes, (title, network) in zip(all_axes, NETWORKS.items()):
        for name, row in predictions(options, network).items():
            counts = [each.processes for each in row]
            axes.plot(counts, [each.efficiency for each in row], label=name)
        axes.set(title=title, xlabel="processes", ylim=(0, 1.05))
        axes.set_xscale("log", base=2)
    all_axes[0].set_ylabel("efficiency")
    all_axes[0].legend(frameon=False)
    figure.savefig(options.plot)


if __name__ == "__main__":
    main()
