"""Runs servers and tasks in processes forked from one that has already imported needle.

Run as a program, this file is that process: it reads JSON commands from standard input, one per
line, and answers each with a process id.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from functools import lru_cache
from pathlib import Path
from typing import Any

from proc import alive, becomes

from needle.sharing import GlobalDataLoader, Server, ServerOptions
from needle.sharing.serving.event_loop import serve
from needle.sharing.wire.descriptions import open_named

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Forked:
    """A process, identified by its id."""

    def __init__(self, **command: Any) -> None:
        source = _source()
        assert source.stdin is not None and source.stdout is not None
        source.stdin.write(json.dumps(command) + "\n")
        source.stdin.flush()
        self.pid = int(source.stdout.readline())

    def is_alive(self) -> bool:
        return alive(self.pid)

    def send_signal(self, number: int) -> None:
        if self.is_alive():
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process and wait until it is gone."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def end(self) -> None:
        """Ask the process to exit."""
        self.send_signal(signal.SIGCONT)
        self.send_signal(signal.SIGTERM)
        self.wait()

    def wait(self) -> None:
        assert becomes(lambda: not self.is_alive(), 100)


@lru_cache(maxsize=1)
def _source() -> subprocess.Popen[str]:
    paths = [str(ROOT / "python"), str(HERE), str(ROOT / "tests" / "data")]
    process = subprocess.Popen(
        [sys.executable, str(HERE / "forks.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    atexit.register(process.kill)
    return process


def _live(command: dict[str, Any]) -> None:
    """Run the command of a forked process."""
    path = command["path"]
    if command["do"] == "serve":
        options = ServerOptions(**command["options"])
        serve(Server(open_named(command["dataset"]), Path(path), options))
        return
    loader = GlobalDataLoader(path, 8, task=command["task"], seed=1, timeout=100)
    while True:
        for _ in loader:
            time.sleep(command["pause"])


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps the children
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.dup2(os.open(os.devnull, os.O_RDWR), 1)
                _live(json.loads(line))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
