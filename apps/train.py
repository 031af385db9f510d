"""Trains a model on a data set: python apps/train.py --model lenet5 --data digits

Reads the command line, says what happens and writes the report; the run itself is in training/.
Exit codes: 0 done, 1 a mistake (one line says which), 2 an option that cannot be read, 130
stopped by Ctrl-C (saved).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until main() can answer it with a line, Ctrl-C ends the program without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
if not __package__:  # run as a file: the folder above is where apps.training is found
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
if importlib.util.find_spec("needle") is None:
    sys.exit("apps/train.py: needle is not installed; make train, or pip install '.[train]' here")

import needle
from apps.models import MODELS, find_model
from apps.training.interruption import Interrupted, StopRequest
from apps.training.report import write_metrics, write_report
from apps.training.run import Progress, Run
from apps.training.settings import OPTIMIZERS, SCHEDULES, Settings, resumed
from apps.training.sources import SOURCES, Workers, find_source
from needle import config
from needle.errors import CheckpointError, DataError, NeedleError

PACKAGES = ("matplotlib", "safetensors", "tqdm")
CHECKPOINT, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"


def parser() -> argparse.ArgumentParser:
    """The command line. An option that is not given is None: the data set's recipe decides."""
    result = argparse.ArgumentParser(
        prog="apps/train.py", description="Trains a model and reports how good it became."
    )
    add = result.add_argument
    add("--model", help=f"{', '.join(sorted(MODELS))} (default: lenet5)")
    add("--data", help=f"{', '.join(sorted(SOURCES))} (default: digits, which needs no download)")
    add("--data-dir", type=Path, help="where the data set's files are (default: data)")
    add("--download", action="store_true", help="fetch the data set if it is not there")
    add("--device", help="cpu (compiled kernels; the default) or cpu_numpy")
    add("--epochs", type=_positive(int))
    add("--batch-size", type=_positive(int))
    add("--lr", type=_positive(float), help="learning rate (the highest, where it changes)")
    add("--optimizer", help=", ".join(OPTIMIZERS))
    add("--schedule", help=f"learning rate over the run: {', '.join(SCHEDULES)}")
    add("--weight-decay", type=_number(float, "0 or more", lambda x: 0 <= x < math.inf))
    in_range = _number(int, "0 to 2**32 - 1", lambda x: 0 <= x < 2**32)
    add("--seed", type=in_range, help="of weights, order and augmentation (default: 0)")
    add(
        "--workers",
        type=_number(int, "0 or more", lambda x: x >= 0),
        default=0,
        help="that prepare batches (default: 0, the program itself); the batches are the same",
    )
    add("--engine", help="what the workers are: processes (the default) or threads")
    add("--out", type=Path, help="folder for what comes out (default: runs/MODEL-DATA)")
    add("--resume", action="store_true", help="go on with the run in --out")
    return result


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    try:
        return train(vars(parser().parse_args(arguments)))
    except Interrupted as stop:
        return stop.exit_code
    except KeyboardInterrupt:
        print("\nstopped; nothing new was saved")
        return 130
    except (NeedleError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def train(options: dict[str, Any]) -> int:
    """Everything between the command line and the exit code."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"training needs {', '.join(missing)}; pip install 'needle[train]'")
    data_dir = options.pop("data_dir") or Path(config.DATA_DIR.read())
    download, resume, out = (options.pop(name) for name in ("download", "resume", "out"))
    workers = _workers(options.pop("workers"), options.pop("engine"))
    out = out or Path("runs", f"{options['model'] or 'lenet5'}-{options['data'] or 'digits'}")
    checkpoint = out / CHECKPOINT
    settings = _saved_settings(checkpoint, options) if resume else new_settings(options)
    try:
        run = Run(settings, data_dir, download, workers)
    except DataError as error:
        raise DataError(f"{error} (on this command line: --data-dir DIR, --download)") from error
    with contextlib.closing(run):
        _make_folder(out)
        if resume:
            run.resume(checkpoint)
        else:
            _keep_unfinished(checkpoint)
        _say_start(run, resume)
        seconds = _train(run, out, checkpoint)
    _finish(run, out, seconds)
    return 0


def _train(run: Run, out: Path, checkpoint: Path) -> float:
    """All epochs that are left; the seconds they took."""
    started = time.perf_counter()

    def after_epoch(progress: Progress) -> None:
        write_metrics(out / "metrics.csv", progress.history)
        print(_epoch_line(progress.history[-1], run.settings.epochs), flush=True)

    with StopRequest() as stop:
        try:
            run.train(checkpoint, stop, after_epoch)
        except Interrupted:
            again = command(f"--out {out} --resume")
            print(f"stopped; saved in {checkpoint}; go on with: {again}")
            raise
    return time.perf_counter() - started


def _workers(count: int, engine: str | None) -> Workers:
    if engine is not None and not count:
        raise NeedleError(
            f"--engine: {engine} has to have workers, got --workers 0; give --workers 2"
        )
    return Workers(count, engine)


def _make_folder(out: Path) -> None:
    """Now, not after an epoch, is the time to learn that nothing can be written there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise NeedleError(
            f"--out: {out} must be a folder that can be written to, got {error.strerror}; give "
            "another one"
        ) from error


def new_settings(options: dict[str, Any]) -> Settings:
    """The given options, then the data set's recipe, then the defaults."""
    given = {name: value for name, value in options.items() if value is not None}
    names = {"model": "lenet5", "data": "digits", "device": "cpu", "seed": 0, **given}
    find_model(names["model"])
    recipe = find_source(names["data"]).recipe
    return Settings(**{**vars(recipe), **names})


def _saved_settings(checkpoint: Path, options: dict[str, Any]) -> Settings:
    if not checkpoint.is_file():
        raise CheckpointError(
            f"--resume: no run to go on with, there is no {checkpoint}; give the --out of an "
            "earlier run, or leave --resume out"
        )
    extra = needle.io.checkpoint_extra(checkpoint)
    if "settings" not in extra or "progress" not in extra:
        raise CheckpointError(f"--resume: {checkpoint} was not saved by apps/train.py")
    return resumed(extra["settings"], options)


def _keep_unfinished(checkpoint: Path) -> None:
    """A run that was not finished is set aside before a new one takes its place."""
    if not checkpoint.is_file():
        return
    try:
        extra = needle.io.checkpoint_extra(checkpoint)
        unfinished = extra["progress"]["epochs_done"] < extra["settings"]["epochs"]
    except (CheckpointError, KeyError):
        unfinished = True
    if unfinished:
        checkpoint.replace(checkpoint.with_name(PREVIOUS))
        print(
            f"an unfinished run was in {checkpoint}; it is now {PREVIOUS} beside it "
            "(--resume goes on with a run)"
        )


def _say_start(run: Run, resume: bool) -> None:
    s, count = run.settings, sum(p.size for p in run.model.parameters())
    print(
        f"{s.model} ({count:,} parameters) on {s.data}: {run.samples:,} training and "
        f"{len(run.test):,} test images, device {s.device}"
    )
    print(
        f"{s.optimizer}, lr {s.lr:g} {s.schedule}, batches of {s.batch_size}, {s.epochs} epochs, "
        f"seed {s.seed}"
    )
    if resume:
        p = run.progress
        print(f"resumed after {p.epochs_done} epochs and {p.seen:,} images of the next")


def _epoch_line(row: dict[str, float], epochs: int) -> str:
    return (
        f"epoch {row['epoch']:>{len(str(epochs))}}/{epochs}  "
        f"loss {row['train_loss']:.4f}  accuracy {row['train_accuracy']:.2%}  |  "
        f"test loss {row['test_loss']:.4f}  accuracy {row['test_accuracy']:.2%}  |  "
        f"{row['images_per_second']:,.0f} images/s"
    )


def _finish(run: Run, out: Path, seconds: float) -> None:
    evaluation, history = run.evaluate(), run.progress.history
    title = f"{run.settings.model} on {run.settings.data}"
    needle.io.save(out / "model.safetensors", run.model.state_dict())
    write_metrics(out / "metrics.csv", history)
    write_report(out, title, history, evaluation, run.classes, run.test)
    print(
        f"\ntest accuracy {evaluation.accuracy:.2%} ({evaluation.correct} of "
        f"{len(evaluation.labels)} right), {seconds:.1f} s"
    )
    print(f"in {out}: report.md, learning_curve.png, confusion.png, mistakes.png, metrics.csv,")
    print(f"  model.safetensors (the weights), {CHECKPOINT} (all of the run)")
    print("\nwhat to try next:")
    for line in _suggestions(run.settings):
        print(f"  {line}")


def _suggestions(settings: Settings) -> list[str]:
    wanted = [
        ("digits", "--optimizer sgd --lr 0.05", "another optimiser"),
        ("digits", "--data mnist --download", "70 000 digits"),
        ("digits", "--data fashion-mnist --download", "clothes, harder"),
        ("", "--model resnet9 --data cifar10 --download", "colour photographs"),
    ]
    lines = [f"{command(a)}  # {why}" for data, a, why in wanted if data in ("", settings.data)]
    return [*lines, "hw_notebook.ipynb shows how it works inside, README.md what else there is"]


def command(arguments: str) -> str:
    """How to call this program again, by make if make called it."""
    if "MAKELEVEL" in os.environ:
        return f'make train ARGS="{arguments}"'
    return f"python apps/train.py {arguments}"


def _positive(kind: type) -> Any:
    return _number(kind, "positive", lambda x: 0 < x < math.inf)


def _number(kind: type, rule: str, good: Callable[[Any], bool]) -> Any:
    def read(text: str) -> Any:
        value = kind(text)
        if not good(value):
            raise argparse.ArgumentTypeError(f"must be {rule}, got {text}")
        return value

    read.__name__ = kind.__name__
    return read


if __name__ == "__main__":
    quiet = signal.getsignal(signal.SIGINT) == signal.SIG_DFL  # else its parent had it ignored
    if quiet:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = main()
    if quiet:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)
