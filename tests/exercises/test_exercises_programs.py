"""Part 11 of the course: a pass over a recording, a sum in a fixed order, a ring of processes."""

import math
import re
from typing import Any

import numpy as np
import pytest

from apps.course.compare import Case, WrongAnswer, expect
from examples.ring_all_reduce import in_threads
from needle.backends.base import View
from needle.capture.buffers import BufferSlot
from needle.capture.calls import Call
from needle.capture.passes import Options, dead_calls
from needle.capture.recorded import Recording, Segment
from needle.distributed.communicator import tree_sum

DTYPE: Any = np.dtype("float32")

# ---- dead calls ----------------------------------------------------------------------------------


class Slots:
    """The slots of a recording written as text; slots in capitals outlive the step."""

    def __init__(self) -> None:
        self.named: dict[str, BufferSlot] = {}

    def view(self, name: str) -> View:
        slot = self.named.setdefault(
            name, BufferSlot(len(self.named), 4, DTYPE, fresh=name.isupper())
        )
        return View(slot, (4,), (1,), 0, DTYPE)

    def call(self, line: str) -> Call:
        """Return the call of a line such as "c = a + b" or "b = exp a"."""
        if found := re.fullmatch(r"(\w+) = (\w+) \+ (\w+)", line):
            out, a, b = map(self.view, found.groups())
            return Call("binary", ("add", a, b, out))
        words = re.fullmatch(r"(\w+) = (\w+) (\w+)", line)
        assert words is not None
        return Call("unary", (words[2], self.view(words[3]), self.view(words[1])))


def after_pass(*segments: list[str]) -> list[str]:
    """Return the lines of the remaining calls, with "|" between segments."""
    slots = Slots()
    line_of = {}
    parts = []
    for lines in segments:
        calls = [slots.call(line) for line in lines]
        line_of.update(zip(calls, lines))
        parts.append(Segment(calls=calls))
    recording = Recording(None, parts, list(slots.named.values()))  # type: ignore[arg-type]
    dead_calls.remove(recording, Options())
    found: list[str] = []
    for part in parts:
        found += ["|"] * bool(found or part is not parts[0])
        found += [line_of[call] for call in part.calls]
    return found


def expect_lines(what: str, expected: str, mistakes: dict[str, str], *segments: list[str]) -> None:
    expect(
        what,
        "; ".join(after_pass(*segments)),
        expected,
        given={"calls": "; ".join(" ; ".join(lines) for lines in segments), "OUT": "outlives"},
        mistakes=mistakes,
    )


@pytest.mark.exercise("dead-calls")
def test_dead_calls_in_one_segment() -> None:
    expect_lines(
        "a call that nobody reads",
        "b = exp a; OUT = b + a",
        {
            "nothing is needed: results that outlive the step are": "",
            "the kept calls are in reversed order": "OUT = b + a; b = exp a",
        },
        ["b = exp a", "c = exp a", "OUT = b + a"],
    )
    expect_lines(
        "a call that only a dead call reads",
        "OUT = exp a",
        {"a call that only a dead call reads is dead too": "b = exp a; OUT = exp a"},
        ["b = exp a", "c = exp b", "OUT = exp a"],
    )
    expect_lines(
        "a buffer that two calls write",
        "b = exp a; b = log a; OUT = exp b",
        {"a call may write a part of a buffer: it is needed before, too": "b = log a; OUT = exp b"},
        ["b = exp a", "b = log a", "OUT = exp b"],
    )


@pytest.mark.exercise("dead-calls")
def test_dead_calls_across_segments() -> None:
    expect_lines(
        "a result that a later segment reads",
        "b = exp a; |; OUT = log b",
        {
            "later segments read results of earlier ones": "|; OUT = log b",
        },
        ["b = exp a", "c = exp a"],
        ["OUT = log b", "d = exp c"],
    )


# ---- sums ----------------------------------------------------------------------------------------


@pytest.mark.exercise("tree-sum")
def test_the_order_of_a_sum() -> None:
    big = np.float32(1e8)  # 1e8 + 1 is 1e8 in float32
    for numbers, total, mistakes in (
        ([3.0], 3.0, {}),
        (
            [big, 1, -big, 1],
            2.0,
            {"the numbers are added from left to right": 1.0, "neighbours are added first": 0.0},
        ),
        ([big, 1, -big], 1.0, {"of an odd number of arrays one is lost": big}),
        ([1, big, 2, 4, -big], 7.0, {"of an odd number of arrays one is lost": 3.0}),
    ):
        parts = [np.array([number], np.float32) for number in numbers]
        expect(
            "tree_sum(parts)",
            tree_sum(parts),
            np.array([total], np.float32),
            given={"parts": numbers},
            mistakes={name: np.array([value], np.float32) for name, value in mistakes.items()},
        )


# ---- the ring ------------------------------------------------------------------------------------


def arrays_of(size: int, length: int) -> list[Any]:
    return [np.arange(1, length + 1, dtype=np.float32) * 10**rank for rank in range(size)]


@pytest.mark.exercise("ring-all-reduce")
def test_two_ranks() -> None:
    arrays = [np.array([1, 2], np.float32), np.array([10, 20], np.float32)]
    in_threads(arrays)
    for rank, one_round, added_twice in ((0, [1, 22], [12, 22]), (1, [11, 20], [11, 42])):
        mistakes = {
            "the complete parts are not passed on: the second round is missing": one_round,
            "the first round must add what it receives to its own part": [1, 20],
            "the second round must replace parts: they are complete": added_twice,
        }
        expect(
            f"the array of rank {rank}",
            arrays[rank],
            np.array([11, 22], np.float32),
            given={"rank 0": [1, 2], "rank 1": [10, 20]},
            mistakes={name: np.array(value, np.float32) for name, value in mistakes.items()},
        )


@pytest.mark.exercise("ring-all-reduce")
def test_rings_of_any_size() -> None:
    for size, length in ((1, 3), (3, 3), (3, 8), (4, 2), (5, 0), (4, 13)):
        arrays = arrays_of(size, length)
        expected = np.sum(arrays, axis=0, dtype=np.float32)
        in_threads(arrays)
        for rank, array in enumerate(arrays):
            given = {"size": size, "rank": rank, "length": length}
            expect(f"the array of rank {rank} of {size}", array, expected, given=given)


@pytest.mark.exercise("ring-all-reduce")
def test_what_a_ring_sends() -> None:
    size, length = 4, 12
    sent = in_threads(arrays_of(size, length))[0]
    numbers = 2 * (size - 1) * length // size
    if sum(sent) > numbers:
        cause = "send one part at a time: the whole array costs as much at every step as all parts"
        raise WrongAnswer(
            Case(
                "the numbers that rank 0 sends",
                f"size = {size}, length = {length}",
                str(numbers),
                str(sum(sent)),
                cause,
            )
        )
    expect("the lengths of the messages of rank 0", sent, [length // size] * (2 * (size - 1)))
    assert math.fsum(sent) == numbers
