"""Connect a loader to its server, which is already running or is started by the loader.

The socket name of a server that loaders start is made from the contents of the data set, so that
programs with equal data sets use one server without being told its address. The data set reaches
the server as a pickle, as it reaches a worker process, in anonymous memory whose descriptor only
the child inherits. Data from the socket of a server is never unpickled.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from ...data.workers.limits import described_limit
from ...data.workers.pickling import explain_failure, pack, unpack
from ...data.workers.shared_memory import Memory
from ...data.workers.shared_supervisor import executable, interpreter_flags, interrupts_blocked
from ...errors import DataError, LoaderServerError, NeedleError, WorkerError
from ..serving.event_loop import Server, serve
from ..serving.feed import ServerOptions
from ..wire.address import connect, socket_path
from ..wire.fingerprint import fingerprint, surroundings
from ..wire.protocol import Connector, FrameKind, text_of_error

READY = b"ready"
MOST_KILLS = 5  # number of consecutive servers that may be killed while starting
LACKS = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
END_SECONDS = 2.0
START_SECONDS = 60.0  # seconds for a server to listen; a first import from a slow disk takes long
STARTER = """
import json, os, select, sys, threading
settings, poll = json.loads(sys.argv[1]), select.poll()
settings["listens"] = listens = []
poll.register(settings["starter"], select.POLLIN)
threading.Thread(target=lambda: poll.poll() and listens or os._exit(1), daemon=True).start()
sys.path[:] = settings["path"]
from needle.sharing.client import joining
joining.run_child(settings)
"""
"""Main program of a server, which exits at once if its parent dies before it listens."""
_started: dict[Path, subprocess.Popen[bytes]] = {}  # servers by socket path
Found = TypeVar("Found")


class ServerAddress:
    """A loader's server, found at ``address`` or, if that is None, by ``dataset``.

    dataset: None if only the server has it; otherwise its fingerprint must equal the server's.
    options: the options of a server that this loader starts. name: replaces the derived name. The
    constructor makes no system calls; ``connected`` makes the first.
    """

    def __init__(
        self, address: Any, dataset: Any, options: ServerOptions, name: str | None = None
    ) -> None:
        self.dataset, self.options = dataset, options
        self.starts = address is None
        self._address = name if self.starts else address

    @cached_property
    def fingerprint(self) -> str | None:
        """The fingerprint of the data set, if this process has it."""
        return None if self.dataset is None else fingerprint(self.dataset)

    @cached_property
    def path(self) -> Path:
        """The path of the socket. Raises the errors of ``socket_path``."""
        automatic = f"auto-{self.fingerprint}-{surroundings()}"
        return socket_path(automatic if self._address is None else self._address)

    def length(self) -> int:
        """Return the length of the server's data set. Raises the errors of ``connected``."""

        def read(connector: Connector) -> int:
            connector.close()
            return int(connector.server["length"])

        return self.connected(read)

    def connected(self, use: Callable[[Connector], Found]) -> Found:
        """Return ``use(connection)``; retry with another server if this one was shutting down.

        Raises LoaderServerError if there is no server and this loader may not start one,
        WorkerError if starting one fails, DataError if the server has another data set or refuses
        the task.
        """
        with lack_explained(), ExitStack() as start:
            end, kills = time.monotonic() + START_SECONDS, 0
            while True:
                channel = connect(self.path)
                if channel is None:
                    killed = self._start(end, start)
                    kills += killed is not None
                    if kills == MOST_KILLS:
                        raise WorkerError(f"{killed}, {kills} times in a row; see the system's log")
                    continue
                connector = Connector(channel)
                try:
                    self._check(connector.greet())
                    return use(connector)
                except LoaderServerError:
                    connector.close()
                    refused = not connector.ended  # False if that server was shutting down
                    if refused or not self.starts or time.monotonic() > end:
                        raise
                except BaseException:
                    connector.close()
                    raise

    def _start(self, end: float, start: ExitStack) -> str | None:
        """Start a server that lives until ``start`` closes, or longer if a task has registered."""
        if not self.starts:
            raise LoaderServerError(
                f"GlobalDataLoader: no server listens at {self.path}; start one: python -m "
                "needle.sharing --dataset ..., or pass the data set itself"
            )
        if time.monotonic() > end:
            raise LoaderServerError(
                f"GlobalDataLoader: no server has started listening at {self.path}; start one by "
                "hand"
            )
        return start_server(self.dataset, self.path, self.options, self.fingerprint, start)

    def _check(self, server: dict[str, Any]) -> None:
        same = self.fingerprint is None or server.get("fingerprint") == self.fingerprint
        if not same or (self.dataset is not None and server.get("length") != len(self.dataset)):
            raise DataError(
                f"GlobalDataLoader: the server at {self.path} has a different data set "
                f"({server.get('dataset')}, {server.get('length')} samples, or other contents, "
                "options or files); use another address, or define fingerprint() in its class if "
                "the samples are equal"
            )


@contextmanager
def lack_explained() -> Iterator[None]:
    """Convert an OSError for an exhausted resource to a WorkerError that names it."""
    try:
        yield
    except NeedleError:
        raise
    except (OSError, MemoryError, RuntimeError) as error:
        lacks = isinstance(error, MemoryError) or getattr(error, "errno", None) in LACKS
        if not lacks and "start new thread" not in str(error):
            raise
        raise WorkerError(
            "GlobalDataLoader: a connection to a server needs about 12 descriptors, one process "
            f"and two threads; {described_limit(error)}, or use DataLoader"
        ) from error


def ask_status(path: Path) -> dict[str, Any] | None:
    """Return the status of the server at ``path``; None if no server listens there."""
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


def start_server(
    dataset: Any, path: Path, options: ServerOptions, identity: str | None, start: ExitStack
) -> str | None:
    """Start a server of ``dataset`` at ``path``, as a process that outlives this one.

    Returns None when it or another server listens there, or the text of an error if a signal killed
    it. identity: the fingerprint of the data set. start: the stack that closes the lifeline socket
    on exit. The server waits for its first task until the lifeline is closed; from then on it ends
    with its last task. Raises TypeError naming the part of the data set that cannot be pickled,
    WorkerError if the child fails.
    """
    reap()
    try:
        memory = pack(dataset, "the data set")
    except (WorkerError, OSError, MemoryError):
        raise
    except Exception as error:
        raise explain_failure(dataset, "dataset", error) from error
    with closing(memory):
        ours, theirs = socket.socketpair()
        start.push(partial(_release, ours, path))
        with theirs:
            settings = {
                "path": sys.path,
                "data": [memory.fd, memory.size],
                "starter": theirs.fileno(),
                "socket": str(path),
                "identity": identity,
                "options": asdict(options),
            }
            command = [executable(), *interpreter_flags(), "-c", STARTER, json.dumps(settings)]
            with interrupts_blocked():
                process = subprocess.Popen(
                    command,
                    pass_fds=[memory.fd, theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                _started[path] = process
    return _await_report(ours, process)


def run_child(settings: dict[str, Any]) -> None:
    """Run a server, as the main program of the child process."""
    starter = socket.socket(fileno=settings["starter"])
    os.set_inheritable(starter.fileno(), False)
    try:
        os.umask(0o077)
        _raise_limits()
        memory = Memory.attach(*settings["data"], writable=False)
        os.set_inheritable(memory.fd, False)
        server = Server(
            unpack(memory.buffer),
            Path(settings["socket"]),
            ServerOptions(**settings["options"]),
            identity=settings["identity"],
            starter=starter.fileno(),
        )
    except BaseException as error:
        settings["listens"].append(False)
        with suppress(OSError):
            starter.sendall(f"{type(error).__name__}: {text_of_error(error, 4000)}".encode())
        os._exit(1)
    settings["listens"].append(True)
    with suppress(OSError):  # the loader that started it has died, but others may connect
        starter.sendall(READY)
    starter.detach()
    serve(server)


def _raise_limits() -> None:
    """Raise the soft resource limits inherited from the loader to the hard limits."""
    for name in dir(resource):
        if name.startswith("RLIMIT_") and name not in ("RLIMIT_STACK", "RLIMIT_CORE"):
            limit = getattr(resource, name)
            hard = resource.getrlimit(limit)[1]
            with suppress(OSError, ValueError):
                resource.setrlimit(limit, (hard, hard))


def reap() -> None:
    """Wait for servers that have exited, so that they do not remain as zombies."""
    for path, process in list(_started.items()):
        if process.poll() is not None:
            _started.pop(path, None)


def await_end(path: Path, seconds: float) -> None:
    """Wait for a server that is shutting down, if this process has started it."""
    process = _started.get(path)
    if process is not None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        reap()


def _release(lifeline: socket.socket, path: Path, failed: object, *details: object) -> None:
    """Close the lifeline of a server that was not needed; it ends unless a task has registered."""
    lifeline.close()
    if failed is not None:
        await_end(path, END_SECONDS)


def _await_report(channel: socket.socket, process: subprocess.Popen[bytes]) -> str | None:
    """Wait until the child reports that it listens or has failed; see ``start_server``."""
    end, report = time.monotonic() + START_SECONDS, b""
    while report != READY:
        try:
            channel.settimeout(max(0.01, end - time.monotonic()))
            piece = channel.recv(4096)
        except TimeoutError:
            process.kill()
            raise WorkerError(
                f"GlobalDataLoader: the server was not ready within {START_SECONDS:g} s; start it "
                "by hand: python -m needle.sharing"
            ) from None
        except ConnectionResetError:
            piece = b""
        if not piece:
            break
        report += piece
    if report == READY or b"another server listens" in report:
        return None
    code = process.wait()
    reap()
    reason = report.decode(errors="replace") or f"it died with exit code {code}"
    text = f"GlobalDataLoader: a server cannot start: {reason}"
    if code < 0 and not report:
        return text
    raise WorkerError(text)
