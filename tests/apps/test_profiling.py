"""Test profiles and comparisons of runs: time and work per layer, without side effects."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from apps import plot, profile_layers
from apps import train as program
from apps.models import build_model
from apps.profiling import (
    Profile,
    layer_rows,
    layer_table,
    profile_inference,
    profile_step,
    write_trace,
)
from needle import nn
from needle.backend_selection import BACKEND

pytestmark = pytest.mark.skipif(BACKEND != "nd", reason="plain NumPy has no kernels to listen to")
BATCH = 4


def lenet(device: Any) -> tuple[nn.Module, needle.Tensor, needle.Tensor]:
    np.random.seed(0)
    pixels = np.random.default_rng(0).standard_normal((BATCH, 1, 32, 32))
    images = needle.Tensor(pixels, device=device, dtype="float32", requires_grad=False)
    return (
        build_model("lenet5", device=device),
        images,
        needle.Tensor(np.arange(BATCH), device=device, dtype="int64"),
    )


@pytest.fixture(scope="module")
def profile() -> Profile:
    model, *batch = lenet(needle.cpu())
    return profile_step(model, *batch, needle.optim.SGD(model.parameters(), 0.01))


def test_operations_are_those_of_the_layers(profile: Profile) -> None:
    """Compare LeNet-5's operations with its sizes: two per multiply-add."""
    rows = {row["layer"]: row for row in layer_rows(profile)}
    first, second = 28 * 28 * 6 * 25, 10 * 10 * 16 * 25 * 6
    linear = {"classifier.1": 400 * 120, "classifier.3": 120 * 84, "classifier.5": 84 * 10}

    def kernels(layer: str, phase: str, *names: str) -> int:
        return sum(
            c.operations
            for c in profile.calls
            if (c.layer, c.phase) == (layer, phase) and c.kernel in names
        )

    assert kernels("features.0", "forward", "conv2d") == 2 * BATCH * first
    assert kernels("features.3", "forward", "conv2d") == 2 * BATCH * second
    grads = "conv2d_input_grad", "conv2d_weight_grad"
    assert kernels("features.0", "backward", *grads) == 2 * BATCH * first  # images need no gradient
    assert kernels("features.3", "backward", *grads) == 4 * BATCH * second
    for layer, size in linear.items():
        assert kernels(layer, "forward", "matmul") == 2 * BATCH * size
        assert kernels(layer, "backward", "matmul") == 4 * BATCH * size
    weight_bytes = 4 * 400 * 120
    assert rows["classifier.1"]["forward_bytes"] > weight_bytes


def test_inference_is_measured_in_evaluation_mode_and_builds_no_graph() -> None:
    model, images, labels = lenet(needle.cpu())
    seen = []
    last = [module for _, module in model.named_modules()][-1]
    forward = last.forward
    last.forward = lambda x: seen.append((last.training, x.requires_grad)) or forward(x)
    profile = profile_inference(model, images, labels)
    assert seen == [(False, False)] * 2 and model.training
    rows = {row["layer"]: row for row in layer_rows(profile)}
    assert {"features.0", "loss"} <= rows.keys()
    assert all(row["backward_ms"] == 0 for row in rows.values())
    assert sum(row["forward_ms"] for row in rows.values()) == pytest.approx(1e3 * profile.seconds)


def test_all_time_belongs_to_someone(profile: Profile) -> None:
    starts = np.array([span.start for span in profile.spans])
    ends = starts + [span.seconds for span in profile.spans]
    np.testing.assert_allclose(starts, [0, *ends[:-1]], rtol=0, atol=1e-9)
    assert ends[-1] == pytest.approx(profile.seconds, rel=0, abs=1e-9)
    for call in profile.calls:
        inside = [s for s in profile.spans if s.start <= call.start <= s.start + s.seconds]
        assert any((s.layer, s.phase) == (call.layer, call.phase) for s in inside)
    layers = [row["layer"] for row in layer_rows(profile)]
    names = [f"features.{i}" for i in (0, 2, 3, 5)] + [f"classifier.{i}" for i in (0, 1, 3, 5)]
    assert [layer for layer in layers if layer in names] == names and "loss" in layers
    assert {c.phase for c in profile.calls} == {"forward", "backward", "optimizer"}


def test_listening_changes_no_bit_and_leaves_nothing(device: Any) -> None:
    found = []
    for watched in (True, False):
        model, images, labels = lenet(device)
        if watched:
            profile_step(model, images, labels, warm_up=0)
        else:
            nn.CrossEntropyLoss()(model(images), labels).backward()
        found.append([p.grad.numpy() for p in model.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert "matmul" not in vars(device.backend)
    assert all("forward" not in vars(module) for _, module in lenet(device)[0].named_modules())


def test_the_trace_is_one_that_viewers_read(profile: Profile, tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.json", profile)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    whole = [event for event in events if event["ph"] == "X"]
    assert len(whole) == len(profile.calls) + len(profile.spans)
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in whole)
    conv = next(event for event in whole if event["name"] == "conv2d")
    assert conv["args"]["layer"] == "features.0" and conv["cat"] == "forward"


def test_the_table_shows_shares_of_the_peak(profile: Profile) -> None:
    text = layer_table(profile, {"gflops": 1e-3, "gbs large": 1e9})
    line = next(line for line in text.splitlines() if line.startswith("| features.3 |"))
    assert line.endswith("% flops |") and "Conv2d(6, 16" in line
    cells = [cell.strip() for cell in line.split("|")]
    row = next(row for row in layer_rows(profile) if row["layer"] == "features.3")
    for phase, flop, moved in (("forward", 5, 8), ("backward", 6, 9)):
        assert float(cells[flop]) == pytest.approx(row[f"{phase}_operations"] / 1e6, abs=0.006)
        assert float(cells[moved]) == pytest.approx(row[f"{phase}_bytes"] / 1e6, abs=0.006) != 0
    assert "% memory |" in layer_table(profile, {"gflops": 1e9, "gbs large": 1e-3})
    assert "%" not in layer_table(profile)


def test_profile_layers_has_a_column_a_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    module = needle.cpu().backend.module
    threads, asked = module.num_threads(), ["--batch-sizes", "1,3", "--repeats", "1"]
    module.set_num_threads(2)
    try:
        assert profile_layers.main(asked) == 0
        said = capsys.readouterr().out
        assert module.num_threads() == 2
        assert profile_layers.main([*asked, "--fused", "--devices", "cpu,unknown"]) == 1
        module.set_num_threads(1)
        assert profile_layers.main([*asked, "--fused", "--devices", "cpu"]) == 0
    finally:
        module.set_num_threads(threads)
    assert said.count("| layer | kind | cpu_numpy | cpu (1 thread) | cpu |") == 2
    for layer in ("Conv2d(", "ReLU()", "MaxPool2d(", "Linear(", "CrossEntropyLoss("):
        row = next(line for line in said.splitlines() if f"| {layer}" in line)
        cells = [[float(ms) for ms in cell.split("/")] for cell in row.split("|")[3:6]]
        assert all(len(cell) == 3 and min(cell) > 0 for cell in cells)
    assert said.count("loss and gradients of cpu differ by ") == 2
    assert said.count("from those of cpu_numpy (at most 0.001)") == 2
    fused = capsys.readouterr().out
    assert "| layer | kind | cpu |" in fused and "ReLU()" not in fused
    assert profile_layers.main(["--devices", "cpus"]) == 1
    assert "unknown device 'cpus'" in capsys.readouterr().err


@pytest.mark.skipif(BACKEND == "np" or needle.cuda().enabled(), reason="no cuda device is missing")
def test_profile_layers_leaves_out_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    asked, reason = ["--batch-sizes", "1", "--repeats", "1", "--devices"], needle.cuda().why()
    assert profile_layers.main([*asked, "cpu,cuda"]) == 0
    assert f"cuda is left out: {reason}" in capsys.readouterr().out
    assert profile_layers.main([*asked, "cuda"]) == 1
    assert f"cuda is left out: {reason}" in capsys.readouterr().err


def test_profile_layers_draws_and_refuses_results_that_differ(
    tmp_path: Path, monkeypatch: Any
) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "layers.png"
    asked = ["--batch-sizes", "1", "--repeats", "1", "--picture", str(picture)]
    monkeypatch.setattr(profile_layers, "LARGEST_DIFFERENCE", 0.0)
    assert profile_layers.main(asked) == 1
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_run_is_the_same_with_a_profile(tmp_path: Path, monkeypatch: Any) -> None:
    for package in program.PACKAGES:
        pytest.importorskip(package)
    monkeypatch.setattr(program, "write_report", lambda *arguments: None)
    monkeypatch.setattr(program.limits, "measure", lambda *a: {"gflops": 1.0, "gbs large": 1.0})
    for name, more in (("a", ["--profile"]), ("b", [])):
        arguments = ["--epochs", "1", "--batch-size", "256", "--out", str(tmp_path / name), *more]
        assert program.main(arguments) == 0
    states = [needle.io.load(tmp_path / name / "model.safetensors") for name in "ab"]
    for name, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][name])
    assert "Conv2d(1, 6" in (tmp_path / "a" / "profile.md").read_text()
    assert (tmp_path / "a" / "trace.json").exists()


def test_plots_compare_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    for name, workers in (("a", 0), ("b", 2)):
        (tmp_path / name).mkdir()
        facts = {"settings": {"model": "m", "data": "d"}, "workers": {"count": workers}}
        (tmp_path / name / "run.json").write_text(json.dumps(facts))
        columns = "type,epoch,start,loading,duration,value1,value2,"
        rows = [
            "2,1,0,9,9,1,2,0,0,",
            f"0,1,0,{1 + workers},10,0.5,0.9,0,0,",
            "1,1,0,0,1,0.6,1,0,0,",
        ]
        rows += [f"0,2,0,{3 + workers},10,0.5,0.9,0,0,", "1,2,0,0,1,0.55,1,0,0,"]
        text = "\n".join([columns + "loading_since_start,duration_since_start,note", *rows])
        (tmp_path / name / "metrics.csv").write_text(text + "\n")
    runs = [plot.read_run(tmp_path / name) for name in "ab"]
    assert [run.label for run in runs] == ["m, d, 0 workers", "m, d, 2 workers"]
    assert [(run.loading, run.computing) for run in runs] == [(2, 8), (4, 6)]
    _, axes = plot.figure_of(width=4, height=3)
    plot.draw_bars(axes, [runs[1], replace(runs[0], source="e"), runs[0]])
    bars = [(b.get_x() + b.get_width() / 2, b.get_y(), b.get_height()) for b in axes.patches]
    assert bars == [
        *[(0, 0, 2), (1, 0, 4), (2 + plot.GAP, 0, 2)],
        *[(0, 2, 8), (1, 4, 6), (2 + plot.GAP, 2, 8)],
    ]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "2", "0"]
    assert [text.get_text() for text in axes.child_axes[0].get_xticklabels()] == ["m, d", "e"]
    out = tmp_path / "picture.png"
    assert plot.main([str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    assert "60.00%" in capsys.readouterr().out
    (tmp_path / "a" / "metrics.csv").write_text("type,epoch\n")
    assert plot.main([str(tmp_path / "a")]) == 1
    assert "has no complete epoch yet" in capsys.readouterr().err
    assert plot.main([str(tmp_path)]) == 1
    assert "is not a run of apps/train.py" in capsys.readouterr().err
    assert math.isfinite(runs[0].loading)
