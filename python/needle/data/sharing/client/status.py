"""How servers do, for people: tasks, rates, hits, readings for each sample delivered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...workers.shared_memory import readable_bytes
from ..wire.address import connect
from ..wire.call import Call
from ..wire.protocol import Kind


def ask_status(path: Path) -> dict[str, Any] | None:
    """The status of the server at ``path``; None where none lives there."""
    channel = connect(path)
    if channel is None:
        return None
    call = Call(channel)
    try:
        call.greet()
        return call.ask(Kind.STATUS).values
    finally:
        call.close()


def status_text(path: Path, status: dict[str, Any] | None) -> str:
    """A server's status in lines of text."""
    if status is None:
        return f"{path}: no server lives here any more"
    totals = status["totals"]
    lines = [
        f"{path}: {status['dataset']}, {status['length']} samples, process {status['pid']}, "
        f"up {status['seconds']:.0f} s, policy {status['policy']}; so far {_counts(totals)}"
    ]
    for feed in status["feeds"]:
        lines += _feed_lines(feed)
    return "\n".join(lines if status["feeds"] else [*lines, "  no tasks"])


def _feed_lines(feed: dict[str, Any]) -> list[str]:
    lines = [
        f"  {_what(feed['what'])}: {_counts(feed)}, {feed['entries']} in "
        f"{readable_bytes(feed['bytes'])} of memory, "
        f"{readable_bytes(feed['held_bytes'])} of it in use",
        f"  {'task':<24} {'epoch':>5} {'of it':>6} {'samples/s':>10} {'hits':>6} {'ahead':>6}",
    ]
    for task in feed["tasks"]:
        done, hits = task["drawn"] / task["size"], task["hits"] / max(1, task["delivered"])
        lines.append(
            f"  {task['task']:<24.24} {task['epoch']:>5} {done:>6.0%} {task['rate']:>10.0f} "
            f"{min(1.0, hits):>6.0%} {task['waiting']:>6}"
        )
    return lines


def _what(key: str) -> str:
    """Which samples a feed gives out, from the name that the server has for it."""
    share, shared, _ = json.loads(key)
    return f"{share} samples, {' and '.join(each['name'] for each in shared) or 'as they are read'}"


def _counts(done: dict[str, Any]) -> str:
    delivered, reads = done["delivered"], done["reads"]
    ratio = reads / delivered if delivered else 0.0
    return f"{delivered} samples delivered, {reads} read ({ratio:.3f} for each)"
