"""Servers in the foreground that tests start and stop."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path


def free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextlib.contextmanager
def running(commands: list[list[str]], folder: Path, **options: object) -> Iterator[None]:
    """Run all commands until the end of the block; their output is in the folder."""
    with contextlib.ExitStack() as stack:
        started = []
        for number, command in enumerate(commands):
            log = stack.enter_context(open(folder / f"{number}.log", "wb"))
            both = {"stdout": log, "stderr": subprocess.STDOUT}
            started.append(subprocess.Popen(command, cwd=folder, **both, **options))  # type: ignore[call-overload]
        try:
            yield
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def wait_for_answer(endpoint: str, folder: Path, seconds: float = 60.0) -> None:
    """Wait until the server gives any HTTP answer; raise with its last output if it does not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(endpoint, timeout=5).close()
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500:
                return
        except OSError:
            pass
        time.sleep(0.1)
    logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.log"))
    raise RuntimeError(f"no answer from {endpoint} in {seconds} s\n{logs}")
