"""A server in the foreground that tests start and stop."""

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
def running(command: list[str], folder: Path) -> Iterator[None]:
    """Run the command until the end of the block; its output is in the folder."""
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
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
