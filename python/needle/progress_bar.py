"""``needle.progress``: a progress bar around a loader, with rate, time left and the latest loss.

Called by users and by apps/train.py.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, TextIO, TypeVar

T = TypeVar("T")
BAR = 20
SECONDS_ON_A_SCREEN = 0.1
SECONDS_IN_A_FILE = 30.0


class progress(Generic[T]):
    """An iterator over the items of ``iterable`` that shows how far it is.

    On a terminal and in a notebook one line rewrites itself; in a file a line appears every 30 s,
    and one at the end. It goes to stderr, in a notebook to stdout. The rate counts samples where
    the iterable is a loader (it has ``batch_size``), else items.

    title: text before the bar. total: number of items, ``len(iterable)`` if it is not given and
    there is one; without it there is no bar and no time left. done: items that were done before, as
    in a resumed epoch. keep: leave the last line; False removes it, and a file has no line at the
    end.

    >>> for images, labels in (bar := needle.progress(loader, "epoch 1")):  # doctest: +SKIP
    ...     loss = step(images, labels)
    ...     bar.show(loss=loss)
    """

    def __init__(
        self,
        iterable: Iterable[T],
        title: str = "",
        *,
        total: int | None = None,
        done: int = 0,
        keep: bool = True,
    ) -> None:
        self.iterable, self.title, self.done, self.keep = iterable, title, done, keep
        if total is None and isinstance(iterable, Sized):
            total = len(iterable)
        self.total = total
        self._counts_samples = hasattr(iterable, "batch_size")
        self._values: dict[str, Any] = {}
        self._first, self._units, self._written = done, 0, ""

    def show(self, **values: Any) -> None:
        """Set the values behind the bar: text, numbers or Tensors of one element.

        A Tensor is read only when the line is drawn, a few times per second.
        """
        self._values.update(values)

    def __iter__(self) -> Iterator[T]:
        self._stream, self._rewrites = _place()
        pause = SECONDS_ON_A_SCREEN if self._rewrites else SECONDS_IN_A_FILE
        self._began = drawn = time.perf_counter()
        try:
            for item in self.iterable:
                yield item
                self.done += 1
                self._units += _samples(item) if self._counts_samples else 1
                if time.perf_counter() - drawn >= pause:
                    self._draw()
                    drawn = time.perf_counter()
        finally:
            self._end()

    def line(self, width: int | None = None) -> str:
        """Return the line as it is now; the bar shrinks to fit ``width`` columns."""
        line = self._line(BAR)
        if width is None or len(line) <= width:
            return line
        return self._line(max(BAR - (len(line) - width), 0))[:width]

    def _line(self, length: int) -> str:
        seconds = max(time.perf_counter() - self._began, 1e-9)
        parts = [self.title] if self.title else []
        if self.total:
            share = min(self.done / self.total, 1.0)
            full = int(share * length)
            bar = f" [{'#' * full}{'.' * (length - full)}]" if length else ""
            parts.append(f"{share:4.0%}{bar}")
        parts.append(f"{self.done:,}" + (f"/{self.total:,}" if self.total else ""))
        parts += [f"{name} {_as_text(value)}" for name, value in self._values.items()]
        unit = "samples" if self._counts_samples else "items"
        rate = f"{_number(self._units / seconds)} {unit}/s"
        return "  ".join([*parts, self._time(seconds), rate])

    def _time(self, seconds: float) -> str:
        """Return the time left, or the time taken if nothing is left or the end is unknown."""
        here = self.done - self._first
        if here and self.total and self.total > self.done:
            return f"{_clock(seconds * (self.total - self.done) / here)} left"
        return _clock(seconds)

    def _draw(self) -> None:
        if self._rewrites:
            line = self.line(shutil.get_terminal_size().columns - 1)
            self._stream.write("\r" + line.ljust(len(self._written)))
            self._written = line
        else:
            self._stream.write(self.line() + "\n")
        self._stream.flush()

    def _end(self) -> None:
        if self.keep:
            self._draw()
            self._stream.write("\n" if self._rewrites else "")
        elif self._written:
            self._stream.write("\r" + " " * len(self._written) + "\r")
        self._stream.flush()


def _place() -> tuple[TextIO, bool]:
    """Return the stream to write to, and True if a carriage return rewrites a line there."""
    if type(sys.stdout).__module__.startswith("ipykernel"):
        return sys.stdout, True
    return sys.stderr, sys.stderr.isatty()


def _samples(batch: Any) -> int:
    """Return the number of samples of a batch: the length of its first array."""
    while isinstance(batch, (tuple, list, dict)) and batch:
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    shape = getattr(batch, "shape", ())
    return int(shape[0]) if shape else 1


def _as_text(value: Any) -> str:
    value = value.item() if hasattr(value, "item") else value
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _number(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
