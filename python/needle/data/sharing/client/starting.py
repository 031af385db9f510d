"""A server as a child of the loader that needs one first: how the data set gets there.

The data set travels pickled, as to a worker process, in nameless memory whose descriptor only the
child inherits: nobody else can put anything there, and the child runs with its parent's rights
anyway. What comes over the server's socket is never unpickled.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....errors import WorkerError
from ...workers.launch import executable, interpreter_flags, interrupts_blocked
from ...workers.pickling import explain_failure, pack, unpack
from ...workers.shared_memory import Memory
from ..serving.server import Options, Server, serve

READY = b"ready"
PATIENCE = 60.0  # seconds; a first import from a slow disk is in it
STARTER = (
    "import json, sys; settings = json.loads(sys.argv[1]); sys.path[:] = settings['path']; "
    "from needle.data.sharing.client import starting; starting.run_child(settings)"
)
_started: list[subprocess.Popen[bytes]] = []


def start_server(dataset: Any, path: Path, options: Options) -> None:
    """Starts a server of ``dataset`` at ``path``, in a process that outlives this one.

    Returns when it listens, or when another server has the place. Raises TypeError naming the
    part of the data set that cannot be pickled, WorkerError where the child fails.
    """
    reap()
    try:
        memory = pack(dataset, "the data set")
    except WorkerError:
        raise
    except Exception as error:
        raise explain_failure(dataset, "dataset", error) from error
    ours, theirs = os.pipe()
    try:
        settings = {
            "path": sys.path,
            "data": [memory.fd, memory.size],
            "tell": theirs,
            "socket": str(path),
            "options": asdict(options),
        }
        command = [executable(), *interpreter_flags(), "-c", STARTER, json.dumps(settings)]
        with interrupts_blocked():
            process = subprocess.Popen(
                command,
                pass_fds=[memory.fd, theirs],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        _started.append(process)
    finally:
        os.close(theirs)
        memory.close()
    with os.fdopen(ours, "rb") as channel:
        _await(channel.fileno(), process)


def reap() -> None:
    """Lets go of children that have ended; a system need not have another one who does."""
    _started[:] = [process for process in _started if process.poll() is None]


def await_end(seconds: float) -> None:
    """Gives a server that this process has started and that is about to end time to do so."""
    end = time.monotonic() + seconds
    while _started and time.monotonic() < end:
        reap()
        time.sleep(0.002)


def run_child(settings: dict[str, Any]) -> None:
    """The child's main program."""
    tell = settings["tell"]
    os.set_inheritable(tell, False)
    try:
        memory = Memory.attach(*settings["data"], writable=False)
        os.set_inheritable(memory.fd, False)
        server = Server(unpack(memory), Path(settings["socket"]), Options(**settings["options"]))
    except BaseException as error:
        with suppress(OSError):
            os.write(tell, f"{type(error).__name__}: {error}"[:4000].encode())
        os._exit(1)
    with suppress(OSError):  # who started it has died; others may come
        os.write(tell, READY)
    os.close(tell)
    serve(server)


def _await(channel: int, process: subprocess.Popen[bytes]) -> None:
    """Until the child has said how it went."""
    end, told = time.monotonic() + PATIENCE, b""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while told != READY:
        if not poll.poll(max(0, int(1000 * (end - time.monotonic())))):
            process.kill()
            raise WorkerError(
                f"GlobalDataLoader: the server was not ready within {PATIENCE:g} s; start it by "
                "hand: python -m needle.data.sharing"
            )
        piece = os.read(channel, 4096)
        if not piece:
            break
        told += piece
    if told != READY and b"another server listens" not in told:
        process.wait()
        reap()
        raise WorkerError(
            f"GlobalDataLoader: a server cannot start: {told.decode(errors='replace') or 'it died'}"
        )
