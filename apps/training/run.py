"""A training run: its parts, its loop, and stopping and resuming at any step. Called by train.py.

The checkpoint holds everything that the next step depends on. A run that was interrupted and
resumed therefore ends with the same weights, bit for bit, as one that was not.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import needle
from apps.models import build_model, image_size, load_weights
from apps.profiling import Profile, profile_step
from needle import backends, nn, optim
from needle.array_namespace import array_api
from needle.distributed import Communicator
from needle.dtypes import as_dtype
from needle.errors import CheckpointError, DataError, NeedleError, ShapeError

from .bar import bar_of
from .evaluation import Evaluation, evaluate, ranks, read
from .folder import RunFolder
from .interruption import Interrupted, StopRequest
from .parallel import LONG_WORK, Ranks, SharedState
from .recipes import augmentations
from .records import Clock, Records
from .settings import LossOnDevice, Settings, build_optimizer, build_schedule
from .sources import (
    Workers,
    evaluation_loader,
    find_source,
    limited,
    open_source,
    open_split,
    training_loader,
)
from .step import Gradients

EVALUATION_BATCH = 500
STEPS_AHEAD = 16
"""Number of steps whose results are read at once if the device runs asynchronously. Reading waits
for the device, so reading after every step would leave the device idle each time."""
Counts = tuple[int, float, int, int]
"""Samples, sum of losses, correct answers, correct among the five largest logits."""


@dataclass
class Progress:
    """The progress of a run: finished epochs, and sums over the batches of the current one."""

    epochs_done: int = 0
    batches_done: bool = False
    """True if this epoch has trained on all batches and only the evaluation remains."""
    loss_sum: float = 0.0
    correct: int = 0
    among_five: int = 0
    seen: int = 0
    batches: int = 0
    recorded: bool = True
    """True if the latest batch is in metrics.csv; a full disk may have prevented it."""
    started: float = 0.0
    """Start of the epoch in seconds since 1970."""
    clock: Clock = field(default_factory=Clock)
    test_clock: Clock = field(default_factory=Clock)
    records: int = 0
    """Number of bytes of metrics.csv that belong to this state."""
    history: list[dict[str, float]] = field(default_factory=list)

    def begin_epoch(self) -> None:
        """Set the sums to zero."""
        self.batches_done = False
        self.loss_sum, self.correct, self.among_five, self.seen, self.batches = 0.0, 0, 0, 0, 0
        self.started = 0.0
        self.clock.begin_epoch()
        self.test_clock.begin_epoch()

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Progress:
        """Return the progress from the values of ``asdict``."""
        clocks = {name: Clock(**saved[name]) for name in ("clock", "test_clock")}
        return cls(**{**saved, **clocks})

    @property
    def best(self) -> bool:
        """True if the latest epoch has a higher test accuracy than all earlier ones."""
        found = [row["test_accuracy"] for row in self.history]
        return bool(found) and found[-1] > max(found[:-1], default=-1.0)


def check_precision(precision: str, device: needle.Device) -> None:
    """Raise NeedleError if the device cannot multiply matrices in this precision."""
    if not device.enabled():
        return  # making an array raises an error with the reason
    known = getattr(device, "matmul_precisions", ("float32",))
    if precision not in known:
        raise NeedleError(
            f"--precision: {device.name} multiplies in {', '.join(known)}, got {precision}; "
            "leave out the option, or give a --device with tensor cores (a GPU of sm_80 or later)"
        )
    if precision == "bf16":
        as_dtype("bfloat16", "--precision")  # raises an error that names a missing package


class Run:
    """A model trained on one data set; the constructor reads the data and draws the weights."""

    def __init__(
        self,
        settings: Settings,
        data_dir: Path,
        download: bool = False,
        workers: Workers | None = None,
        group: Communicator | None = None,
    ) -> None:
        self.settings = settings
        group = group or Communicator()
        self.ranks = Ranks(settings, group) if group.size > 1 or settings.virtual_replicas else None
        """The run's share in several processes; None in one process without virtual replicas."""
        self.writes = group.rank == 0
        self.image_size = image_size(settings.model, settings.image_size)
        self.source = source = find_source(settings.data)
        device = needle.device(settings.device)
        check_precision(settings.precision, device)
        began = time.time(), time.perf_counter()
        place = settings.data, settings.source, data_dir
        if download and group.rank:
            group.barrier(LONG_WORK)  # other ranks wait until rank 0 has downloaded the data
        training = limited(open_source(*place, True, download), settings.limit)
        training_read = time.perf_counter()
        self.classes: tuple[str, ...] = tuple(training.classes)
        test = limited(open_source(*place, False, download), settings.limit)
        if download and not group.rank:
            group.barrier(LONG_WORK)
        self.datasets = training, test
        self.test = open_split(source, test, self.image_size)
        if self.ranks:
            self.ranks.agree(settings, self.datasets)
        self.reading = (began[0], training_read - began[1], time.perf_counter() - training_read)
        np.random.seed(settings.seed)
        self.model = build_model(
            settings.model,
            in_channels=source.channels,
            num_classes=len(self.classes),
            device=device,
        )
        if settings.image_size:
            self._check_image_size()
        self.samples = len(training)
        self.left_out = self._left_out(device)
        self.loader = training_loader(
            source,
            training,
            self.image_size,
            self.ranks.batch_size if self.ranks else settings.batch_size,
            settings.seed,
            device,
            augmentations(settings.augment),
            workers,
            self.ranks.sampler(len(training), shuffle=True) if self.ranks else None,
            drop_last=self.left_out > 0,
        )
        self.test_loader = self._test_loader(device)
        beside = backends.provides(backends.get(settings.device), "synchronize") and not self.ranks
        loss_function = (LossOnDevice if beside else nn.CrossEntropyLoss)(settings.label_smoothing)
        self.gradients = Gradients(self.model, loss_function, settings.accumulate)
        self.optimizer = build_optimizer(settings, self.model.parameters())
        self.schedule = build_schedule(settings, self.optimizer, len(self.loader))
        if self.ranks:
            self.ranks.prepare(self.gradients, device, self.samples)
        self.average = optim.ExponentialAverage(self.model, settings.ema) if settings.ema else None
        self.progress = Progress()
        self.together = STEPS_AHEAD if beside else 1
        self._unread: list[tuple[int, Callable[[], Counts]]] = []
        """(batch number, results) of the steps started most recently."""
        self._places: dict[tuple[int, ...], needle.Tensor] = {}
        self.evaluation: Evaluation | None = None
        self.extension: dict[str, float] | None = None
        """The change in the number of epochs, if the run was resumed with a different one."""

    def _test_loader(self, device: needle.Device) -> Any:
        if not self.ranks:
            return evaluation_loader(self.test, EVALUATION_BATCH, device)
        size = self.ranks.group.size
        rows = max(1, EVALUATION_BATCH // self.ranks.slices) * self.ranks.slices // size
        return evaluation_loader(self.test, rows, device, self.ranks.sampler(len(self.test), False))

    def _check_image_size(self) -> None:
        """Raise NeedleError if the model does not take images of the size in the settings."""
        shape = (1, self.source.channels, *self.image_size)
        self.model.eval()
        try:
            with needle.no_grad():
                self.model(needle.zeros(*shape, device=needle.device(self.settings.device)))
        except ShapeError as error:
            raise NeedleError(
                f"--image-size: {self.settings.model} does not take images of "
                f"{self.settings.image_size} pixels ({error}); leave the option out"
            ) from error
        self.model.train()

    def _left_out(self, device: needle.Device) -> int:
        """Return the size of a last batch that each epoch leaves out as too small for batch norm.

        NeedleError if whole batches are cut into pieces of one sample.
        """
        batch, parts = self.settings.batch_size, self.settings.accumulate
        slices = self.ranks.slices if self.ranks else 1
        whole, last = min(batch, self.samples), self.samples % batch
        smallest = min(whole, last or whole) // (slices * parts)
        if smallest > 1 or self.settings.sync_batch_norm:
            return 0
        state = np.random.get_state()
        try:
            with needle.no_grad():
                image = needle.zeros(1, self.source.channels, *self.image_size, device=device)
                copy.deepcopy(self.model)(image)
        except ShapeError as error:
            if whole // (slices * parts) > 1:
                return last
            raise NeedleError(
                f"--batch-size: {self.settings.model} has batch norm, which needs two samples, but "
                f"{whole} samples in {slices * parts} pieces (--accumulate, --virtual-replicas, "
                "processes) leave one with a single sample; give a larger --batch-size or fewer "
                "pieces"
            ) from error
        finally:
            np.random.set_state(state)
        return 0

    def close(self) -> None:
        """Stop the loader's workers."""
        self.loader.close()

    # ---- checkpoints -------------------------------------------------------------------------

    def _parts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "loader": SharedState(self.loader, self.ranks.group.size)
            if self.ranks
            else self.loader,
            "average": self.average,
        }

    def save(self, path: Path) -> None:
        """Write a checkpoint; if that fails, CheckpointError, and the old one stays."""
        extra = {
            "settings": asdict(self.settings),
            "progress": asdict(self.progress),
            "classes": list(self.classes),
        }
        needle.io.save_checkpoint(path, **self._parts(), extra=extra)

    def start_from_weights(self) -> None:
        """Load the initial weights from the file in the settings, if there is one.

        CheckpointError if the file belongs to another model.
        """
        if self.settings.weights:
            path, only = Path(self.settings.weights), self.settings.only_matching
            count = load_weights(self.model, path, only)
            if only:
                print(f"{count} of {len(self.model.state_dict())} arrays loaded from {path}")

    def resume(self, path: Path) -> None:
        """Restore the state in the checkpoint, perhaps with another number of epochs.

        The schedule then becomes that of a run of the new length, at the step reached so far.
        CheckpointError if the run has trained more epochs already.
        """
        before, epochs = needle.io.checkpoint_extra(path), self.settings.epochs
        done, planned = before["progress"]["epochs_done"], before["settings"]["epochs"]
        if epochs < done:
            raise CheckpointError(
                f"--resume: --epochs must be at least the {done} epochs that the run has trained, "
                f"got {epochs}; give a larger number"
            )
        extra = needle.io.load_checkpoint(path, **self._parts())
        self.progress = Progress.from_json(extra["progress"])
        if epochs != planned:
            rate = float(self.optimizer.param_groups[0]["lr"])
            step = self.schedule.steps
            self.extension = {"from": planned, "to": epochs, "after_step": step, "lr": rate}

    def averaged(self) -> Any:
        """Return a context in which the model has its averaged weights, if it has any."""
        return self.average.applied() if self.average else nullcontext()

    # ---- the loop ----------------------------------------------------------------------------

    def train(
        self,
        folder: RunFolder,
        records: Records,
        stop: StopRequest,
        after_epoch: Callable[[Progress], None],
        keep: int = 0,
    ) -> None:
        """Train the remaining epochs; save before the first and after each epoch.

        Interrupted if a stop was requested; everything is saved then. OSError or CheckpointError if
        something cannot be written; the latest complete checkpoint can be resumed then.
        """
        self.model.train()
        begun = folder.checkpoint.exists()
        if self.ranks:
            self.ranks.await_all()  # all ranks have looked before rank 0 writes
        if begun:  # the run may have been killed before the checkpoint got its other names
            self._keep(folder, keep)
        else:
            self._record_reading(records)
            self._save(folder, records)

        def check_stop() -> None:
            if stop.number is not None:
                raise Interrupted(stop.number)

        if self.ranks:
            check_stop = self.ranks.stop_check(lambda: stop.number)
        while self.progress.epochs_done < self.settings.epochs:
            try:
                if not self.progress.batches_done:
                    self._train_epoch(check_stop, records)
                began = time.time()
                self.evaluation = self._evaluate(check_stop)
                self._end_epoch(self.evaluation, records, began)
            except (Interrupted, OSError, DataError) as error:
                # An OSError is one rank's alone, while saving makes all ranks wait for each other.
                if not self.ranks or isinstance(error, Interrupted):
                    self._save(folder, records)
                raise
            self._save(folder, records)
            self._keep(folder, keep)
            after_epoch(self.progress)

    def _keep(self, folder: RunFolder, keep: int) -> None:
        """Keep the latest checkpoint under its other names if it is from the end of an epoch."""
        progress = self.progress
        inside = progress.batches or progress.batches_done
        if inside or not progress.history or not self.writes:
            return
        if progress.best:
            folder.mark_best()
        if keep:
            folder.keep_last(progress.epochs_done, keep)

    def _save(self, folder: RunFolder, records: Records) -> None:
        self.progress.records = records.size()
        if self.writes:
            self.save(folder.checkpoint)
        if self.ranks:
            self.ranks.await_all()

    def _record_reading(self, records: Records) -> None:
        began, training, test = self.reading
        records.read(began, (training, test), (self.samples, len(self.test)))

    def profile(self) -> Profile:
        """Return the profile of one step of an equal new model on test images.

        The run is unchanged.
        """
        state = np.random.get_state()
        device = needle.device(self.settings.device)
        channels, classes = self.source.channels, len(self.classes)
        model = build_model(
            self.settings.model, in_channels=channels, num_classes=classes, device=device
        )
        optimizer = build_optimizer(self.settings, model.parameters())
        loader = evaluation_loader(self.test, self.settings.batch_size, device)
        images, labels = next(iter(loader))
        np.random.set_state(state)
        return profile_step(model, images, labels, optimizer)

    def evaluate(self) -> Evaluation:
        """Return the latest evaluation of the test split."""
        if self.evaluation is None:
            self.evaluation = self._evaluate(lambda: None)
        return self.evaluation

    def _evaluate(self, check_stop: Callable[[], None]) -> Evaluation:
        clock, total = Clock(), self.progress.test_clock
        with self.averaged():
            if self.ranks:
                found = self._evaluate_together(check_stop, clock)
            else:
                found = evaluate(
                    self.model, self.test_loader, check_stop, self.settings.flip_test, clock
                )
        total.begin_epoch()
        total.add(clock.loading, clock.duration)
        return found

    def _evaluate_together(self, check_stop: Callable[[], None], clock: Clock) -> Evaluation:
        assert self.ranks is not None

        def own(batches: Any) -> Evaluation:
            return evaluate(self.model, batches, flip=self.settings.flip_test, clock=clock)

        shape = len(self.test), len(self.classes)
        return self.ranks.evaluate(own, self.test_loader, check_stop, shape)

    def _train_epoch(self, check_stop: Callable[[], None], records: Records) -> None:
        progress = self.progress
        progress.started = progress.started or time.time()
        if not progress.recorded:
            self._record_batch(records)
        try:
            self._train_batches(check_stop, records)
        finally:  # also before stopping, so that the checkpoint has the results of all steps
            began = time.perf_counter()
            if self._unread:
                self._read()
                progress.clock.add(0.0, time.perf_counter() - began)
        progress.batches_done = True

    def _train_batches(self, check_stop: Callable[[], None], records: Records) -> None:
        progress = self.progress
        asked = time.perf_counter()
        for batch in (bar := self._bar()):
            got = time.perf_counter()
            self._step(*batch)
            progress.batches += 1
            known = len(self._unread) == self.together
            if known:
                self._read()
            progress.clock.add(got - asked, time.perf_counter() - asked)
            self._record_batch(records)
            if known:
                bar.set_postfix(
                    loss=progress.loss_sum / progress.seen,
                    accuracy=f"{progress.correct / progress.seen:.2%}",
                    refresh=False,
                )
            check_stop()
            asked = time.perf_counter()

    def _record_batch(self, records: Records) -> None:
        done = self.progress
        done.recorded = False
        number, batches = done.batches, len(self.loader)
        records.batch(done.epochs_done + 1, done.started, done.clock, number, batches)
        done.recorded = True

    def _step(self, *batch: needle.Tensor) -> None:
        """Run one optimiser step; its results are read later."""
        number = self.progress.batches + 1
        if self.ranks:
            counts = self.ranks.step((self.progress.epochs_done, number - 1), *batch)
            self._unread.append((number, lambda: counts))
        else:
            images, labels = batch
            parts = self.gradients.start(images, self._placed(labels))
            self._unread.append((number, lambda: _counts(parts, labels)))
        self.optimizer.step()
        self.schedule.step()
        if self.average:
            self.average.update()

    def _placed(self, labels: needle.Tensor) -> needle.Tensor:
        """Return a copy of the labels at a fixed address, which is kept until it has been read.

        A graph of kernels is always launched with the same addresses.
        """
        if self.together == 1:
            return labels
        data = labels.realize_cached_data()
        if labels.shape not in self._places:
            self._places[labels.shape] = needle.Tensor.make_const(array_api.empty_like(data))
        place = self._places[labels.shape]
        place.realize_cached_data()[...] = data
        return place

    def _read(self) -> None:
        """Wait for the step results that have not been read yet, add them up and check them."""
        progress, unread = self.progress, self._unread
        self._unread = []
        for number, results in unread:
            seen, loss_sum, correct, among_five = results()
            progress.loss_sum += loss_sum
            progress.correct += correct
            progress.among_five += among_five
            progress.seen += seen
            self._check(loss_sum / seen, number)

    def _check(self, loss: float, batch: int) -> None:
        if not math.isfinite(loss):
            raise NeedleError(
                f"train: the loss must stay finite, got {loss} in epoch "
                f"{self.progress.epochs_done + 1}, batch {batch}; lower --lr (it is "
                f"{self.settings.lr})"
            )

    def _end_epoch(self, evaluation: Evaluation, records: Records, began: float) -> None:
        progress = self.progress
        epoch, clock, test_clock = progress.epochs_done + 1, progress.clock, progress.test_clock
        row = {
            "epoch": epoch,
            "lr": float(self.optimizer.param_groups[0]["lr"]),
            "train_loss": progress.loss_sum / progress.seen,
            "train_accuracy": progress.correct / progress.seen,
            "train_top5": progress.among_five / progress.seen,
            "test_loss": evaluation.loss,
            "test_accuracy": evaluation.accuracy,
            "test_top5": evaluation.top5,
            "loading_seconds": clock.loading,
            "train_seconds": clock.duration,
            "test_seconds": test_clock.duration,
            "images_per_second": progress.seen / clock.duration,
        }
        records.scalars(epoch, {k: v for k, v in row.items() if k != "epoch"})
        found = (row["train_accuracy"], row["train_top5"]), (evaluation.accuracy, evaluation.top5)
        records.epoch(epoch, (progress.started, began), (clock, test_clock), found)
        progress.epochs_done += 1
        progress.history.append(row)
        progress.begin_epoch()

    def _bar(self) -> Any:
        """Return the rest of this epoch's batches, with a progress bar on rank 0."""
        title = f"epoch {self.progress.epochs_done + 1}/{self.settings.epochs}"
        done = self.progress.batches
        return bar_of(self.loader, title, " batches", done=done, shown=self.writes)


def _counts(parts: list[tuple[Any, Any, float]], labels: needle.Tensor) -> Counts:
    loss, logits = read(parts)
    before = ranks(logits, labels.numpy())
    return len(before), loss * len(before), int((before == 0).sum()), int((before < 5).sum())
