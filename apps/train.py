"""Train a model on a data set: python apps/train.py --model lenet5 --data digits

This file reads the command line, prints the progress and writes the report; the run itself is in
training/. Exit codes: 0 finished, 1 an error (printed in one line), 2 an invalid option, 130
stopped by Ctrl-C (the run is saved).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until main() handles Ctrl-C, it ends the program without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
if not __package__:  # run as a script, so make the package ``apps`` importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
if importlib.util.find_spec("needle") is None:
    sys.exit("apps/train.py: needle is not installed; make train, or pip install '.[train]' here")

import needle
from apps.models import MODELS, find_model
from apps.profiling import layer_table, limits, write_trace
from apps.training.folder import (
    MODEL,
    RATE_PICTURE,
    RATE_TABLE,
    RunFolder,
    facts_of_this_machine,
    latest_folder,
    new_folder,
)
from apps.training.interruption import Interrupted, StopRequest, end_if_interrupted
from apps.training.overview import remarks, write_overview
from apps.training.own_pictures import as_place
from apps.training.parallel import LONG_WORK, NoRecords, chosen_folder, failed, silence
from apps.training.range_test import range_test, remark, write_range_test
from apps.training.recipes import Recipe, find_recipe, recipe_names
from apps.training.records import Records, tensorboardX
from apps.training.report import write_epochs, write_report
from apps.training.run import Progress, Run
from apps.training.settings import OPTIMIZERS, SCHEDULES, Settings, resumed
from apps.training.sources import PLACES, SOURCES, Workers, find_source
from needle import config
from needle.distributed import communicator
from needle.errors import CheckpointError, DataError, NeedleError

PACKAGES = ("matplotlib", "tqdm")


def parser() -> argparse.ArgumentParser:
    """Return the parser. An option that is not given is None; the data set's recipe decides it."""
    result = argparse.ArgumentParser(
        prog="python -m needle train", description="Train a model and report its accuracy."
    )
    add = result.add_argument
    add("--recipe", help=f"a file of options, or one of {', '.join(recipe_names())}")
    add("--model", help=f"{', '.join(sorted(MODELS))} (default: lenet5)")
    known = ", ".join(sorted(SOURCES))
    add(
        "--data",
        help=f"a folder of pictures, with a folder for each class; a packed file; a URL; {known} "
        "(default: digits, which needs no download)",
    )
    add("--data-dir", type=Path, help="folder of the data set's files (default: data)")
    add(
        "--source", help=f"{', '.join(PLACES)}, s3://bucket/prefix or http://... (default: builtin)"
    )
    add("--download", action="store_true", help="download the data set if it is missing")
    add("--image-size", type=_positive(int), help="pixels (default: those of the model)")
    add("--limit", type=_positive(int), help="samples of each split to use (default: all)")
    add("--device", help="cpu (compiled kernels; the default), cpu_numpy or another backend")
    add(
        "--precision",
        choices=config.matmul_precision.choices,
        help="of matrix products on a GPU: operands are rounded, sums and weights stay float32; "
        "bf16 stores activations as bfloat16, too (default: float32)",
    )
    add("--epochs", type=_positive(int))
    add("--batch-size", type=_positive(int))
    add("--lr", type=_positive(float), help="learning rate (the highest one, if it changes)")
    add("--optimizer", help=", ".join(OPTIMIZERS))
    add("--schedule", help=f"learning rate over the run: {', '.join(SCHEDULES)}")
    add("--weight-decay", type=_number(float, "0 or more", _finite))
    add(
        "--warmup",
        type=_number(float, "0 or more", _finite),
        help="epochs in which the learning rate rises",
    )
    share = _number(float, "0 or more and below 1", lambda x: 0 <= x < 1)
    add("--label-smoothing", type=share, help="share of the target spread over all classes")
    add(
        "--ema",
        type=share,
        help="decay of the moving average of the weights; the average is evaluated; 0: none",
    )
    add(
        "--accumulate",
        type=_positive(int),
        help="split each batch into so many parts and add their gradients",
    )
    add(
        "--flip-test",
        action="store_true",
        default=None,
        help="average over test images and their mirror images",
    )
    add("--weights", help="file of initial weights: safetensors, or PyTorch's format")
    add(
        "--only-matching",
        action="store_true",
        default=None,
        help="of --weights, load only the arrays whose names and shapes are those of the model",
    )
    in_range = _number(int, "0 to 2**32 - 1", lambda x: 0 <= x < 2**32)
    add("--seed", type=in_range, help="seed of weights, order and augmentation (default: 0)")
    add(
        "--workers",
        type=_number(int, "0 or more", lambda x: x >= 0),
        default=0,
        help="workers that prepare batches (default: 0, the program itself); the batches do not "
        "depend on their number",
    )
    add("--engine", help="kind of the workers: processes (the default) or threads")
    add(
        "--virtual-replicas",
        type=_positive(int),
        help="cut each batch into so many slices whose gradients are added in a fixed order: any "
        "number of processes gives the same weights (docs/many_machines.md)",
    )
    add(
        "--sync-batch-norm",
        action="store_true",
        default=None,
        help="batch norm takes its statistics over the batches of all processes",
    )
    add("--out", type=Path, help="folder of the run (default: a new runs/MODEL-DATA)")
    add("--resume", action="store_true", help="continue the run in --out; --epochs N extends it")
    add("--no-report", action="store_true", help="do not write report.html and its pictures")
    add(
        "--find-lr",
        action="store_true",
        help="suggest a learning rate by a range test of 100 steps, and do not train",
    )
    add("--profile", action="store_true", help="also time one step by layers and kernels")
    add("--force", action="store_true", help="replace the run in --out")
    add("--goal", type=share, help="exit with code 1 if the test accuracy is lower")
    add(
        "--keep",
        type=_number(int, "0 or more", lambda x: x >= 0),
        default=0,
        help="checkpoints of earlier epochs to keep, besides the last and the best (default: 0)",
    )
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return its exit code."""
    options = vars(parser().parse_args(arguments))
    try:
        silence(communicator())
        return train(dict(options))
    except Interrupted as stop:
        return stop.exit_code
    except KeyboardInterrupt:
        print("\nstopped; nothing new was saved", flush=True)
        communicator().abort(130)
        return 130
    except (NeedleError, OSError, ImportError) as error:
        return failed(f"error: {error}")
    except NotImplementedError as error:  # raised by an unfinished backend or an open exercise
        return failed(f"error: {_not_implemented(error, options['device'])}")


def _not_implemented(error: NotImplementedError, device: str | None) -> str:
    """Return the error's text; unless it names a command, add the one that checks the backend."""
    if "python -m" in str(error):
        return str(error)
    check = f"python -m needle.testing.conformance {device} shows what is missing"
    return f"{device}: {error}; {check}"


def train(options: dict[str, Any]) -> int:
    """Train and report as the options say; return the exit code."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"training needs {', '.join(missing)}; pip install 'needle[train]'")
    _name_pictures(options)
    data_dir = options.pop("data_dir") or Path(config.DATA_DIR.read())
    download, resume, force, keep, profile, find_lr, goal, no_report = map(
        options.pop,
        ("download", "resume", "force", "keep", "profile", "find_lr", "goal", "no_report"),
    )
    group = communicator()
    if group.size > 1 and (find_lr or profile):
        raise NeedleError(
            f"--{'find-lr' if find_lr else 'profile'}: needs one process, got {group.size}; start "
            "it without mpiexec"
        )
    workers = _workers(options.pop("workers"), options.pop("engine"))
    recipe = find_recipe(options.pop("recipe") or _recipe_for(options))
    out = options.pop("out") or _default_folder(options, recipe, resume)
    if not resume:
        settings = new_settings(options, recipe)
    with contextlib.closing(chosen_folder(group, out, resume, force)) as folder:
        if resume:
            settings = _saved_settings(folder, options)
            resume = folder.checkpoint.exists()  # otherwise the epoch starts again
        try:
            run = Run(settings, data_dir, download, workers, group)
        except DataError as error:
            if settings.source != "builtin":
                raise
            hint = "(on this command line: --data-dir DIR, --download)"
            raise DataError(f"{error} {hint}") from error
        with contextlib.closing(run), config.matmul_precision.using(settings.precision):
            if resume:
                run.resume(folder.checkpoint)
            else:
                run.start_from_weights()
            if find_lr:
                return _find_rate(run, folder.path)
            facts = _facts(run, recipe, workers, folder if resume else None)
            if run.writes:
                folder.write_facts(facts)
            _say_start(run, resume)
            if run.source.size is None and not resume and run.writes:
                _show_pictures(run, folder)
            if profile:
                _write_profile(run, folder.path)
            _train(run, folder, keep, resume)
            run.evaluate()
        if run.writes:
            _finish(run, folder, facts, not no_report)
        group.barrier(LONG_WORK)
        return _goal_exit_code(run, goal) if run.writes else 0


def _goal_exit_code(run: Run, goal: float | None) -> int:
    """Return 1, after a message, if the test accuracy is below the goal; else 0."""
    reached = run.evaluate().accuracy
    if goal is None or reached >= goal:
        return 0
    print(
        f"error: --goal: not reached: test accuracy {reached:.2%}, goal {goal:.2%}; train longer "
        "or lower the goal",
        file=sys.stderr,
    )
    return 1


def _train(run: Run, folder: RunFolder, keep: int, resume: bool) -> None:
    """Train the remaining epochs."""
    done = run.progress.epochs_done

    def write_history() -> None:
        if run.writes and run.progress.history:
            write_epochs(folder.path / "epochs.csv", run.progress.history)

    def after_epoch(progress: Progress) -> None:
        write_history()
        print(_epoch_line(progress.history[-1], run.settings.epochs), flush=True)

    kept = run.progress.records if resume else None
    records = Records(folder.path, kept, done) if run.writes else NoRecords()
    again = command(f"--out {folder.path} --resume")
    write_history()  # the interrupted run may not have got this far
    with contextlib.closing(records), StopRequest() as stop:
        try:
            run.train(folder, records, stop, after_epoch, keep)
        except Interrupted:
            print(f"stopped; saved in {folder.checkpoint}; continue with: {again}")
            raise
        except (CheckpointError, DataError, OSError):
            if folder.checkpoint.exists():
                print(
                    f"stopped; continue from the latest checkpoint with: {again}", file=sys.stderr
                )
            raise


def _find_rate(run: Run, out: Path) -> int:
    """Run a range test, which changes the run in memory but not in its folder; return 0."""
    found = range_test(run)
    write_range_test(out, found)
    print(f"range test of {len(found.rates)} steps: {out / RATE_PICTURE}, {RATE_TABLE}")
    print(remark(found))
    return 0


def _write_profile(run: Run, out: Path) -> None:
    """Write profile.md and trace.json, with shares of the machine's peak if a compiler is there."""
    profile = run.profile()
    try:
        peak = limits.measure(int(config.NUM_THREADS.read() or os.cpu_count() or 1))
    except RuntimeError:
        peak = None
    (out / "profile.md").write_text(layer_table(profile, peak), encoding="utf-8")
    write_trace(out / "trace.json", profile)
    print(f"profile of one step: {out / 'profile.md'}, and trace.json for ui.perfetto.dev")


def _workers(count: int, engine: str | None) -> Workers:
    if engine is not None and not count:
        raise NeedleError(
            f"--engine: {engine} needs at least one worker, got --workers 0; give --workers 2"
        )
    return Workers(count, engine)


def _name_pictures(options: dict[str, Any]) -> None:
    """If ``--data`` is a folder, packed file or URL, replace it by the data set ``pictures``.

    If a folder has the name of a data set, the data set is used, and a note says so. The exception
    is a folder named ``pictures``, since no other option says where those images are.
    """
    given = options["data"]
    place = None if given is None else as_place(given)
    located = options["source"] or options["data_dir"]
    if place is None or (given in SOURCES and located):
        return
    if given in SOURCES and given != "pictures":
        print(f"--data {given}: the data set of this name, not the folder; that is ./{given}")
        return
    if options["source"]:
        raise NeedleError(
            f"--source: --data {given} says where the pictures are, got {options['source']} too; "
            "leave it out"
        )
    options.update(data="pictures", source=place)


def _recipe_for(options: dict[str, Any]) -> str:
    """Return the name of the recipe that applies to the data set if none is given."""
    return find_source(options["data"] or "digits").recipe


def _default_folder(options: dict[str, Any], recipe: Recipe, resume: bool) -> Path:
    chosen = {**recipe.options, **{k: v for k, v in options.items() if v is not None}}
    name = f"{chosen['model']}-{_data_name(chosen['data'], chosen.get('source', ''))}"
    return latest_folder(name) if resume else new_folder(name)


def _data_name(name: str, source: str) -> str:
    """Return the name of the data set; for one's own pictures, that of their folder or file."""
    return Path(source).stem if name == "pictures" else name


def new_settings(options: dict[str, Any], recipe: Recipe) -> Settings:
    """Return the settings: the given options, else the recipe's, else the defaults."""
    given = {name: value for name, value in options.items() if value is not None}
    defaults = {
        "device": needle.default_device().name,
        "precision": config.matmul_precision.get(),
        "recipe": recipe.name,
    }
    settings = Settings(**{**defaults, **recipe.options, **given})
    find_model(settings.model)
    find_source(settings.data)
    return settings


def _saved_settings(folder: RunFolder, options: dict[str, Any]) -> Settings:
    """Return the settings in the run's checkpoint; in its run.json if it has no checkpoint yet."""
    checkpoint = folder.checkpoint
    if not checkpoint.is_file():
        begun = folder.read_facts().get("settings")
        if isinstance(begun, dict):
            print(f"{folder.path} has no checkpoint yet; the run starts again with its settings")
            return resumed(begun, options)
        raise CheckpointError(
            f"--resume: there is no run to continue, {checkpoint} does not exist; give the --out "
            "of an earlier run, or leave out --resume"
        )
    extra = needle.io.checkpoint_extra(checkpoint)
    if "settings" not in extra or "progress" not in extra:
        raise CheckpointError(f"--resume: {checkpoint} was not saved by apps/train.py")
    return resumed(extra["settings"], options)


def _facts(
    run: Run, recipe: Recipe, workers: Workers, resumed_in: RunFolder | None
) -> dict[str, Any]:
    """Return the content of run.json; that of a resumed run includes its earlier parts."""
    settings = asdict(run.settings)
    as_written = all(settings[name] == value for name, value in recipe.options.items())
    facts = {
        **facts_of_this_machine(),
        "device": run.settings.device,
        "threads": config.NUM_THREADS.read() or os.cpu_count(),
        "seed": run.settings.seed,
        "settings": settings,
        "workers": vars(workers),
        "expected": {"accuracy": recipe.accuracy, "source": recipe.source} if as_written else {},
        "parameters": sum(p.size for p in run.model.parameters()),
        "samples": {"training": run.samples, "test": len(run.test)},
        "classes": run.classes,
    }
    earlier = resumed_in.read_facts() if resumed_in else {}
    if earlier:
        parts = [*earlier.get("parts", [])]
        parts.append({k: earlier.get(k) for k in ("started", "commit", "command", "workers")})
        facts.update(parts=parts, expected=earlier.get("expected", {}))
        extensions = [*earlier.get("extensions", [])]
        if run.extension and extensions[-1:] != [run.extension]:
            extensions.append(run.extension)
        if extensions:  # the recipe's figure is for another number of epochs
            facts.update(extensions=extensions, expected={})
    return facts


def _say_start(run: Run, resume: bool) -> None:
    s, count = run.settings, sum(p.size for p in run.model.parameters())
    print(
        f"{s.model} ({count:,} parameters) on {s.data}: {run.samples:,} training and "
        f"{len(run.test):,} test images, device {s.device}"
        + (f", products in {s.precision}" if s.precision != "float32" else "")
    )
    print(
        f"{s.optimizer}, lr {s.lr:g} {s.schedule}, batches of {s.batch_size}, {s.epochs} epochs, "
        f"seed {s.seed}"
    )
    if run.left_out:
        print(
            f"each epoch leaves out a last batch of {run.left_out}, too few for batch norm; "
            "another --batch-size or --accumulate keeps it"
        )
    if resume:
        p = run.progress
        print(f"resumed after {p.epochs_done} epochs and {p.seen:,} images of the next one")
    if run.ranks:
        print(f"{run.ranks.group.size} processes, a batch in {run.ranks.slices} slices")
    if run.extension:
        print(
            f"{run.extension['from']} epochs were planned, now {s.epochs}: the learning rate goes "
            f"on as in a run of {s.epochs} epochs ({s.schedule}), at {run.extension['lr']:.3g}"
        )


def _show_pictures(run: Run, folder: RunFolder) -> None:
    """Print an overview of the user's own pictures, and write a sheet of them."""
    for line in (*remarks(*run.datasets), write_overview(folder.path, *run.datasets)):
        print(line)


def _epoch_line(row: dict[str, float], epochs: int) -> str:
    return (
        f"epoch {row['epoch']:>{len(str(epochs))}}/{epochs}  "
        f"loss {row['train_loss']:.4f}  accuracy {row['train_accuracy']:.2%}  |  "
        f"test loss {row['test_loss']:.4f}  accuracy {row['test_accuracy']:.2%}  |  "
        f"{row['images_per_second']:,.0f} images/s"
    )


def _finish(run: Run, folder: RunFolder, facts: dict[str, Any], report: bool) -> None:
    evaluation, history = run.evaluate(), run.progress.history
    out, data = folder.path, _data_name(run.settings.data, run.settings.source)
    about = {"settings": json.dumps(asdict(run.settings)), "classes": json.dumps(run.classes)}
    with run.averaged():
        needle.io.save(out / MODEL, run.model.state_dict(), about)
    facts["result"] = {
        **history[-1],
        "best_test_accuracy": max(row["test_accuracy"] for row in history),
        "seconds": sum(row["train_seconds"] + row["test_seconds"] for row in history),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    folder.write_facts(facts)
    write_epochs(out / "epochs.csv", history)
    if report:
        title = f"{run.settings.model} on {data}"
        pictures = run.source.pixels(run.test.images)
        model = needle.summary(run.model, (1, run.source.channels, *run.image_size))
        write_report(out, title, facts, history, evaluation, run.classes, pictures, model)
    print(
        f"\ntest accuracy {evaluation.accuracy:.2%} ({evaluation.correct} of "
        f"{len(evaluation.labels)} correct), top-5 {evaluation.top5:.2%}, "
        f"{facts['result']['seconds']:.1f} s"
    )
    page = "report.html (pictures included), " if report else ""
    print(f"in {out}: {page}run.json, metrics.csv, epochs.csv,")
    print(
        f"  {MODEL} (the weights), {folder.checkpoint.name} and best.safetensors (to resume from)"
    )
    if tensorboardX is None:
        print("  to get TensorBoard event files too: pip install 'needle[tensorboard]'")
    print("\nnext steps:")
    for line in _suggestions(run.settings):
        print(f"  {line}")


def _suggestions(settings: Settings) -> list[str]:
    wanted = [
        ("digits", "--optimizer sgd --lr 0.05", "another optimiser"),
        ("digits", "--data mnist --download", "70 000 digits"),
        ("digits", "--data fashion-mnist --download", "clothes, which are harder"),
        ("", "--recipe resnet9-cifar10 --download", "colour photographs"),
    ]
    lines = [f"{command(a)}  # {why}" for data, a, why in wanted if data in ("", settings.data)]
    return [*lines, "hw_notebook.ipynb explains how it works; README.md shows what else there is"]


def command(arguments: str) -> str:
    """Return the command line that starts this program again, by make if make started it."""
    if "MAKELEVEL" in os.environ:
        return f'make train ARGS="{arguments}"'
    return f"python -m needle train {arguments}"


def _finite(x: float) -> bool:
    return 0 <= x < math.inf


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
    quiet = signal.getsignal(signal.SIGINT) == signal.SIG_DFL  # else the parent ignores SIGINT
    if quiet:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = end_if_interrupted
    code = main()
    if quiet:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)
