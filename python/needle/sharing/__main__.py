"""``python -m needle.sharing``: run a server of a data set, or show the status of servers."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..data.workers.shared_memory import readable_bytes
from ..errors import NeedleError
from .client.joining import ask_status
from .serving.event_loop import Server, serve
from .serving.feed import ServerOptions
from .wire.address import servers, socket_path
from .wire.descriptions import open_named, shared_names

_EXAMPLES = """examples:
  python -m needle.sharing --dataset 'folder:/photos?layout=HWC&dtype=uint8' --name photos
  python -m needle.sharing --dataset my_module:my_function --name mine --workers 8
  python -m needle.sharing --status --every 2
and in a program: GlobalDataLoader("photos", 32, task="first", transforms=[...])"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    given = _parser().parse_args(arguments)
    try:
        return _show(given.name, given.every) if given.status else _serve(given)
    except (NeedleError, ValueError, ImportError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m needle.sharing",
        description="One loader for many training tasks: reads each sample once for all of them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--dataset", metavar="KIND:PATH", help="serve this data set")
    action.add_argument("--status", action="store_true", help="show tasks, rates, hits and reads")
    parser.add_argument("--name", help="name of the server, or path of its socket")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="repeat the status")
    cores = os.cpu_count() or 1
    parser.add_argument("--workers", type=int, default=cores, help="processes that read (cores)")
    parser.add_argument("--cache", type=int, default=1024, metavar="MIB", help="memory kept (1024)")
    parser.add_argument("--spill", type=int, default=0, metavar="MIB", help="more, in a file (0)")
    ends = "end with the last task, or if no task comes"
    parser.add_argument("--until-last", action="store_true", help=ends)
    beat = "seconds between heartbeats (5)"
    parser.add_argument("--beat", type=float, default=5.0, metavar="SECONDS", help=beat)
    parser.add_argument("--seed", type=int, help="of the draws; by default a random one")
    return parser


def _serve(given: argparse.Namespace) -> int:
    options = ServerOptions(
        workers=given.workers,
        budget=given.cache << 20,
        spill=given.spill << 20,
        beat=given.beat,
        until_last=given.until_last,
        seed=given.seed,
    )
    server = Server(open_named(given.dataset), socket_path(given.name or "default"), options)
    print(f"{server.socket.path}: serving {given.dataset}, {server.length()} samples", flush=True)
    serve(server)
    return 0


# ---- status --------------------------------------------------------------------------------------


def _show(name: str | None, every: float | None) -> int:
    while True:
        paths = servers() if name is None else [socket_path(name)]
        found = [(path, ask_status(path)) for path in paths]
        for path, status in found:
            print(_status_text(path, status), flush=True)
        if not found:
            print("no servers")
        if every is None:
            return 0 if any(status is not None for _, status in found) else 1
        time.sleep(every)


def _status_text(path: Path, status: dict[str, Any] | None) -> str:
    if status is None:
        return f"{path}: no server listens here any more"
    lines = [
        f"{path}: {status['dataset']}, {status['length']} samples, process {status['pid']}, "
        f"up {status['seconds']:.0f} s; {_counts(status['totals'])}"
    ]
    for feed in status["feeds"]:
        lines += _feed_lines(feed)
    return "\n".join(lines if status["feeds"] else [*lines, "  no tasks"])


def _feed_lines(feed: dict[str, Any]) -> list[str]:
    share, shared, _ = json.loads(feed["what"])
    lines = [
        f"  {share} samples, {shared_names(shared) or 'as they are read'}: {_counts(feed)}, "
        f"{feed['entries']} in {readable_bytes(feed['bytes'])} of memory, of which "
        f"{readable_bytes(feed['held_bytes'])} in use",
        f"  {'task':<24} {'epoch':>5} {'done':>6} {'samples/s':>10} {'hits':>6} {'ahead':>6}",
    ]
    for task in feed["tasks"]:
        done, hits = task["drawn"] / task["size"], task["hits"] / max(1, task["delivered"])
        lines.append(
            f"  {task['task']:<24.24} {task['epoch']:>5} {done:>6.0%} {task['rate']:>10.0f} "
            f"{min(1.0, hits):>6.0%} {task['waiting']:>6}"
        )
    for slow in feed["slow"]:
        waiting = ", ".join(slow["tasks"]) or "no task"
        lines.append(f"  sample {slow['sample']} is read for {slow['seconds']:.0f} s: {waiting}")
    return lines


def _counts(done: dict[str, Any]) -> str:
    delivered, reads = done["delivered"], done["reads"]
    ratio = reads / delivered if delivered else 0.0
    return f"{delivered} samples delivered, {reads} read ({ratio:.3f} for each)"


if __name__ == "__main__":
    sys.exit(main())
