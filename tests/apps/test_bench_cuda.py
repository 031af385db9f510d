"""Tests of the GPU benchmark: it runs on the emulated GPU and writes its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from apps.bench.cuda import __main__ as bench
from apps.bench.cuda.sides import SIDES
from needle import nn
from needle.backend_selection import BACKEND
from tests.cuda_on_cpu import emulated

pytestmark = pytest.mark.skipif(BACKEND == "np", reason="plain NumPy arrays have no backends")


@pytest.mark.skipif(emulated.module is None, reason="not built: CMake target cuda_on_cpu")
def test_pieces_are_timed_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "has_torch", lambda: False)
    asked = ["--quick", "--device", emulated.NAME, "--work", "relu,product,mirror", "--out"]
    assert bench.main([*asked, str(tmp_path)]) == 0
    rows = (tmp_path / "RESULTS.md").read_text(encoding="utf-8").splitlines()[6:]
    assert len(rows) == 4 and all(row.split("|")[2].strip() != "–" for row in rows)
    asked[4] = "product"
    assert bench.main([*asked, str(tmp_path), "--precision", "bf16"]) == 0
    page = (tmp_path / "RESULTS-bf16.md").read_text(encoding="utf-8")
    assert "TFLOP/s (bf16)" in page and "0.6 of PyTorch" in page
    assert bench.main(["--device", "cpu", "--precision", "bf16"]) == 1


@pytest.mark.skipif(emulated.module is None, reason="not built: CMake target cuda_on_cpu")
def test_a_run_that_is_cut_off_leaves_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "has_torch", lambda: False)
    asked = ["--quick", "--device", emulated.NAME, "--work", "relu,product", "--out", str(tmp_path)]
    whole = bench.measured

    def measured(piece: Any, *rest: Any) -> Any:
        if piece.flops:  # the second
            raise KeyboardInterrupt
        return whole(piece, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(bench, "measured", measured)
        bench.main(asked)
    rows = (tmp_path / "RESULTS.md").read_text(encoding="utf-8").splitlines()[6:]
    assert len(rows) == 1 and rows[0].startswith("| relu |")
    assert bench.main([*asked, "--seconds", "-1"]) == 0
    assert "--work relu,product of 32 x 32 measures the rest" in capsys.readouterr().out


@pytest.mark.skipif(emulated.module is None, reason="not built: CMake target cuda_on_cpu")
def test_a_step_is_fed_by_the_loader() -> None:
    side = SIDES["needle, captured"](emulated.NAME)
    place = needle.device(emulated.NAME)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 10, device=place))
    images = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3)).astype(np.uint8)
    step = side.fed_step(model, images, np.arange(8), 4)
    losses = {float(step().numpy()) for _ in range(5)}  # over the end of an epoch
    assert len(losses) == 5
    side.release()


def test_without_a_gpu_it_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    if bench.needle.cuda().enabled():
        pytest.skip("there is a GPU")
    assert bench.main([]) == 1
    assert capsys.readouterr().out.startswith("needle: cuda: ")
