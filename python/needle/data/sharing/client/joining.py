"""Connections from a loader to its server: one that runs already, or one that it starts.

The socket name of a server that loaders start is made from the contents of the data set, so that
programs with equal data sets use one server without being told its address. The data set reaches
the server pickled, as it does a worker process, in nameless memory whose descriptor only the child
inherits. What comes over the socket of a server is never unpickled.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from ....errors import DataError, LoaderServerError, WorkerError
from ...workers.launch import executable, interpreter_flags, interrupts_blocked
from ...workers.pickling import explain_failure, pack, unpack
from ...workers.shared_memory import Memory
from ..serving.event_loop import Server, serve
from ..serving.feed import ServerOptions
from ..wire.address import connect, socket_path
from ..wire.descriptions import fingerprint
from ..wire.protocol import Connector, FrameKind

READY = b"ready"
START_SECONDS = 60.0  # for a server to listen; a first import from a slow disk takes long
STARTER = (
    "import json, sys; settings = json.loads(sys.argv[1]); sys.path[:] = settings['path']; "
    "from needle.data.sharing.client import joining; joining.run_child(settings)"
)
_started: list[subprocess.Popen[bytes]] = []
Found = TypeVar("Found")


class ServerAddress:
    """The address of a loader's server: ``address``, or derived from ``dataset`` if that is None.

    options: of a server that this loader starts. name: another name for it.
    """

    def __init__(
        self, address: Any, dataset: Any, options: ServerOptions, name: str | None = None
    ) -> None:
        self.dataset, self.options = dataset, options
        self.fingerprint = None if dataset is None else fingerprint(dataset)
        self.starts = address is None
        self.path = socket_path((name or f"auto-{self.fingerprint}") if self.starts else address)

    def length(self) -> int:
        """Return the length of the server's data set; raises as ``connected``."""

        def read(connector: Connector) -> int:
            connector.close()
            return int(connector.server["length"])

        return self.connected(read)

    def connected(self, use: Callable[[Connector], Found]) -> Found:
        """Return ``use(connection)``; repeat it with another server if this one was at its end.

        Raises LoaderServerError if there is no server and none is to be started, DataError if the
        server has another data set or refuses the task.
        """
        end = time.monotonic() + START_SECONDS
        while True:
            channel = connect(self.path)
            if channel is None:
                self._start(end)
                continue
            connector = Connector(channel)
            try:
                self._check(connector.greet())
                return use(connector)
            except LoaderServerError:
                connector.close()
                if not self.starts or time.monotonic() > end:
                    raise
            except BaseException:
                connector.close()
                raise

    def _start(self, end: float) -> None:
        if not self.starts:
            raise LoaderServerError(
                f"GlobalDataLoader: no server listens at {self.path}; start one: python -m "
                "needle.data.sharing --dataset ..., or pass the data set itself"
            )
        if time.monotonic() > end:
            raise LoaderServerError(
                f"GlobalDataLoader: no server came to listen at {self.path}; start one by hand"
            )
        start_server(self.dataset, self.path, self.options)

    def _check(self, server: dict[str, Any]) -> None:
        theirs = server.get("fingerprint")
        if self.fingerprint is not None and theirs != self.fingerprint:
            raise DataError(
                f"GlobalDataLoader: the server at {self.path} has another data set "
                f"({server.get('dataset')}, {server.get('length')} samples); use another address"
            )


def ask_status(path: Path) -> dict[str, Any] | None:
    """Return the status of the server at ``path``; None if none listens there."""
    channel = connect(path)
    if channel is None:
        return None
    connector = Connector(channel)
    try:
        connector.greet()
        return connector.ask(FrameKind.STATUS).values
    finally:
        connector.close()


# ---- starting a server ---------------------------------------------------------------------------


def start_server(dataset: Any, path: Path, options: ServerOptions) -> None:
    """Start a server of ``dataset`` at ``path``, in a process that outlives this one.

    Returns when it listens, or when another server listens there. Raises TypeError naming the part
    of the data set that cannot be pickled, WorkerError if the child fails.
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
            "report": theirs,
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
        _await_report(channel.fileno(), process)


def run_child(settings: dict[str, Any]) -> None:
    """Run a server: the main program of the child."""
    report = settings["report"]
    os.set_inheritable(report, False)
    try:
        memory = Memory.attach(*settings["data"], writable=False)
        os.set_inheritable(memory.fd, False)
        options = ServerOptions(**settings["options"])
        server = Server(unpack(memory), Path(settings["socket"]), options)
    except BaseException as error:
        with suppress(OSError):
            os.write(report, f"{type(error).__name__}: {error}"[:4000].encode())
        os._exit(1)
    with suppress(OSError):  # the loader that started it has died; others may come
        os.write(report, READY)
    os.close(report)
    serve(server)


def reap() -> None:
    """Forget servers that have ended, so that they do not stay as zombies."""
    _started[:] = [process for process in _started if process.poll() is None]


def await_end(seconds: float) -> None:
    """Wait for a server of this process that is about to end."""
    end = time.monotonic() + seconds
    while _started and time.monotonic() < end:
        reap()
        time.sleep(0.002)


def _await_report(channel: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the child has reported that it listens, or why it cannot."""
    end, report = time.monotonic() + START_SECONDS, b""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while report != READY:
        if not poll.poll(max(0, int(1000 * (end - time.monotonic())))):
            process.kill()
            raise WorkerError(
                f"GlobalDataLoader: the server was not ready within {START_SECONDS:g} s; start it "
                "by hand: python -m needle.data.sharing"
            )
        piece = os.read(channel, 4096)
        if not piece:
            break
        report += piece
    if report != READY and b"another server listens" not in report:
        process.wait()
        reap()
        reason = report.decode(errors="replace") or "it died"
        raise WorkerError(f"GlobalDataLoader: a server cannot start: {reason}")
