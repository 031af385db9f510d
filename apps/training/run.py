"""One training run: its parts, its loop, and stopping and going on at any step.

All that the next step depends on is in the checkpoint, so a run that was interrupted and resumed
gives the weights of one that was not, bit for bit. Options and pictures are elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import needle
from apps.models import build_model, find_model
from needle import nn
from needle.errors import NeedleError

from .evaluation import Evaluation, evaluate
from .interruption import Interrupted, StopRequest
from .settings import Settings, build_optimizer, build_schedule
from .sources import Workers, evaluation_loader, find_source, open_split, training_loader

EVALUATION_BATCH = 500


@dataclass
class Progress:
    """How far a run is: whole epochs, and sums over the batches of the one under way."""

    epochs_done: int = 0
    batches_done: bool = False
    """All batches of this epoch are trained on; what is left of it is the evaluation."""
    loss_sum: float = 0.0
    correct: int = 0
    seen: int = 0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)

    def begin_epoch(self) -> None:
        """Sets the sums to zero."""
        self.batches_done = False
        self.loss_sum, self.correct, self.seen, self.seconds = 0.0, 0, 0, 0.0


class Run:
    """A model in training on one data set. Building it reads the data and draws the weights."""

    def __init__(
        self,
        settings: Settings,
        data_dir: Path,
        download: bool = False,
        workers: Workers | None = None,
    ) -> None:
        self.settings = settings
        image_size = find_model(settings.model).image_size  # type: ignore[attr-defined]
        source = find_source(settings.data)
        device = needle.device(settings.device)
        training = source.open(data_dir, True, download)
        self.classes: tuple[str, ...] = training.classes
        self.test = open_split(source, source.open(data_dir, False, download), image_size)
        np.random.seed(settings.seed)
        self.model = build_model(
            settings.model,
            in_channels=source.channels,
            num_classes=len(self.classes),
            device=device,
        )
        self.loader = training_loader(
            source, training, image_size, settings.batch_size, settings.seed, device, workers
        )
        self.test_loader = evaluation_loader(self.test, EVALUATION_BATCH, device)
        self.samples = len(training)
        self.loss_function = nn.CrossEntropyLoss()
        self.optimizer = build_optimizer(settings, self.model.parameters())
        total_steps = settings.epochs * len(self.loader)
        self.schedule = build_schedule(settings, self.optimizer, total_steps)
        self.progress = Progress()
        self.evaluation: Evaluation | None = None

    def close(self) -> None:
        """Ends the loader's workers."""
        self.loader.close()

    # ---- checkpoints -------------------------------------------------------------------------

    def _parts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "loader": self.loader,
        }

    def save(self, path: Path) -> None:
        """Writes a checkpoint; CheckpointError, and the old one stays, if that fails."""
        extra = {"settings": self.settings.as_json(), "progress": asdict(self.progress)}
        needle.io.save_checkpoint(path, **self._parts(), extra=extra)

    def resume(self, path: Path) -> None:
        """Goes to where the checkpoint was saved."""
        extra = needle.io.load_checkpoint(path, **self._parts())
        self.progress = Progress(**extra["progress"])

    # ---- the loop ----------------------------------------------------------------------------

    def train(
        self, checkpoint: Path, stop: StopRequest, after_epoch: Callable[[Progress], None]
    ) -> None:
        """Trains what is left, saving after each epoch; Interrupted if a stop was requested."""
        self.model.train()
        while self.progress.epochs_done < self.settings.epochs:

            def heed() -> None:
                if stop.number is not None:
                    self.save(checkpoint)
                    raise Interrupted(stop.number)

            if not self.progress.batches_done:
                self._train_epoch(heed)
            self.evaluation = evaluate(self.model, self.test_loader, heed)
            self._end_epoch(self.evaluation)
            self.save(checkpoint)
            after_epoch(self.progress)

    def evaluate(self) -> Evaluation:
        """The latest evaluation of the test split."""
        if self.evaluation is None:
            self.evaluation = evaluate(self.model, self.test_loader)
        return self.evaluation

    def _train_epoch(self, heed: Callable[[], None]) -> None:
        progress = self.progress
        started, before = time.perf_counter(), progress.seconds
        with self._bar() as bar:
            for images, labels in self.loader:
                loss, correct = self._step(images, labels)
                self._check(loss)
                count = images.shape[0]
                progress.loss_sum += loss * count
                progress.correct += correct
                progress.seen += count
                progress.seconds = before + time.perf_counter() - started
                bar.set_postfix_str(
                    f"loss {progress.loss_sum / progress.seen:.4f}, "
                    f"accuracy {progress.correct / progress.seen:.2%}",
                    refresh=False,
                )
                bar.update(count)
                heed()
        progress.batches_done = True

    def _step(self, images: needle.Tensor, labels: needle.Tensor) -> tuple[float, int]:
        """One optimiser step; the batch's mean loss and number of right answers before it."""
        logits = self.model(images)
        loss = self.loss_function(logits, labels)
        self.optimizer.reset_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        correct = int((logits.numpy().argmax(axis=1) == labels.numpy()).sum())
        return loss.numpy().item(), correct

    def _check(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise NeedleError(
                f"train: the loss must stay finite, got {loss} in epoch "
                f"{self.progress.epochs_done + 1}; lower --lr (it is {self.settings.lr})"
            )

    def _end_epoch(self, evaluation: Evaluation) -> None:
        progress = self.progress
        progress.epochs_done += 1
        progress.history.append(
            {
                "epoch": progress.epochs_done,
                "lr": float(self.optimizer.param_groups[0]["lr"]),
                "train_loss": progress.loss_sum / progress.seen,
                "train_accuracy": progress.correct / progress.seen,
                "test_loss": evaluation.loss,
                "test_accuracy": evaluation.accuracy,
                "images_per_second": progress.seen / progress.seconds,
            }
        )
        progress.begin_epoch()

    def _bar(self) -> Any:
        """A progress bar on a terminal, nothing in a log file."""
        from tqdm import tqdm

        return tqdm(
            total=self.samples,
            initial=self.progress.seen,
            desc=f"epoch {self.progress.epochs_done + 1}/{self.settings.epochs}",
            unit="img",
            leave=False,
            disable=None,
        )
