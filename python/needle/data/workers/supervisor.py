"""The supervisor, a small process that starts the workers of all loaders of a program.

The supervisor has imported what workers need and has a single thread, so it can fork workers
("forkserver"); alternatively it starts each as a new interpreter ("spawn"). Once the parent has
ended for any reason, it kills the workers and exits. shared_supervisor.py starts the supervisor,
and launch.py sends it requests.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from . import worker
from .framing import receive, send

_WORKER = (
    "import json, sys; settings = json.loads(sys.argv[1]); sys.path[:] = settings['path']; "
    "from needle.data.workers import worker; worker.run(settings['fd'], settings['parent'])"
)


def exit_code(pid: int) -> int | None:
    """Return the exit code of a child, -signal if a signal ended it, None while it is running."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return None if found == 0 else os.waitstatus_to_exitcode(status)


@dataclass
class LoaderChannel:
    """The connection of a loader: how its workers start, and the ids of those not yet reaped."""

    channel: socket.socket
    method: str
    running: set[int] = field(default_factory=set)


class Supervisor:
    """A server that starts workers for its clients, the loaders, each over a channel of its own.

    ``start`` is answered with a process id and its pidfd, ``status`` with an exit status. If a
    client hangs up, its workers are killed. control: the channel over which the parent adds
    clients until it closes the channel. watch: the pidfd of the parent, or -1.
    """

    def __init__(self, control: socket.socket, settings: dict[str, Any], watch: int) -> None:
        self.control, self.settings, self.watch = control, settings, watch
        self.clients: dict[int, LoaderChannel] = {}
        worker.kernels()  # loaded once, for all forked workers
        self._poll = select.poll()
        for fd in (control.fileno(), watch):
            if fd >= 0:
                self._poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Answer requests until the parent has ended or needs no more workers."""
        while self.clients or self.control.fileno() >= 0:
            for fd, _ in self._poll.poll():
                if fd == self.watch:
                    return
                if fd == self.control.fileno():
                    self._admit()
                elif not self._answer(self.clients[fd]):
                    self._drop(self.clients.pop(fd))

    def end(self) -> NoReturn:
        """Kill all remaining workers and exit."""
        for client in self.clients.values():
            self._drop(client)
        os._exit(0)

    def _admit(self) -> None:
        """Accept a new client, or stop listening if the parent accepts no more."""
        got = receive(self.control)
        if got is None:
            self._poll.unregister(self.control)
            self.control.close()
            return
        message, fds = got
        client = LoaderChannel(socket.socket(fileno=fds[0]), message["method"])
        self.clients[fds[0]] = client
        self._poll.register(fds[0], select.POLLIN)
        if client.method == "forkserver":
            self._import(message["modules"])

    def _import(self, modules: list[str]) -> None:
        """Import modules that forked workers will probably need, so that they share the memory."""
        for name in modules:
            with suppress(Exception):  # a worker that imports the module gets the error
                importlib.import_module(name)
        gc.freeze()  # keeps the collector from writing to pages shared with the workers

    def _answer(self, client: LoaderChannel) -> bool:
        """Answer a client's next message; return False if the client has hung up."""
        try:
            got = receive(client.channel)
            if got is None:
                return False
            message, fds = got
            if message["do"] == "start":
                self._start(client, fds[0])
            else:
                self._status(client, message["pid"])
        except ConnectionError:
            return False
        except OSError as error:  # no descriptor is left for a worker's channel
            send(client.channel, failed(error))
        return True

    def _drop(self, client: LoaderChannel) -> None:
        """Kill and reap the workers of a client that has hung up."""
        self._poll.unregister(client.channel)
        client.channel.close()
        for pid in client.running:
            os.kill(pid, signal.SIGKILL)
        for pid in client.running:
            os.waitpid(pid, 0)  # in a container no other process may reap them

    def _start(self, client: LoaderChannel, fd: int) -> None:
        forks = client.method == "forkserver" and _has_one_thread()
        try:
            pid = self._fork(fd) if forks else self._spawn(fd)
        except OSError as error:  # out of processes or memory
            send(client.channel, failed(error))
            return
        finally:
            os.close(fd)
        client.running.add(pid)
        sentinel = pidfd(pid)
        send(client.channel, {"pid": pid}, () if sentinel is None else (sentinel,))
        if sentinel is not None:
            os.close(sentinel)

    def _fork(self, fd: int) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._close_all()
                gc.enable()
                worker.run(fd, parent)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        return pid

    def _close_all(self) -> None:
        """Close the supervisor's descriptors in a forked worker."""
        self.control.close()
        for client in self.clients.values():
            client.channel.close()
        if self.watch >= 0:
            os.close(self.watch)

    def _spawn(self, fd: int) -> int:
        settings = {"path": self.settings["path"], "fd": fd, "parent": os.getpid()}
        command = [*self.settings["command"], "-c", _WORKER, json.dumps(settings)]
        process = subprocess.Popen(command, pass_fds=[fd], stdin=subprocess.DEVNULL)
        process.returncode = 0  # ``_status`` reaps the process, not this object
        return process.pid

    def _status(self, client: LoaderChannel, pid: int) -> None:
        try:
            code = exit_code(pid)
        except ChildProcessError as error:
            send(client.channel, {"unknown": str(error)})
            return
        if code is not None:
            client.running.discard(pid)
        send(client.channel, {"status": code})


def failed(error: OSError) -> dict[str, Any]:
    """Return the answer for a worker that the system refused to start."""
    return {"failure": str(error), "errno": error.errno}


def _has_one_thread() -> bool:
    """Return False if an import has started a thread, whose locks a fork would copy."""
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    channel = socket.socket(fileno=settings["fd"])
    os.set_inheritable(channel.fileno(), False)
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
