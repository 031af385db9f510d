"""The conformance suite, which checks any backend, even one outside this repository.

``run(name)`` calls every required function and every optional kernel of a registered backend on
views of all layouts and compares with NumPy (in float64) and the definitions in ``accelerated``.
On the command line: ``python -m needle.testing.conformance NAME``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ... import backends
from ...accelerated import ELEMENTWISE
from ...backends.base import OPTIONAL, Backend, provides
from ...errors import unknown_name
from .case import Case, Mismatch
from .optional import optional_cases
from .report import Report, Row
from .required import required_cases
from .services import SERVICE_ROWS, check_service

__all__ = ["Case", "Mismatch", "Report", "Row", "run"]


def run(
    backend: str | Backend, known_failures: Iterable[str] = (), only: str | None = None
) -> Report:
    """Check a backend, given by its registered name or as an object.

    ``known_failures`` lists the rows (such as ``"binary.power"``) that a backend under construction
    may still fail, besides those in the backend's own list. If a known failure passes, the report
    is not ``ok``, so the list can only shrink. ``only`` restricts the run to rows whose name starts
    with it. Raise UnknownNameError if a known failure or ``only`` matches no row.
    """
    subject = backends.get(backend) if isinstance(backend, str) else backend
    only = only or ""
    cases = [*_cases(subject)]
    rows: dict[str, Row] = {}
    for case in cases:
        if case.row.startswith(only):
            _check(subject, case, rows.setdefault(case.row, Row(case.row)))
    optional = [*OPTIONAL, *(f"unary.{name}" for name in ELEMENTWISE)]
    for name in optional:
        if name.startswith(only) and not _has(subject, name):
            rows.setdefault(name, Row(name))
    for name in SERVICE_ROWS:
        if name.startswith(only):
            rows[name] = check_service(subject, name)
    if not rows:
        every = {*(case.row for case in cases), *optional, *SERVICE_ROWS}
        raise unknown_name("conformance row", only, every)
    own = (name for name in subject.known_failures if name.startswith(only))
    known = frozenset([*known_failures, *own])
    for name in known - set(rows):
        raise unknown_name("conformance row", name, rows)
    return Report(subject.name, list(rows.values()), known)


def _cases(backend: Backend) -> Iterable[Case]:
    yield from required_cases()
    yield from (case for case in optional_cases() if _has(backend, case.row))


def _has(backend: Backend, row: str) -> bool:
    """Return True if the backend has the kernel of an optional row."""
    name = row.removeprefix("unary.")
    return name in backend.optional_unary if name in ELEMENTWISE else provides(backend, name)


def _check(backend: Backend, case: Case, row: Row) -> None:
    if not case.applies(backend):
        return
    row.cases += 1
    try:
        case.check(backend)
    except Mismatch as mismatch:
        row.failures.append(str(mismatch))
