"""Reports open exercises: one line for each test that needs one, and a summary at the end."""

from collections.abc import Iterator
from typing import Any

import pytest

from apps.course.outcome import open_tag
from apps.course.registry import exercises

OPEN = pytest.StashKey[dict[str, int]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[OPEN] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Report a test that met an empty block with one line and no traceback."""
    report = yield
    tag = open_tag(call.excinfo.value) if call.excinfo else ""
    if tag:
        report.longrepr = (
            f"open: {tag} ({exercises()[tag].title}); python -m apps.course show {tag}"
        )
        met = item.config.stash.setdefault(OPEN, {})
        met[tag] = met.get(tag, 0) + 1
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    met = config.stash.get(OPEN, {})
    if met:
        terminalreporter.section("open exercises")
        for tag, exercise in exercises().items():
            if tag in met:
                line = f"part {exercise.part}  {tag:<22} {exercise.title}  ({met[tag]} tests)"
                terminalreporter.write_line(line)
