"""Runs the programs that contain the C++ and CUDA exercises; called by their tests."""

import contextlib
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from apps.course.building import built_program
from apps.course.compare import Case, WrongAnswer
from apps.course.registry import exercises

LONGEST = 20
"""Limit on a program's processor time in seconds."""
ROOT = Path(__file__).resolve().parents[2]


def output_of(name: str, *arguments: str) -> tuple[list[str], int]:
    """Return the output lines of a program and its exit code; skip if it is not built."""
    program = built_program(ROOT, name)
    if program is None:
        pytest.skip(f"{name} is not built: python -m apps.course check builds it, so does make")
    limited = ["sh", "-c", f'ulimit -S -t {LONGEST}; exec "$@"', "sh", str(program), *arguments]
    begun = time.perf_counter()
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(limited, capture_output=True, text=True, timeout=2.5 * LONGEST)
        if done.returncode != -signal.SIGXCPU:
            return done.stdout.splitlines(), done.returncode
    got = f"stopped after {time.perf_counter() - begun:.0f} s"
    what, wanted = " ".join([name, *arguments]), f"an answer within {LONGEST} s"
    raise WrongAnswer(Case(what, "", wanted, got, "a loop never ends, or a thread waits for ever"))


def expect_fine(program: str, name: str) -> None:
    """Run C++ tests; the output before the line of the test ``name`` belongs to it."""
    lines, status = output_of(program, name)
    said: list[str] = []
    for line in lines:
        if line.startswith(("ok ", "FAILED ")):
            if line.split()[1] == name:
                break
            said = []
        else:
            said.append(line)
    else:
        said.append(f"the program ended with {status} before or in it")
    thrown = [line.partition(f"{name}: threw ")[2] for line in said]
    opened = [text for text in thrown if text.partition(":")[0] in exercises()]
    if opened:
        raise NotImplementedError(opened[0])
    if said:
        raise WrongAnswer(first_case(name, said))


COMPARED = re.compile(r"(?P<place>.*:\d+): (?P<what>.*) is (?P<got>.*), wanted (?P<wanted>.*)")


def first_case(name: str, said: list[str]) -> Case:
    """Return the first failing comparison of a C++ test, from the output of tests/cpp/expect.h."""
    named = (line for line in said[:2] if line.startswith(("given: ", "cause: ")))
    head = dict(line.split(": ", 1) for line in named)
    given, cause = head.get("given", ""), head.get("cause", "")
    found = COMPARED.match(said[len(head)])
    if found is None:
        return Case(name, given, "", said[0], cause)
    place = Path(found["place"])
    place = place.relative_to(ROOT) if place.is_relative_to(ROOT) else place
    return Case(f"{name}: {found['what']}, {place}", given, found["wanted"], found["got"], cause)


def raise_open(lines: list[str]) -> None:
    """Raise NotImplementedError if a program reports an empty block."""
    for line in lines:
        if line.startswith("NotImplementedError"):
            raise NotImplementedError(line.partition(": ")[2])
