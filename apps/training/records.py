"""metrics.csv, with one line for each event of the run, and the same events for TensorBoard.

The event types are 10 and 11 for reading the training and the validation data, 0 and 1 for an epoch
of each, and 2 for a training batch. A run appends its events; a resumed run first removes those
that were written after its checkpoint. Written by run.py, read by plot.py.
"""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

try:
    import tensorboardX
    from tensorboardX import event_file_writer, summary
    from tensorboardX.proto import event_pb2
except ImportError:
    tensorboardX = None

T = TypeVar("T")
Pair = tuple[T, T]
TRAIN_EPOCH, TEST_EPOCH, TRAIN_BATCH, READ_TRAIN, READ_TEST = 0, 1, 2, 10, 11
COLUMNS = (
    "type epoch start loading duration value1 value2 loading_since_start duration_since_start note"
).split()
"""start: seconds since 1970. duration: seconds of the epoch (type 2: so far). loading: the part of
it spent waiting for data. *_since_start: the sums over all epochs of this type. value1, value2:
accuracy and top-5 accuracy; type 2: the number of the batch and of the batches of an epoch; types
10 and 11: the number of samples read. Time between the parts of a resumed run is not counted."""


@dataclass
class Clock:
    """Seconds of one kind of work in this epoch and in all epochs."""

    loading: float = 0.0
    duration: float = 0.0
    all_loading: float = 0.0
    all_duration: float = 0.0

    def add(self, loading: float, duration: float) -> None:
        """Add a batch's seconds: ``duration`` in total, ``loading`` of them spent waiting."""
        self.loading += loading
        self.duration += duration
        self.all_loading += loading
        self.all_duration += duration

    def begin_epoch(self) -> None:
        """Set the seconds of the epoch to zero."""
        self.loading, self.duration = 0.0, 0.0


class Records:
    """The open metrics.csv of a run, and its TensorBoard events if the package is installed."""

    def __init__(self, folder: Path, keep: int | None = None, epochs_done: int = 0) -> None:
        """Open the files.

        keep: the bytes of metrics.csv that a resumed run keeps; None: a new file.
        """
        self.path = folder / "metrics.csv"
        if keep is not None and self.path.exists() and self.path.stat().st_size >= keep:
            os.truncate(self.path, keep)
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115
        else:
            self._file = open(self.path, "wb", buffering=0)  # noqa: SIM115
            self._write(",".join(COLUMNS) + "\n")
        self._events = EventFile(folder / "tensorboard", epochs_done) if tensorboardX else None

    def read(self, start: float, seconds: tuple[float, float], samples: tuple[int, int]) -> None:
        """Record that the training and then the validation data were read: types 10 and 11."""
        training, test = (Clock(s, s, s, s) for s in seconds)
        self._write(
            _row(READ_TRAIN, 0, start, training, samples[0], "")
            + _row(READ_TEST, 0, start + seconds[0], test, samples[1], "")
        )

    def batch(self, epoch: int, start: float, clock: Clock, number: int, batches: int) -> None:
        """Record a training batch: type 2."""
        self._write(_row(TRAIN_BATCH, epoch, start, clock, number, batches))

    def epoch(
        self, epoch: int, starts: Pair[float], clocks: Pair[Clock], accuracies: Pair[Pair[float]]
    ) -> None:
        """Record an epoch of training and of validation, types 0 and 1, in one write.

        accuracies: (accuracy, top-5 accuracy) of each.
        """
        kinds = zip((TRAIN_EPOCH, TEST_EPOCH), starts, clocks, accuracies)
        self._write("".join(_row(k, epoch, at, c, *map(_six, both)) for k, at, c, both in kinds))

    def scalars(self, epoch: int, values: dict[str, float]) -> None:
        """Record numbers of an epoch for TensorBoard only."""
        if self._events is not None:
            self._events.add(epoch, values)

    def size(self) -> int:
        """Return the size of metrics.csv in bytes, which a checkpoint stores."""
        return self._file.tell()

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._events is not None:
            self._events.close()

    def _write(self, text: str) -> None:
        """Write whole lines.

        If the disk is full, raise OSError and leave the file as it was.
        """
        before, rest = self._file.tell(), memoryview(text.encode())
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            os.ftruncate(self._file.fileno(), before)
            self._file.seek(before)
            raise


class EventFile:
    """A TensorBoard event file, written in this thread.

    The package's own writer uses a thread, which blocks the run when the disk is full.
    """

    def __init__(self, folder: Path, epochs_done: int) -> None:
        folder.mkdir(exist_ok=True)
        self._events = event_file_writer.EventsWriter(str(folder / "events"))
        status = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(epochs_done + 1, session_log=status)  # drops later steps of a resumed run

    def add(self, epoch: int, values: dict[str, float]) -> None:
        """Write scalars by name."""
        for name, value in values.items():
            self._write(epoch, summary=summary.scalar(name, value))
        self._events.flush()

    def close(self) -> None:
        """Close the file."""
        self._events.close()

    def _write(self, step: int, **content: Any) -> None:
        self._events.write_event(event_pb2.Event(wall_time=time.time(), step=step, **content))


def read_records(path: Path) -> list[dict[str, float]]:
    """Return the rows of a metrics.csv as numbers; an empty cell is NaN."""
    return list(_rows(path))


def _rows(path: Path) -> Iterator[dict[str, float]]:
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield {key: float(value or "nan") for key, value in row.items() if key != "note"}


def _row(kind: int, epoch: int, start: float, clock: Clock, *values: Any) -> str:
    text = io.StringIO()
    seconds = map(_six, (start, clock.loading, clock.duration))
    since = map(_six, (clock.all_loading, clock.all_duration))
    csv.writer(text, lineterminator="\n").writerow([kind, epoch, *seconds, *values, *since, ""])
    return text.getvalue()


def _six(value: float) -> str:
    return f"{value:.6f}"
