"""The model of many processes, against sums that were done by hand, and its limits."""

from __future__ import annotations

import math

import pytest

from needle.distributed import Communicator, model
from needle.distributed.model import Network, Supply, Work, predict

QUICK = Network(0.0, math.inf, 1)
SLOW = Network(1e-3, 1e6, 1)
WORK = Work(250_000, 0.01, 0.001)


def test_the_costs_of_an_all_reduce() -> None:
    assert model.ring(4, 4e6, 1e-5, 1e9) == pytest.approx(6e-5 + 2 * 3 / 4 * 4e-3)
    assert model.tree(5, 4e6, 1e-5, 1e9) == pytest.approx(3 * (1e-5 + 4e-3))
    network = Network(1e-4, 1e9, 4, 1e-6, 1e10)
    inside = 2 * (1e-6 + 8e-4)  # two rounds, there and back
    assert model.hierarchical(8, 4e6, network) == pytest.approx(inside + 2 * (1e-4 + 2e-3))
    assert model.all_reduce(8, 4e6, network) == model.hierarchical(8, 4e6, network)
    assert model.all_reduce(1, 4e6, network) == 0


def test_one_process_and_a_perfect_network_lose_nothing() -> None:
    assert predict(WORK, 10, 1, SLOW, Supply(), 0.5).efficiency == 1
    assert predict(WORK, 10, 4096, QUICK, Supply(), 0.0).seconds == pytest.approx(0.02)


def test_only_the_last_bucket_is_exposed_if_the_network_keeps_up() -> None:
    """4 buckets of 1 MiB: one is sent while the next quarter of backward runs."""
    work = Work(1 << 20, 0.3, 0.0)
    network = Network(0.0, 2 * 2**20 / 0.05, 1)  # a bucket takes 0.05 s on two processes
    each = model.all_reduce(2, 2**20, network)
    assert predict(work, 1, 2, network, Supply(), 0.0).seconds == pytest.approx(0.3 + each)
    slow = Network(0.0, 2**20 / 0.2, 1)
    each = model.all_reduce(2, 2**20, slow)
    assert predict(work, 1, 2, slow, Supply(), 0.0).seconds == pytest.approx(0.15 + 4 * each)


def test_the_slowest_of_many() -> None:
    """The expected largest of 2, 10 and 100 normal numbers, from tables of order statistics."""
    for count, largest in ((2, 0.564), (10, 1.539), (100, 2.508)):
        assert model.slowest(count, 1.0) - 1 == pytest.approx(largest, abs=0.03)


@pytest.mark.parametrize(
    ("supply", "limit", "seconds"),
    [
        (Supply(loader=100), "loader", 0.1),
        (Supply(requests=500), "requests to the store", 160 / 500),
        (Supply(bandwidth=1e6), "bandwidth of the store", 160 * 3072 / 1e6),
    ],
)
def test_what_loads_samples_can_be_the_limit(supply: Supply, limit: str, seconds: float) -> None:
    found = predict(WORK, 10, 16, QUICK, supply, 0.0)
    assert found.limit == limit
    assert found.seconds == pytest.approx(seconds)


def test_the_network_is_the_limit_where_it_costs_most() -> None:
    found = predict(WORK, 10, 64, SLOW, Supply(), 0.02)
    assert found.limit == "network" and found.efficiency < 0.1
    assert predict(WORK, 10, 64, QUICK, Supply(), 0.02).limit == "slowest process"


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    model.main(["--model", "resnet18", "--requests", "1000"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [int(row.split()[0]) for row in rows] == [2**k for k in range(13)]
    assert rows[0].split()[1] == "100%"
    assert rows[-1].endswith("requests to the store")


def test_measuring_a_group_of_one_ends() -> None:
    assert model.measure(Communicator(), rounds=2)["latency"] > 0
