"""The report of a conformance run: one row per function, and the printed table.

Filled by ``run``; read by the command line and by tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...backends.base import REQUIRED, UNARY

SHOWN = 8
"""The maximum number of known failures that the table names."""

PASSES, FALLS_BACK, FAILS = "passes", "falls back", "FAILS"


def _is_required(row: str, function: str) -> bool:
    """Return True if a row belongs to a required function and is not an optional unary kernel."""
    name, _, operation = row.partition(".")
    return name == function and (name != "unary" or operation in ("", *UNARY))


@dataclass
class Row:
    """One function of the interface: the number of cases and the failures in order."""

    name: str
    cases: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        """``passes``, ``FAILS`` or ``falls back`` (no kernel, so the definition runs)."""
        if self.failures:
            return FAILS
        return PASSES if self.cases else FALLS_BACK

    def __str__(self) -> str:
        line = f"{self.name:<24} {self.state:<11}"
        if self.failures:
            return f"{line} {len(self.failures)} of {self.cases} cases; {self.failures[0]}"
        return f"{line} {self.cases} cases" if self.cases else line.rstrip()


@dataclass
class Report:
    """The rows of a run and the strict list of its known failures."""

    backend: str
    rows: list[Row]
    known_failures: frozenset[str] = frozenset()

    @property
    def failed(self) -> list[str]:
        """The names of the rows that fail."""
        return [row.name for row in self.rows if row.failures]

    @property
    def unexpected(self) -> list[str]:
        """The names of rows that fail but are not listed as known failures."""
        return [name for name in self.failed if name not in self.known_failures]

    @property
    def repaired(self) -> list[str]:
        """The known failures that no longer fail and must be removed from the list."""
        return sorted(self.known_failures - set(self.failed))

    @property
    def ok(self) -> bool:
        """True if exactly the known failures fail."""
        return not self.unexpected and not self.repaired

    def row(self, name: str) -> Row:
        """Return the row called ``name``; raise KeyError if there is none."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def progress(self) -> str:
        """Return the progress of each required function that was run, such as ``unary 3 of 33``."""
        parts, done = [], 0
        for name in REQUIRED:
            rows = [row for row in self.rows if _is_required(row.name, name)]
            passed = sum(row.state == PASSES for row in rows)
            done += bool(rows) and passed == len(rows)
            if rows:
                parts.append(
                    f"{name} {passed} of {len(rows)}"
                    if len(rows) > 1
                    else (f"{name} {'yes' if passed else 'no'}")
                )
        return f"the ten: {done} done ({', '.join(parts)})"

    def table(self) -> str:
        """Return the rows as text, with a summary line."""
        count = dict.fromkeys((PASSES, FALLS_BACK, FAILS), 0)
        for row in self.rows:
            count[row.state] += 1
        lines = [f"backend {self.backend}", f"{'function':<24} result", *map(str, self.rows)]
        lines.append("; ".join(f"{n} {state}" for state, n in count.items()))
        if self.failed:
            lines.append(self.progress())
        if known := sorted(self.known_failures & set(self.failed)):
            shown = ", ".join(known[:SHOWN]) + (", ..." if len(known) > SHOWN else "")
            lines.append(f"known failures: {shown} ({len(known)})")
        if self.repaired:
            lines.append(f"listed as failing but not so: {', '.join(self.repaired)}; unlist them")
        return "\n".join(lines)
