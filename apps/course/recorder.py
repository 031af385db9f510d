"""A pytest plugin that writes the outcome of each of an exercise's tests as a line of JSON.

``checking`` loads it with ``-p apps.course.recorder --course-report FILE``. Each line is written at
once, also when a test begins, and FILE.trace gets the stack of a process that is stopped or
crashes. So even an answer that never returns is reported with its test and line.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import traceback
from collections.abc import Collection, Iterator
from typing import Any

import pytest

from .compare import WrongAnswer
from .outcome import gist, open_tag, place_of
from .registry import needed

LONGEST = 20
"""Seconds of processor time that an exercise's test may take."""
STUCK = 60
"""Seconds without a new test after which faulthandler ends the process.

This limit also stops a test that sleeps or that runs compiled code."""
TRACE = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the report's file."""
    parser.addoption("--course-report", metavar="FILE", help="write outcomes to FILE as JSON lines")


def pytest_configure(config: pytest.Config) -> None:
    """Start the watchdog before any test file is imported, because an import can hang, too."""
    place = config.getoption("--course-report")
    config.stash[TRACE] = None
    if place:
        config.stash[TRACE] = open(f"{place}.trace", "w")  # noqa: SIM115  (until the process ends)
        faulthandler.enable(config.stash[TRACE])
    _watch(config)


def _watch(config: pytest.Config) -> None:
    """Restart the watchdog, which ends the process after STUCK seconds."""
    if config.stash[TRACE]:
        faulthandler.dump_traceback_later(STUCK, exit=True, file=config.stash[TRACE])


def _write(config: pytest.Config, record: dict[str, Any]) -> None:
    place = config.getoption("--course-report")
    if place:
        with open(place, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


class TooLong(BaseException):
    """Raised if an answer computes for too long; not caught by ``except Exception``."""


STOPPED: set[str] = set()
"""The exercises whose tests took too long. Tests of exercises that build on them are skipped."""


def _stop(number: int, frame: Any) -> None:
    raise TooLong(f"stopped after {LONGEST} s of computing; is there an infinite loop?")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Write a record that the test begins, and restart the watchdog."""
    _write(item.config, {"test": item.nodeid, "outcome": "running", "tags": _tags(item)})
    _watch(item.config)
    return (yield)


def _tags(item: pytest.Item) -> list[str]:
    """Return the exercises that a test belongs to."""
    return [mark.args[0] for mark in item.iter_markers("exercise")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Stop a test after LONGEST seconds of processor time, which does not depend on the load."""
    tags = set(_tags(item))
    if late := sorted(STOPPED & tags.union(*map(needed, tags))):
        raise TooLong(f"not run: a test of {', '.join(late)} had to be stopped")
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        return (yield)
    except TooLong:
        STOPPED.update(tags)
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Record the outcome of a test's call, or of a failed set-up."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if report.when == "call" or (error is not None and report.when == "setup"):
        note(item.config, item.nodeid, report.outcome, error, report.duration, _tags(item))
    return report


@pytest.hookimpl
def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record a test file that cannot be imported."""
    if report.failed:
        COLLECTION.append((report.nodeid, str(report.longrepr)))


COLLECTION: list[tuple[str, str]] = []
"""Test files that cannot be imported, and what pytest says of them."""


def note(
    config: pytest.Config,
    test: str,
    outcome: str,
    error: BaseException | None,
    seconds: float,
    tags: Collection[str],
) -> None:
    """Write a record: the error in a line, the case of a wrong answer, the tag of an open block."""
    _write(
        config,
        {
            "test": test,
            "outcome": outcome,
            "open": open_tag(error),
            "error": "" if error is None else f"{type(error).__name__}: {error}".strip(),
            "case": error.case.lines() if isinstance(error, WrongAnswer) else None,
            **place_of(list(_frames(error)), config.rootpath, tags),
            "seconds": seconds,
        },
    )


def _frames(error: BaseException | None) -> Iterator[tuple[str, int]]:
    """Yield the (file, line) of an error and of its causes, the innermost last."""
    while error is not None:
        for frame, line in traceback.walk_tb(error.__traceback__):
            yield frame.f_code.co_filename, line
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Record that the process has finished."""
    for test, text in COLLECTION:
        found = gist(text, session.config.rootpath)
        _write(session.config, {"test": test, "outcome": "failed", **found})
    _write(session.config, {"test": "", "outcome": "finished"})
    faulthandler.cancel_dump_traceback_later()
