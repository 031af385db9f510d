"""A training run in several processes: shards, slices, consistency, and which rank writes.

Called by run.py. Rank 0 writes the run's folder; every other rank computes the same and writes
nothing. The batch size in the settings is the total over all ranks.
"""

from __future__ import annotations

import os
import signal
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import needle
from needle import backends, data
from needle.data.sampling import DistributedSampler
from needle.distributed import (
    Communicator,
    DataParallel,
    communicator,
    gather,
    require_same,
    synchronise_batch_norm,
)
from needle.errors import NeedleError

from .evaluation import Evaluation, ranks
from .folder import RunFolder
from .interruption import Interrupted
from .records import Records
from .settings import Settings
from .step import Gradients

LONG_WORK = 24 * 3600.0
"""Seconds that ranks wait for one that downloads, reads data or writes a checkpoint."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAMPLED = 16
"""Samples of a data set that the ranks compare."""


class Ranks:
    """This process's slices of each batch, in a run with several processes or virtual replicas.

    Each batch is cut into slices: slice i has the samples i, i + slices, ... of the batch.
    """

    def __init__(self, settings: Settings, group: Communicator) -> None:
        self.group, self.seed = group, settings.seed
        self.slices = settings.virtual_replicas or group.size
        own = self.slices // group.size
        if self.slices % group.size or own & (own - 1):
            raise NeedleError(
                f"--virtual-replicas: must be the number of processes ({group.size}) times a power "
                f"of two, got {self.slices}; start another number of processes"
            )
        if settings.batch_size % self.slices:
            raise NeedleError(
                f"--batch-size: must be divisible by the {self.slices} slices of a batch, got "
                f"{settings.batch_size}; give a multiple of {self.slices}"
            )
        self.batch_size = settings.batch_size // group.size
        # The gradients of a slice's parts are added before they are sent; only whole slices are
        # sent early.
        self._ordered = bool(settings.virtual_replicas) or settings.accumulate > 1
        self._synchronised = settings.sync_batch_norm
        if self._synchronised and self._ordered:
            raise NeedleError(
                "--sync-batch-norm: each process must compute its batch as a whole; leave out "
                "--virtual-replicas and --accumulate"
            )

    def sampler(self, length: int, shuffle: bool) -> DistributedSampler:
        """Return this rank's sampler of a data set of ``samples`` samples."""
        rank, size = self.group.rank, self.group.size
        return DistributedSampler(
            length, rank, size, shuffle=shuffle, seed=self.seed, valid_mask=True
        )

    def own_slices(
        self, images: needle.Tensor, labels: needle.Tensor, valid: Any
    ) -> Iterator[tuple[int, NDArray[Any], NDArray[Any], NDArray[np.int64]]]:
        """Yield (slice, images, labels, places in the batch) of this rank's part of a batch."""
        count = int(np.asarray(valid.numpy()).sum())  # padding samples come last
        pixels, classes = images.numpy()[:count], labels.numpy()[:count]
        size, rank = self.group.size, self.group.rank
        for k, number in enumerate(range(rank, self.slices, size)):
            rows = slice(k, None, self.slices // size)
            places = rank + size * np.arange(count)[rows]
            yield number, np.ascontiguousarray(pixels[rows]), classes[rows], places

    # ---- a step ------------------------------------------------------------------------------

    def prepare(self, gradients: Gradients, device: Any, samples: int) -> None:
        """Give all ranks the weights of rank 0; ``samples``: their number in the training data."""
        self.gradients, self.device = gradients, device
        if self._synchronised:
            size = self.group.size
            if 0 < (last := samples % (self.batch_size * size)) < size:
                raise NeedleError(
                    f"--sync-batch-norm: the last batch of {samples} samples must have one for "
                    f"each of the {size} processes, got {last}; give another --batch-size"
                )
            synchronise_batch_norm(gradients.model, self.group)
        count = self.slices if self._ordered else None
        self.parallel = DataParallel(gradients.model, self.group, count)

    def step(self, place: tuple[int, int], *batch: Any) -> tuple[int, float, int, int]:
        """Set the gradients of a batch and return its sums over all processes.

        place: (epoch, batch); the layers' random numbers depend on it and the slice. Returns
        (samples, sum of losses, correct answers, correct among the five largest logits).
        """
        for number, images, labels, _ in self.own_slices(*batch):
            with self.parallel.slice(len(labels)) as numbers:
                if not len(labels):
                    numbers += [0.0, 0.0, 0.0]
                    continue
                np.random.seed((self.seed, *place, number))
                loss, logits = self.gradients(*self._tensors(images, labels))
                before = ranks(logits, labels)
                numbers += [loss * len(labels), (before == 0).sum(), (before < 5).sum()]
        np.random.seed((self.seed, *place, self.slices))  # the same on all ranks
        seen, loss, correct, among_five = self.parallel.average().tolist()
        return int(seen), loss, int(correct), int(among_five)

    def _tensors(self, images: NDArray[Any], labels: NDArray[Any]) -> tuple[Any, Any]:
        return tuple(
            needle.Tensor(each, device=self.device, dtype=str(each.dtype), requires_grad=False)
            for each in (images, labels)
        )

    # ---- evaluation --------------------------------------------------------------------------

    def evaluate(
        self,
        evaluate: Callable[[Any], Evaluation],
        loader: data.DataLoader,
        check_stop: Callable[[], None],
        shape: tuple[int, int],
    ) -> Evaluation:
        """Return the evaluation of all ranks' samples, each once and in order, on all ranks.

        evaluate: evaluates this rank's part. shape: (number of samples, classes).
        """
        places: list[NDArray[np.int64]] = []

        def parts() -> Iterator[Any]:
            for number, batch in enumerate(loader):
                check_stop()
                for _, images, labels, rows in self.own_slices(*batch):
                    if len(labels):
                        places.append(number * self.batch_of(loader) + rows)
                        yield self._tensors(images, labels)

        logits, labels = np.zeros(shape, np.float32), np.zeros(shape[0], np.int64)
        if self.group.rank < shape[0]:
            own = evaluate(parts())
            chosen = np.concatenate(places)
            logits[chosen], labels[chosen] = own.logits, own.labels
        self.group.all_reduce(logits)
        self.group.all_reduce(labels)
        return Evaluation(_cross_entropy(logits, labels), logits, labels)

    def batch_of(self, loader: data.DataLoader) -> int:
        """Return the number of samples in a batch, summed over all ranks."""
        return loader.batch_size * self.group.size

    # ---- agreement ---------------------------------------------------------------------------

    def agree(self, settings: Settings, datasets: tuple[Any, Any]) -> None:
        """Raise DistributedError, on all ranks, if they were started differently."""
        self.group.barrier(LONG_WORK)
        facts = {f"--{name.replace('_', '-')}": v for name, v in asdict(settings).items()}
        module = getattr(backends.get(settings.device), "module", None)
        facts["the version of needle"] = needle.__version__
        facts["the version of NumPy"] = np.__version__
        facts["the instruction set"] = getattr(module, "isa", None)
        for name, dataset in zip(("training", "test"), datasets):
            facts[f"the {name} data"] = _digest(dataset)
        require_same(self.group, facts)

    def stop_check(self, own: Callable[[], int | None]) -> Callable[[], None]:
        """Return a function that raises Interrupted on all ranks if one of them received a signal.

        own: returns the number of the signal that this process received.
        """

        def check() -> None:
            got = np.array([own() == number for number in SIGNALS], np.int64)
            self.group.all_reduce(got)
            if got.any():
                raise Interrupted(SIGNALS[int(got.argmax())])

        return check

    def await_all(self) -> None:
        """Wait for all ranks at a point where one of them may have long work to do."""
        self.group.barrier(LONG_WORK)


class SharedState:
    """A loader that saves its state as one process would, so that any number can resume it."""

    def __init__(self, loader: data.DataLoader, size: int) -> None:
        self.loader, self.size = loader, size

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state, with the batch size of all ranks."""
        state = self.loader.state_dict()
        return {**state, "batch_size": state["batch_size"] * self.size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a result of ``state_dict``, perhaps saved by another number of processes."""
        self.loader.load_state_dict({**state, "batch_size": state["batch_size"] // self.size})


def chosen_folder(group: Communicator, path: Path, resume: bool, force: bool) -> RunFolder:
    """Return the folder of the run, which rank 0 names, locks and alone writes."""
    group.barrier(LONG_WORK)
    path = Path(gather(group, str(path))[0])
    folder = RunFolder(path, resume, force, writes=group.rank == 0)
    group.barrier(LONG_WORK)
    return folder


class NoRecords(Records):
    """The records of ranks that write nothing."""

    def __init__(self) -> None:
        self._events = None

    def size(self) -> int:
        """Return 0."""
        return 0

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _write(self, text: str) -> None:
        pass


def silence(group: Communicator) -> None:
    """Let rank 0 alone print; errors of all ranks are printed."""
    if group.rank:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def failed(text: str, code: int = 1) -> int:
    """Print an error once, end all ranks and return the exit code."""
    group = Communicator()
    with suppress(NeedleError):  # the process group itself may have failed
        group = communicator()
    group.await_turn()
    print(text, file=sys.stderr)
    group.abort(code)
    return code


def _cross_entropy(logits: NDArray[Any], labels: NDArray[np.int64]) -> float:
    """Return the mean cross entropy, in float64: the same bits on any number of processes."""
    shifted = np.float64(logits) - logits.max(axis=1, keepdims=True)
    own = np.take_along_axis(shifted, labels[:, None], axis=1)[:, 0]
    return float((np.log(np.exp(shifted).sum(axis=1)) - own).mean())


def _digest(dataset: Any) -> list[Any]:
    """Return the length, the classes and a checksum of evenly spaced samples."""
    count = len(dataset)
    chosen = np.arange(min(SAMPLED, count)) * count // min(SAMPLED, count)
    checksum = 0
    for i in chosen:
        for part in dataset[int(i)]:
            checksum = zlib.crc32(np.ascontiguousarray(part).tobytes(), checksum)
    return [count, list(dataset.classes), f"{checksum:08x}"]
