"""Run apps/train.py as users do: results, exact resuming, Ctrl-C, user errors."""

import asyncio
import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from apps import train as program
from apps import upload
from apps.models import build_model
from apps.training import run as run_module
from apps.training import sources
from apps.training.evaluation import Evaluation, evaluate
from apps.training.folder import CHECKPOINT
from apps.training.interruption import StopRequest
from apps.training.settings import build_optimizer, build_schedule
from needle import data, nn
from needle.backend_selection import BACKEND
from tests.remote.loopback_store import LoopbackStore

for package in program.PACKAGES:
    pytest.importorskip(package)

ROOT = Path(__file__).resolve().parents[2]
quick = pytest.mark.usefixtures("no_pictures")
pytestmark = pytest.mark.usefixtures("few")
SMALL = ["--data", "few", "--epochs", "3", "--batch-size", "16"]


def weights(folder: Path) -> dict[str, bytes]:
    loaded = needle.io.load(folder / "model.safetensors")
    return {name: array.tobytes() for name, array in loaded.items()}


def epochs(folder: Path) -> list[dict[str, str]]:
    """Return epochs.csv without times."""
    with open(folder / "epochs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if "second" not in k} for row in rows]


def records(folder: Path) -> list[tuple[str, ...]]:
    """Return metrics.csv without times."""
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [tuple(row[k] for k in ("type", "epoch", "value1", "value2")) for row in rows]


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int, within: str) -> None:
    """Send this process a SIGINT at the given call of a training step or an evaluation."""
    calls = 0
    owner: Any = run_module.Run if within == "_step" else run_module
    original = getattr(owner, within)

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == step:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(owner, within, counted)


# ---- results -------------------------------------------------------------------------------------


def test_a_run_leaves_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([*SMALL, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert len(re.findall(r"^epoch \d/3  loss", said, re.MULTILINE)) == 3
    assert "next steps:" in said
    rows = epochs(tmp_path)
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert float(rows[-1]["train_loss"]) < float(rows[0]["train_loss"])
    right = re.search(r"test accuracy ([\d.]+)% \((\d+) of 40 correct\)", said)
    assert right and float(rows[-1]["test_accuracy"]) == int(right[2]) / 40
    page = (tmp_path / "report.html").read_text()
    assert f"<strong>{right[1]}%</strong>" in page and page.count("<svg role") == 4
    assert page.count('<img class="pixels" src="data:image/png') == min(24, 40 - int(right[2]))
    before = weights(tmp_path)
    (tmp_path / "report.html").unlink()
    assert program.main(["--out", str(tmp_path), "--resume"]) == 0  # writes only the report
    assert (tmp_path / "report.html").exists() and weights(tmp_path) == before


@quick
def test_a_goal_decides_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*SMALL[:2], "--epochs", "1", "--out", str(tmp_path)]
    assert program.main([*asked, "--goal", "0.999"]) == 1
    assert "error: --goal: not reached: test accuracy " in capsys.readouterr().err
    assert program.main(["--out", str(tmp_path), "--resume", "--goal", "0"]) == 0


@quick
def test_the_same_seed_gives_the_same_run_another_one_not(tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert program.main([*SMALL, "--seed", seed, "--out", str(tmp_path / name)]) == 0
    assert epochs(tmp_path / "a") == epochs(tmp_path / "b") != epochs(tmp_path / "c")
    assert weights(tmp_path / "a") == weights(tmp_path / "b") != weights(tmp_path / "c")


@quick
@pytest.mark.parametrize("engine", [["--engine", "threads"], []])
def test_workers_change_nothing_but_who_prepares(tmp_path: Path, engine: list[str]) -> None:
    assert program.main([*SMALL, "--out", str(tmp_path / "alone")]) == 0
    threads = set(threading.enumerate())
    assert program.main([*SMALL, "--workers", "2", *engine, "--out", str(tmp_path / "two")]) == 0
    assert weights(tmp_path / "two") == weights(tmp_path / "alone")
    assert set(threading.enumerate()) <= threads


@quick
def test_digits_are_learnt_well_by_the_first_epochs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--epochs", "2", "--out", str(tmp_path)]) == 0
    assert float(epochs(tmp_path)[-1]["test_accuracy"]) >= 0.95


def test_evaluation_counts_exactly() -> None:
    logits = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 3.0], [0.0, 9.0, 0.0], [0.0, 0.1, 0.0]])
    found = Evaluation(0.0, logits, np.array([0, 1, 2, 0]))
    assert found.predicted.tolist() == [0, 1, 1, 1]
    assert found.correct == 2 and found.accuracy == 0.5
    assert found.confusion().tolist() == [[1, 1, 0], [0, 1, 0], [0, 1, 0]]
    assert found.mistakes().tolist() == [2, 3]


@pytest.mark.parametrize("flip", [False, True])
def test_a_mirrored_test_takes_the_mean_of_both_logits(flip: bool) -> None:
    rng = np.random.default_rng(0)
    images, weight = rng.standard_normal((7, 2, 3, 4)), rng.standard_normal((24, 5))
    labels, place = rng.integers(0, 5, 7), {"device": needle.cpu(), "dtype": "float64"}
    ids = {**place, "dtype": "int64"}
    model = nn.Sequential(nn.Flatten(), nn.Linear(24, 5, bias=False, **place))
    model.parameters()[0].data = needle.Tensor(weight, **place)
    batches = [
        (needle.Tensor(images[i : i + 3], **place), needle.Tensor(labels[i : i + 3], **ids))
        for i in (0, 3, 6)
    ]
    found = evaluate(model, batches, flip=flip)
    logits = images.reshape(7, 24) @ weight
    if flip:
        logits = (logits + images[..., ::-1].reshape(7, 24) @ weight) / 2
    np.testing.assert_allclose(found.logits, logits, rtol=1e-12)
    chosen = np.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    loss = (np.log(np.exp(logits).sum(axis=1)) - chosen).mean()
    assert found.loss == pytest.approx(loss, rel=1e-12) and found.labels.tolist() == labels.tolist()


def test_images_are_framed_or_resized() -> None:
    assert sources.fitting((28, 28), (28, 28)) is None
    assert sources.fitting((28, 28), (32, 32)) == data.Pad((2, 2))
    assert sources.fitting((8, 8), (32, 32)) == data.Resize((32, 32))
    assert sources.fitting((32, 32), (28, 28)) == data.Resize((28, 28))


# ---- stopping and resuming
# -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a whole run with these options, which several tests share."""
    folder = tmp_path_factory.mktemp("whole")
    return lambda name: folder / name


@quick
@pytest.mark.parametrize(
    "options",
    [
        ["--optimizer", "adam", "--lr", "0.01"],
        ["--optimizer", "sgd", "--lr", "0.01", "--ema", "0.9", "--accumulate", "3"]
        + ["--warmup", "0.5", "--schedule", "multi-step", "--label-smoothing", "0.1"],
    ],
    ids=["adam", "all extras"],
)
@pytest.mark.parametrize(
    ("step", "within"),
    [(1, "_step"), (7, "_step"), (10, "_step"), (2, "evaluate")],
    ids=["first batch", "mid-epoch", "last batch of an epoch", "evaluation"],
)
def test_a_resumed_run_gives_the_same_bits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    step: int,
    within: str,
    options: list[str],
    uninterrupted: Callable[[str], Path],
) -> None:
    arguments, whole = [*SMALL, *options], uninterrupted(options[1])
    if not whole.exists():
        assert program.main([*arguments, "--out", str(whole)]) == 0
    out = ["--out", str(tmp_path / "parts")]
    with monkeypatch.context() as patch:
        stop_at(patch, step, within)
        capsys.readouterr()
        assert program.main([*arguments, *out]) == 130
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].startswith("stopped; saved in ")
    assert "Traceback" not in said.err
    np.random.seed(99)  # a new process would have another random state
    assert program.main([*out, "--resume"]) == 0
    assert weights(tmp_path / "parts") == weights(whole)
    assert epochs(tmp_path / "parts") == epochs(whole)
    assert records(tmp_path / "parts") == records(whole)


@quick
@pytest.mark.parametrize("schedule", ["one-cycle", "multi-step"])
def test_an_extended_run_follows_the_schedule_of_the_new_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], schedule: str
) -> None:
    asked = [*SMALL, "--epochs", "2", "--schedule", schedule, "--warmup", "0.4"]
    found = []
    for name in ("a", "b"):
        out = ["--out", str(tmp_path / name)]
        assert program.main([*asked, *out]) == 0
        assert program.main([*out, "--resume", "--epochs", "4"]) == 0
        assert program.main([*out, "--resume"]) == 0  # resuming a finished run changes nothing
        found.append((weights(tmp_path / name), epochs(tmp_path / name)))
    assert found[0] == found[1]
    assert "2 epochs were planned, now 4: the learning rate goes on" in capsys.readouterr().out
    options = {"epochs": 4, "schedule": schedule, "warmup": 0.4}
    settings = program.new_settings(options, program.find_recipe("lenet5-digits"))
    optimizer = build_optimizer(settings, nn.Linear(2, 2).parameters())
    longer = build_schedule(settings, optimizer, 5)
    rates = [float(row["lr"]) for row in found[0][1]]
    assert rates[2:] == [longer.rate(step, settings.lr) for step in (15, 20)]
    facts = json.loads((tmp_path / "a" / "run.json").read_text())
    reached = {"after_step": 10, "lr": longer.rate(10, settings.lr)}
    assert facts["extensions"] == [{"from": 2, "to": 4, **reached}]


@quick
def test_a_run_extended_twice_is_one_run_if_its_rate_is_constant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constant = [*SMALL, "--schedule", "constant"]
    parts = ["--out", str(tmp_path / "parts")]
    with monkeypatch.context() as patch:
        stop_at(patch, 3, "_step")  # stops in the middle of the first epoch
        assert program.main([*constant, "--epochs", "1", *parts]) == 130
    for count in ("2", "4"):
        assert program.main([*parts, "--resume", "--epochs", count]) == 0
    assert program.main([*constant, "--epochs", "4", "--out", str(tmp_path / "four")]) == 0
    for read in (weights, epochs, records):
        assert read(tmp_path / "parts") == read(tmp_path / "four")
    facts = json.loads((tmp_path / "parts" / "run.json").read_text())
    assert [(e["from"], e["to"], e["after_step"]) for e in facts["extensions"]] == [
        (1, 2, 3),
        (2, 4, 10),
    ]


def test_weights_of_another_model_are_described_in_three_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = build_model("lenet5", num_classes=3, device=needle.cpu())
    names = [*model.state_dict()]
    file = tmp_path / "three.safetensors"
    needle.io.save(file, model.state_dict())
    options = ["--weights", str(file), "--limit", "20", "--epochs", "1", "--no-report"]
    assert program.main([*options, "--out", str(tmp_path / "a")]) == 1
    lines = capsys.readouterr().err.splitlines()
    last = f"{names[-2]} (84, 3) instead of (84, 10)"
    assert lines == [
        f"error: {file} is of another model: {len(names) - 2} of {len(names)} arrays match",
        f"  2 of another shape, such as {last}",
        "  give --only-matching to load these alone, or the --model that the file was saved from",
    ]
    assert program.main([*options, "--only-matching", "--out", str(tmp_path / "b")]) == 0
    assert f"{len(names) - 2} of {len(names)} arrays loaded from" in capsys.readouterr().out


@pytest.mark.usefixtures("interruptible")
def test_a_second_signal_stops_at_once() -> None:
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_in_a_process_of_its_own(tmp_path: Path) -> None:
    """Test Ctrl-C from the shell: one line, exit code 130, and a checkpoint to resume."""
    started = subprocess.Popen(
        [sys.executable, str(ROOT / "apps" / "train.py"), "--out", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    for line in started.stdout:
        if line.startswith("epoch"):
            break
    started.send_signal(signal.SIGINT)
    out, errors = started.communicate(timeout=120)
    assert started.returncode == 130
    assert errors == ""
    assert out.splitlines()[-1].startswith("stopped; saved in ")
    assert needle.io.checkpoint_extra(tmp_path / CHECKPOINT)["progress"]["epochs_done"] >= 1


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_modules_load_leaves_no_traceback() -> None:
    command = [sys.executable, "-X", "importtime", str(ROOT / "apps" / "train.py")]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:  # one line per loaded module
        if line.endswith("numpy.version\n"):
            process.send_signal(signal.SIGINT)
            break
    _, rest = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and "Traceback" not in rest


def test_ctrl_c_where_python_would_lose_it_ends_the_program() -> None:
    """Test Ctrl-C in a destructor, where Python prints the exception and continues."""
    code = (
        "import sys; from apps.training.interruption import end_if_interrupted as hook\n"
        "class Kept:\n    def __del__(self): raise self.error\n"
        "kept, sys.unraisablehook = Kept(), hook\n"
        "kept.error = {'v': ValueError, 'k': KeyboardInterrupt}[sys.argv[1]]\n"
        "del kept; print('went on')"
    )
    ends = {}
    for name in "vk":
        command = [sys.executable, "-c", code, name]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        ends[name] = ended.returncode, ended.stdout.strip(), "Traceback" in ended.stderr
    assert ends == {"v": (0, "went on", True), "k": (130, "stopped; nothing new was saved", False)}


# ---- user errors
# -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "lenet"], "unknown model 'lenet'; known: .*Did you mean 'lenet5'"),
        (["--data", "minst"], "unknown data set 'minst'; known: .*Did you mean 'mnist'"),
        (["--device", "cpus"], "unknown device 'cpus'; known: .*Did you mean 'cpu'"),
        (["--optimizer", "adma"], "unknown optimizer 'adma'; known: .*Did you mean 'adam"),
        (["--schedule", "cosin"], "unknown schedule 'cosin'; known: .*Did you mean 'cosine'"),
        (["--data", "mnist", "--data-dir", "/nowhere"], "/nowhere.*--data-dir DIR, --download"),
        (["--out", "/dev/null/runs"], "--out: /dev/null/runs must be a writable folder"),
        (["--engine", "threads"], "--engine: threads needs at least one worker, got --workers 0"),
        (["--engine", "thread", "--workers", "1"], "unknown engine 'thread'.*mean 'threads'"),
        (["--precision", "bf16"], "--precision: cpu multiplies in float32, got bf16; leave out"),
        (["--resume"], "--resume: there is no run to continue"),
        (["--lr", "1e30", "--optimizer", "sgd"], "loss must stay finite.*lower --lr"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert program.main([*SMALL, "--out", str(tmp_path / "out"), *arguments]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ") and re.search(message, line)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "0"],
        ["--lr", "nan"],
        ["--batch-size", "x"],
        ["--seed", "-1"],
        ["--seed", str(2**32)],
        ["--weight-decay", "-1"],
        ["--weight-decay", "inf"],
        ["--workers", "-1"],
    ],
)
def test_numbers_out_of_range(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        program.main(arguments)
    assert stopped.value.code == 2 and arguments[0] in capsys.readouterr().err


@quick
@pytest.mark.parametrize(
    ("options", "trained"),
    [
        (["--limit", "33", "--batch-size", "32"], 32),
        (["--limit", "33", "--batch-size", "32", "--virtual-replicas", "2"], 32),
        (["--limit", "35", "--batch-size", "16", "--accumulate", "2"], 32),
        (["--limit", "36", "--batch-size", "16", "--accumulate", "2"], 36),
        (["--limit", "33", "--batch-size", "11", "--accumulate", "11"], 0),
        (["--limit", "32", "--batch-size", "16", "--virtual-replicas", "16"], 0),
    ],
)
def test_batch_norm_beside_too_few_samples_is_told_before_the_first_epoch(
    options: list[str], trained: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--data", "digits", "--model", "mlp_resnet", "--epochs", "1", *options]
    assert program.main([*asked, "--out", str(tmp_path)]) == (0 if trained else 1)
    told = capsys.readouterr()
    limit = int(options[1])
    assert ("leaves out" in told.out) == (0 < trained < limit)
    if trained:
        shown = [row for row in records(tmp_path) if row[0] == "2"]
        assert len(shown) == -(-trained // int(options[3]))
    else:
        assert "epoch 1/1" not in told.out
        assert "--batch-size: " in told.err and "BatchNorm" not in told.err


@quick
def test_a_last_image_alone_is_trained_on_where_batch_norm_has_its_pixels(tmp_path: Path) -> None:
    asked = ["--data", "digits", "--model", "resnet20", "--epochs", "1", "--out", str(tmp_path)]
    assert program.main([*asked, "--limit", "33", "--batch-size", "32"]) == 0
    assert len([row for row in records(tmp_path) if row[0] == "2"]) == 2


def test_a_run_is_not_resumed_with_other_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path)]
    assert program.main([*SMALL, *out]) == 0
    for option, value in (("--seed", "5"), ("--model", "mlp_resnet")):
        assert program.main([*out, "--resume", option, value]) == 1
        assert f"--resume: the run was started with {option}" in capsys.readouterr().err
    assert program.main([*out, "--resume", "--epochs", "1"]) == 1
    assert "at least the 3 epochs that the run has trained, got 1" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / CHECKPOINT).write_bytes(b"not a checkpoint")
    assert program.main(["--out", str(tmp_path), "--resume"]) == 1
    assert "truncated, corrupt or not a safetensors file" in capsys.readouterr().err


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackStore]:
    """Start a web server with the digits at /site, without a local cache."""
    pytest.importorskip("aiohttp")
    pytest.importorskip("fsspec")
    monkeypatch.setenv("NEEDLE_CACHE_BYTES", "0")
    upload.put("few", str(tmp_path / "site"), False, tmp_path)
    files = [path for path in (tmp_path / "site").rglob("*") if path.is_file()]
    with LoopbackStore() as store:
        for path in files:
            store.objects[f"site/{path.relative_to(tmp_path / 'site')}"] = path.read_bytes()
        yield store


def lose(store: LoopbackStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test a store that fails from the middle of the second epoch on."""
    step = run_module.Run._step

    def lost(run: Any, *batch: Any) -> float:
        store.down = store.down or (run.progress.epochs_done, run.progress.batches) == (1, 2)
        return step(run, *batch)

    monkeypatch.setattr(run_module.Run, "_step", lost)


@quick
@pytest.mark.skipif(BACKEND == "np", reason="reading data is the same in both modes")
def test_a_store_lost_for_a_minute_costs_nothing_one_that_stays_away_leaves_a_checkpoint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    site: LoopbackStore,
) -> None:
    """Test the retries of a run with a simulated clock."""
    given = [*SMALL, "--source", f"{site.endpoint}/site"]
    assert program.main([*given, "--out", str(tmp_path / "whole")]) == 0
    waited: defaultdict[Any, float] = defaultdict(float)
    plain = data.Retry.pause

    def pause(retry: data.Retry, attempts: int) -> float:
        request = asyncio.current_task()
        waited[request] += plain(retry, attempts)
        site.down &= waited[request] < 60
        return 0.0

    monkeypatch.setattr(data.Retry, "pause", pause)
    with monkeypatch.context() as patch:
        lose(site, patch)
        assert program.main([*given, "--out", str(tmp_path / "minute")]) == 0
    assert 60 <= max(waited.values()) < 90
    with monkeypatch.context() as patch:
        lose(site, patch)
        patch.setattr(data.Retry, "pause", lambda *_: 0.0)
        capsys.readouterr()
        assert program.main([*given, "--out", str(tmp_path / "lost")]) == 1
        said = capsys.readouterr().err
        assert re.search(r"error: get http.*attempt 14 of 14; check the network", said)
        assert f"--out {tmp_path / 'lost'} --resume" in said
    site.down = False
    assert program.main(["--out", str(tmp_path / "lost"), "--resume"]) == 0
    for name in ("minute", "lost"):
        assert weights(tmp_path / name) == weights(tmp_path / "whole")
        assert epochs(tmp_path / name) == epochs(tmp_path / "whole")
