"""``python -m needle.data.sharing``: runs a server of a data set, or shows how servers do."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from ...errors import NeedleError
from .client.status import ask_status, status_text
from .planner import policies
from .serving.server import Options, Server, serve
from .wire.address import servers, socket_path
from .wire.named_sets import open_named

_EXAMPLES = """examples:
  python -m needle.data.sharing --dataset 'folder:/photos?layout=HWC&dtype=uint8' --name photos
  python -m needle.data.sharing --dataset my_module:my_function --name mine --workers 8
  python -m needle.data.sharing --status --every 2
and in a program: GlobalDataLoader("photos", 32, task="first", transforms=[...])"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns its exit code."""
    given = _parser().parse_args(arguments)
    try:
        if given.status:
            return _show(given.name, given.every)
        return _serve(given)
    except (NeedleError, ValueError, ImportError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _serve(given: argparse.Namespace) -> int:
    options = Options(
        workers=given.workers,
        budget=given.cache << 20,
        spill=given.spill << 20,
        beat=given.beat,
        until_last=given.until_last,
        policy=given.policy,
        seed=given.seed,
    )
    server = Server(open_named(given.dataset), socket_path(given.name or "default"), options)
    print(f"{server.place.path}: serving {given.dataset}, {server.length()} samples", flush=True)
    serve(server)
    return 0


def _show(name: str | None, every: float | None) -> int:
    while True:
        paths = servers() if name is None else [socket_path(name)]
        found = [(path, ask_status(path)) for path in paths]
        for path, status in found:
            print(status_text(path, status), flush=True)
        if not found:
            print("no servers")
        if every is None:
            return 0 if any(status is not None for _, status in found) else 1
        time.sleep(every)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m needle.data.sharing",
        description="One loader for many training tasks: reads each sample once for all of them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--dataset", metavar="KIND:PATH", help="serve this data set")
    what.add_argument("--status", action="store_true", help="show tasks, rates, hits and readings")
    parser.add_argument("--name", help="the server's name, or the path of its socket")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="show the status again")
    cores = os.cpu_count() or 1
    parser.add_argument("--workers", type=int, default=cores, help="processes that read (cores)")
    parser.add_argument("--cache", type=int, default=1024, metavar="MIB", help="memory kept (1024)")
    parser.add_argument("--spill", type=int, default=0, metavar="MIB", help="more, in a file (0)")
    ends = "end with the last task, or if none comes"
    parser.add_argument("--until-last", action="store_true", help=ends)
    parser.add_argument("--beat", type=float, default=5.0, metavar="SECONDS", help="of heartbeats")
    parser.add_argument("--policy", choices=policies(), default="coupled", help="of the draws")
    parser.add_argument("--seed", type=int, help="of the draws; another one each time by default")
    return parser


if __name__ == "__main__":
    sys.exit(main())
