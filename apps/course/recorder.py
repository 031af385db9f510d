"""A pytest plugin that writes the outcome of each test of an exercise as JSON.

``checking`` loads it with ``-p apps.course.recorder --course-report FILE``.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from .blocks import blocks_in
from .compare import Case, WrongAnswer
from .outcome import gist, open_tag

RECORDS = pytest.StashKey[list[dict[str, Any]]]()
LONGEST = 20
"""Seconds of processor time that the test of an exercise may take."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the report's file."""
    parser.addoption("--course-report", metavar="FILE", help="write outcomes to FILE as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Start with an empty report, so that a run that ends early has one too."""
    config.stash[RECORDS] = []


class TooLong(BaseException):
    """An answer computes for too long; no ``except Exception`` of the answer catches it."""


def _stop(number: int, frame: Any) -> None:
    raise TooLong(f"stopped after {LONGEST} s of computing; is there an infinite loop?")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Stop a test after some seconds of processor time, which other programs do not take."""
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Record the outcome of a test's call, or of a failed set-up."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if report.when == "call" or (error is not None and report.when == "setup"):
        tags = [mark.args[0] for mark in item.iter_markers("exercise")]
        note(item.config, item.nodeid, report.outcome, error, report.duration, tags)
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record a test file that cannot be imported."""
    if report.failed:
        found = gist(str(report.longrepr))
        COLLECTION.append({"test": report.nodeid, "outcome": "failed", **found})


COLLECTION: list[dict[str, Any]] = []


def note(
    config: pytest.Config,
    test: str,
    outcome: str,
    error: BaseException | None,
    seconds: float,
    tags: Collection[str],
) -> None:
    """Add a record: the error in a line, the case of a wrong answer, the tag of an open block."""
    case: Case | None = error.case if isinstance(error, WrongAnswer) else None
    config.stash[RECORDS].append(
        {
            "test": test,
            "outcome": outcome,
            "open": open_tag(error),
            "error": "" if error is None else f"{type(error).__name__}: {error}".strip(),
            "case": None if case is None else case.lines(),
            "place": _place(error, config.rootpath, tags),
            "seconds": seconds,
        }
    )


def _place(error: BaseException | None, root: Path, tags: Collection[str]) -> str:
    """Return where the error came from, as file:line.

    It is the innermost line in a block of the exercise, else the innermost line of the sources.
    """
    if error is None:
        return ""
    found, own, step = "", "", error.__traceback__
    blocks = [block for tag, each in blocks_in(root).items() if tag in tags for block in each]
    while step is not None:
        path = Path(step.tb_frame.f_code.co_filename)
        if any(path.is_relative_to(root / folder) for folder in ("python", "apps", "examples")):
            name, line = path.relative_to(root).as_posix(), step.tb_lineno
            found = f"{name}:{line}"
            if any(b.path == name and b.first < line <= b.last for b in blocks):
                own = found
        step = step.tb_next
    return own or found


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report."""
    place = session.config.getoption("--course-report")
    if place:
        records = session.config.stash[RECORDS] + COLLECTION
        Path(place).write_text(json.dumps(records), "utf-8")
