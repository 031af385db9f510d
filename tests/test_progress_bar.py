"""needle.progress: the line that it shows, the stream that it uses, and items passed unchanged."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest

import needle
from needle import data, progress_bar


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that a test advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress_bar.time, "perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def stream(monkeypatch: pytest.MonkeyPatch, made: io.StringIO) -> io.StringIO:
    monkeypatch.setattr(progress_bar.sys, "stderr", made)
    return made


def shown_on(screen: io.StringIO) -> list[str]:
    """Return what a terminal shows after each update of its line."""
    lines, line = [], ""
    for part in screen.getvalue().split("\r"):
        line = part + line[len(part) :]
        lines.append(line.rstrip())
    return lines[1:]


def test_a_terminal_shows_share_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    screen, seen = stream(monkeypatch, Screen()), []
    for item in (bar := needle.progress([3, 1, 4, 1], "epoch 2/5")):
        seen.append(item)
        clock.now += 2.0
        bar.show(loss=0.123456, right="7 of 9")
    assert seen == [3, 1, 4, 1]
    behind = "loss 0.1235  right 7 of 9"
    assert shown_on(screen) == [
        f"epoch 2/5   25% [#####...............]  1/4  {behind}  0:06 left  0.5 items/s",
        f"epoch 2/5   50% [##########..........]  2/4  {behind}  0:04 left  0.5 items/s",
        f"epoch 2/5   75% [###############.....]  3/4  {behind}  0:02 left  0.5 items/s",
        f"epoch 2/5  100% [####################]  4/4  {behind}  0:08  0.5 items/s",
        f"epoch 2/5  100% [####################]  4/4  {behind}  0:08  0.5 items/s",
    ]
    assert screen.getvalue().endswith("0:08  0.5 items/s\n")


def test_the_line_fits_the_terminal_and_leaves_no_rest(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    screen = stream(monkeypatch, Screen())
    for item in (bar := needle.progress(range(2))):
        clock.now += 1
        bar.show(note="long" * 9 if item == 0 else "short")
    first, *_, last = shown_on(screen)
    assert first.startswith(" 50%  1/2  note longlong") and "[####" in last
    assert len(first) == 49 and "long" in first and "long" not in last


def test_a_line_that_is_not_kept_is_removed(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    screen = stream(monkeypatch, Screen())
    for _ in needle.progress(range(3), keep=False):
        clock.now += 1
    assert shown_on(screen)[0] and shown_on(screen)[-1] == ""


def test_a_file_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    for keep, counts in ((True, ["3/7", "6/7", "7/7"]), (False, ["3/7", "6/7"])):
        file = stream(monkeypatch, io.StringIO())
        for _ in needle.progress(range(7), keep=keep):
            clock.now += 10
        assert "\r" not in file.getvalue()
        lines = file.getvalue().splitlines()
        assert [line.split("]  ")[1].split()[0] for line in lines] == counts


def test_a_loader_counts_samples_also_in_a_resumed_epoch(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    stream(monkeypatch, io.StringIO())
    loader = data.DataLoader(data.ArrayDataset(np.zeros((100, 2)), np.arange(100)), 30)
    bar, lengths = needle.progress(loader, done=4, total=8), []
    for images, _ in bar:
        lengths.append(images.shape[0])
        clock.now += 10
    assert lengths == [30, 30, 30, 10]
    assert bar.line() == "100% [####################]  8/8  0:40  2.5 samples/s"
    bar = needle.progress(loader, done=4, total=16)
    for _ in bar:
        clock.now += 900
    assert "8/16" in bar.line() and bar.line().endswith("2:00:00 left  0.0278 samples/s")


def test_items_without_a_length_have_no_bar(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    file = stream(monkeypatch, io.StringIO())
    for _ in needle.progress(iter("abcd"), "letters"):
        clock.now += 1 / 1000
    assert file.getvalue() == "letters  4  0:00  1,000 items/s\n"


def test_tensors_are_read_when_the_line_is_drawn(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    file, reads = stream(monkeypatch, io.StringIO()), []

    class Counted:
        def item(self) -> float:
            reads.append(1)
            return 0.5

    for _ in (bar := needle.progress(range(1000))):
        bar.show(loss=Counted())
    assert len(reads) == 1
    for _ in (bar := needle.progress(range(1))):
        bar.show(loss=needle.Tensor([2.25]).sum(), count=np.int64(3))
    assert "loss 0.5  " in file.getvalue() and "loss 2.25  count 3  " in file.getvalue()


@pytest.mark.parametrize("ending", ["break", "raise"])
def test_a_loop_that_ends_early_ends_the_line(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, ending: str
) -> None:
    screen = stream(monkeypatch, Screen())

    def loop() -> None:
        for item in needle.progress(range(9)):
            clock.now += 1
            if item == 4:
                if ending == "raise":
                    raise ZeroDivisionError
                break

    if ending == "raise":
        with pytest.raises(ZeroDivisionError):
            loop()
    else:
        loop()
    assert "4/9" in shown_on(screen)[-1] and screen.getvalue().endswith(os.linesep)


def test_no_items(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    file = stream(monkeypatch, io.StringIO())
    assert list(needle.progress([])) == []
    assert file.getvalue() == "0  0:00  0 items/s\n"


def test_a_notebook_rewrites_a_line_of_its_output(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    class OutStream(io.StringIO):
        """The stream that is sys.stdout in a notebook, which is not a terminal."""

    OutStream.__module__ = "ipykernel.iostream"
    cell, errors = OutStream(), stream(monkeypatch, Screen())
    monkeypatch.setattr(progress_bar.sys, "stdout", cell)
    for _ in needle.progress(range(2), "cell"):
        clock.now += 1
    assert shown_on(cell)[0].startswith("cell   50% [##########....") and not errors.getvalue()
    assert cell.getvalue().endswith("1 items/s\n")
