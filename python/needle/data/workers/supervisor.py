"""The supervisor, a small process that starts the workers of all loaders of a program.

The supervisor has imported what workers need and has a single thread, so it can fork workers
("forkserver"); alternatively it starts each as a new interpreter ("spawn"). It reports to each
loader how its workers ended. When the parent has ended for any reason, it kills the workers and
exits. shared_supervisor.py starts the supervisor, and launch.py sends it requests.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from . import worker
from .framing import receive, send

_PROGRAM = (
    # imports create too little garbage to be worth collecting
    "import gc, importlib, json, sys; gc.disable(); settings = json.loads(sys.argv[2]); "
    "sys.path[:] = settings['path']; importlib.import_module(sys.argv[1]).run(settings)"
)
_GRACE = 0.3  # Seconds that workers have to end after their loader has hung up.
_POLL_MS = 20  # Seconds between checks for the end of ``_GRACE``.


def start_interpreter(
    module: str, settings: dict[str, Any], fd: int, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Run ``run`` of a module in a new interpreter, which inherits ``fd``.

    settings: a dict with the command and ``sys.path``; ``run`` gets these, the descriptor, and the
    id of this process.
    """
    text = json.dumps({**settings, "fd": fd, "parent": os.getpid()})
    return subprocess.Popen(
        [*settings["command"], "-c", _PROGRAM, module, text],
        stdin=subprocess.DEVNULL,
        pass_fds=[fd],
        env=environment,
    )


@dataclass
class LoaderChannel:
    """The connection of a loader: how its workers start, and the ids of those not yet reaped.

    kill_at: the time at which to kill remaining workers; infinite until the loader hangs up.
    """

    channel: socket.socket
    method: str
    running: set[int] = field(default_factory=set)
    kill_at: float = math.inf


class Supervisor:
    """A server that starts workers for its clients, the loaders, each over its own channel.

    "start" is answered with a process id, "kill" kills a worker, and the end of each worker is
    reported with its exit code. If a client hangs up, its workers are killed. control: the channel
    over which the parent adds clients until it closes the channel. watch: the pidfd of the parent,
    or -1.
    """

    def __init__(self, control: socket.socket, settings: dict[str, Any], watch: int) -> None:
        self.control, self.settings, self.watch = control, settings, watch
        self.clients: dict[int, LoaderChannel] = {}
        worker.kernels()  # loaded once, for all forked workers
        self._child_ended, told = os.pipe()
        os.set_blocking(self._child_ended, False)
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll = select.poll()
        for fd in (control.fileno(), watch, self._child_ended):
            if fd >= 0:
                self._poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Answer requests until the parent has ended or needs no more workers."""
        while self.clients or self.control.fileno() >= 0:
            closing = any(client.kill_at < math.inf for client in self.clients.values())
            for fd, _ in self._poll.poll(_POLL_MS if closing else None):
                if fd == self.watch:
                    return
                if fd == self._child_ended:
                    os.read(fd, 1 << 12)
                elif fd == self.control.fileno():
                    self._admit()
                elif not self._answered(self.clients[fd]):
                    self._poll.unregister(fd)
                    self.clients[fd].kill_at = time.monotonic() + _GRACE
            self._reap()

    def end(self) -> NoReturn:
        """Kill all remaining workers and exit."""
        for client in self.clients.values():
            for pid in client.running:
                os.kill(pid, signal.SIGKILL)
            for pid in client.running:
                os.waitpid(pid, 0)  # in a container there may be no other process to reap them
        os._exit(0)

    def _reap(self) -> None:
        """Report the workers that have ended; drop the clients that have no more workers."""
        for fd, client in list(self.clients.items()):
            for pid in list(client.running):
                if time.monotonic() > client.kill_at:
                    os.kill(pid, signal.SIGKILL)
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    client.running.discard(pid)
                    with suppress(OSError):  # the client is gone
                        send(client.channel, ("ended", pid, os.waitstatus_to_exitcode(status)))
            if client.kill_at < math.inf and not client.running:
                self.clients.pop(fd).channel.close()

    def _admit(self) -> None:
        """Accept a new client, or stop listening if the parent accepts no more."""
        got = receive(self.control)
        if got is None:
            self._poll.unregister(self.control)
            self.control.close()
            return
        (method, modules), (fd,) = got
        self.clients[fd] = LoaderChannel(socket.socket(fileno=fd), method)
        self._poll.register(fd, select.POLLIN)
        if method == "forkserver":
            self._import(modules)

    def _import(self, modules: list[str]) -> None:
        """Import modules that forked workers will probably need, so that they share memory."""
        for name in modules:
            with suppress(Exception):  # a worker that imports the module will raise the error
                importlib.import_module(name)
        gc.freeze()  # prevents the collector from writing to pages shared with the workers

    def _answered(self, client: LoaderChannel) -> bool:
        """Answer a client's next message; return False if the client has hung up."""
        try:
            got = receive(client.channel)
            if got is None:
                return False
            (what, pid), fds = got
            if what == "start":
                self._start(client, fds[0])
            elif pid in client.running:
                os.kill(pid, signal.SIGKILL)
        except ConnectionError:
            return False
        except OSError as error:  # Out of processes, memory or descriptors.
            with suppress(OSError):  # The client may have hung up.
                send(client.channel, ("failed", error.errno, 0))
        return True

    def _start(self, client: LoaderChannel, fd: int) -> None:
        forks = client.method == "forkserver" and _has_one_thread()
        try:
            pid = self._fork(fd) if forks else self._spawn(fd)
        finally:
            os.close(fd)
        client.running.add(pid)
        send(client.channel, ("started", pid, 0))

    def _fork(self, fd: int) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._close_all()
                worker.run({"fd": fd, "parent": parent})
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        return pid

    def _close_all(self) -> None:
        """Close the supervisor's descriptors in a forked worker, and ignore its signals."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in (signal.set_wakeup_fd(-1), self._child_ended, self.watch):
            if fd >= 0:
                os.close(fd)
        self.control.close()
        for client in self.clients.values():
            client.channel.close()

    def _spawn(self, fd: int) -> int:
        process = start_interpreter(worker.__name__, self.settings, fd)
        process.returncode = 0  # ``_reap`` reaps the process, not this object
        return process.pid


def _has_one_thread() -> bool:
    """Return False if an import has started a thread: a fork would copy the locks it holds."""
    with suppress(OSError):
        return len(os.listdir("/proc/self/task")) == 1
    return threading.active_count() == 1


def pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, or None if unsupported."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def run(settings: dict[str, Any]) -> None:
    """Run the supervisor for the program with these settings; the main function of the process."""
    channel = worker.inherited_channel(settings["fd"])
    parent = pidfd(settings["parent"])
    if os.getppid() != settings["parent"]:
        return
    supervisor = Supervisor(channel, settings, -1 if parent is None else parent)
    try:
        supervisor.serve()
    except OSError:
        pass  # the parent ended in the middle of a message
    finally:
        supervisor.end()
