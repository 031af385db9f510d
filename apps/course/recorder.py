"""A pytest plugin: writes down, as JSON, how each test of an exercise ended.

Loaded by ``-p apps.course.recorder --course-report FILE``, which ``checking`` does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .compare import Case, WrongAnswer
from .outcome import gist, open_tag

RECORDS = pytest.StashKey[list[dict[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The place of the report."""
    parser.addoption("--course-report", metavar="FILE", help="write outcomes to FILE as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """An empty report, so that a run that ends early leaves one too."""
    config.stash[RECORDS] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Notes the outcome of a test: of its call, or of a set-up that failed."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if report.when == "call" or (error is not None and report.when == "setup"):
        note(item.config, item.nodeid, report.outcome, error, report.duration)
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A test file that cannot be imported is an outcome too."""
    if report.failed:
        found = gist(str(report.longrepr))
        COLLECTION.append({"test": report.nodeid, "outcome": "failed", **found})


COLLECTION: list[dict[str, Any]] = []


def note(
    config: pytest.Config, test: str, outcome: str, error: BaseException | None, seconds: float
) -> None:
    """Adds a record: the error in a line, the case of a wrong answer, the tag of an open block."""
    case: Case | None = error.case if isinstance(error, WrongAnswer) else None
    config.stash[RECORDS].append(
        {
            "test": test,
            "outcome": outcome,
            "open": open_tag(error),
            "error": "" if error is None else f"{type(error).__name__}: {error}".strip(),
            "case": None if case is None else case.lines(),
            "place": _place(error, config.rootpath),
            "seconds": seconds,
        }
    )


def _place(error: BaseException | None, root: Path) -> str:
    """The last line of a source of needle that the error went through, as file:line."""
    found, step = "", error.__traceback__ if error is not None else None
    while step is not None:
        path = Path(step.tb_frame.f_code.co_filename)
        if any(path.is_relative_to(root / folder) for folder in ("python", "apps", "examples")):
            found = f"{path.relative_to(root)}:{step.tb_lineno}"
        step = step.tb_next
    return found


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the report."""
    place = session.config.getoption("--course-report")
    if place:
        records = session.config.stash[RECORDS] + COLLECTION
        Path(place).write_text(json.dumps(records), "utf-8")
