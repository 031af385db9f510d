"""Test the comparison with PyTorch: its statistics, every workload, and its pages.

A peer that is not installed is a message, not an error."""

from typing import Any

import numpy as np
import pytest

from apps.bench.against import tables
from apps.bench.against.__main__ import BENCHMARK
from apps.bench.against.sides import CONTESTANTS, Needle
from apps.bench.against.study_models import training_flops
from apps.bench.harness import report
from apps.bench.harness.case import PEAK
from apps.bench.harness.settings import Settings
from apps.bench.harness.turns import Outcome, Result
from apps.profiling import limits
from needle import config
from needle.backend_selection import BACKEND
from tests.cuda_on_cpu import emulated

pytestmark = pytest.mark.usefixtures("programs_find_us")
STUDIES = BENCHMARK.studies
QUICK = Settings(BENCHMARK.module, quick=True, rounds=1)


def measured() -> Result:
    """Return made-up measurements: three rounds of a product, and a case that no peer finished."""
    outcomes = {
        "needle": {"64 × 64 × 64": [1.0, 2.0, 4.0], "8 × 8 × 8": [1.0] * 3},
        "PyTorch, eager": {"64 × 64 × 64": [2.0, 2.0, 2.0]},
        "PyTorch, channels last": {"64 × 64 × 64": [3.0, 3.0, 3.0]},
    }
    found = {name: Outcome(name, values) for name, values in outcomes.items()}
    machine = Outcome("machine", {"gflops": [1.0, 2.0]})
    return Result("matmul, 2 threads", found, limits=Result("limits", {"machine": machine}))


def test_ratios_are_paired_and_against_the_fastest() -> None:
    result = measured()
    assert tables.pieces_of(result) == ["64 × 64 × 64", "8 × 8 × 8"]
    assert tables.duel(result, "64 × 64 × 64") == ("needle", "PyTorch, eager")
    assert tables.ratios(result, *tables.duel(result, "64 × 64 × 64"), "64 × 64 × 64") == [
        2.0,
        1.0,
        0.5,
    ]
    assert tables.ratios(result, *tables.duel(result, "8 × 8 × 8"), "8 × 8 × 8") == []


def test_rates_are_shares_of_the_best_measured_limit() -> None:
    flops = STUDIES["matmul"].flops
    speed, share = tables.rate(measured(), "64 × 64 × 64", flops, None)
    assert speed == pytest.approx(2 * 64**3 / 2e-3 / 1e9)
    assert share == pytest.approx(speed / 2)
    targets = STUDIES["matmul"].targets(measured())
    assert (targets[0].value, targets[0].reached) == (1.0, True)
    assert targets[1].value == pytest.approx(2 * 8**3 / 1e-3 / 1e9 / 2)


def test_a_peak_measured_beside_each_sample_is_the_limit_of_its_round() -> None:
    result, flops, piece = measured(), STUDIES["matmul"].flops, "64 × 64 × 64"
    result.outcomes["needle"].values[piece + PEAK] = [4.0, 1.0, 1.0]
    assert tables.pieces_of(result) == [piece, "8 × 8 × 8"]
    speed, share = tables.rate(result, piece, flops, None)
    work = 2 * 64**3 / 1e9
    assert speed == pytest.approx(work / 2e-3) and share == pytest.approx(work / 4e-3)


@pytest.mark.skipif(limits.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("threads", [1, 2])
def test_the_peak_of_this_moment(threads: int) -> None:
    peak = limits.peak_now(threads)
    assert peak is not None and 0.1 < peak() < 1e5


@pytest.mark.skipif(BACKEND != "nd", reason="plain NumPy has no kernels to count")
def test_arithmetic_of_the_models_is_the_known_one() -> None:
    assert training_flops("resnet20", 3) / 6 == pytest.approx(40.55e6, rel=0.01)
    assert training_flops("lenet5", 1) == 6 * (117_600 + 240_000 + 48_000 + 10_080 + 840)


@pytest.mark.skipif(BACKEND != "nd", reason="needs needle's own arrays")
def test_both_sides_compute_the_same() -> None:
    pytest.importorskip("torch")
    random = np.random.default_rng(0)
    x, weight, grad = (
        random.standard_normal(shape).astype(np.float32)
        for shape in ((2, 4, 6, 6), (8, 2, 3, 3), (2, 8, 3, 3))
    )
    geometry = {"stride": 2, "padding": 1, "groups": 2}
    ours = Needle("cpu_numpy")
    for name in ("PyTorch, eager", "PyTorch, channels last"):
        theirs = CONTESTANTS[name](QUICK)
        for i, way in enumerate(("forward", "input gradient", "weight gradient")):
            made: list[Any] = []
            for side in (ours, theirs):
                arguments = side.images(x), side.weight(weight), side.images(grad)
                made.append(side.conv2d(way, *arguments, **geometry)())
            theirs_alone = made[1] if i == 0 else made[1][i - 1]
            np.testing.assert_allclose(made[0].numpy(), theirs_alone.numpy(), rtol=1e-4, atol=1e-5)


def test_a_machine_without_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "compiler", lambda: None)
    with pytest.raises(RuntimeError, match="needs a C\\+\\+ compiler"):
        limits.measure(1)
    assert limits.peak_now(1) is None


GPU = Settings(BENCHMARK.module, quick=True, rounds=1, device=emulated.NAME)


@pytest.mark.skipif(
    BACKEND != "nd" or emulated.module is None, reason="not built: CMake target cuda_on_cpu"
)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_work_runs_on_a_gpu(precision: str) -> None:
    with config.matmul_precision.using(precision):
        for work in ("matmul", "conv2d", "memory", "inference", "limits"):
            cases = STUDIES[work].cases(GPU)
            assert not [case.name for case in cases if "ONNX" in case.name]
            result = Result(f"{work}, 1 thread")
            for case in cases:
                if case.name in ("needle", "machine"):
                    numbers = case.open(GPU).run()
                    assert numbers and all(value > 0 for value in numbers.values())
                    result.outcomes[case.name] = Outcome(
                        case.name, {k: [v] for k, v in numbers.items()}
                    )
            assert any("|" in line for line in report.tables_of(STUDIES[work], result))
