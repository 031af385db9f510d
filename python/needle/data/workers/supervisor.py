"""The supervisor: a small process that starts the workers of all loaders of a program.

It has imported what workers need and has one thread, so it can fork them ("forkserver"); or it
starts each as a new interpreter ("spawn"). When the parent has ended, for whatever reason, it ends
the workers and itself. shared_supervisor.py starts it, launch.py talks to it.
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
    """Return the exit code of a child process, -signal if a signal ended it, None if it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return None if found == 0 else os.waitstatus_to_exitcode(status)


@dataclass
class LoaderChannel:
    """A loader's connection: how its workers start, and the ids of those that were not reaped."""

    channel: socket.socket
    method: str
    running: set[int] = field(default_factory=set)


class Supervisor:
    """Starts workers for its clients, the loaders, each of which has a channel of its own.

    ``start`` is answered with a process id and its pidfd, ``status`` with an exit status. A client
    that hangs up loses its workers. control: the channel by which clients come, until the parent
    closes it. watch: the pidfd of the parent, or -1.
    """

    def __init__(self, control: socket.socket, settings: dict[str, Any], watch: int) -> None:
        self.control, self.settings, self.watch = control, settings, watch
        self.clients: dict[int, LoaderChannel] = {}
        worker.kernels()  # loaded once, for all workers
        self._poll = select.poll()
        for fd in (control.fileno(), watch):
            if fd >= 0:
                self._poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Answer messages until the parent has ended, or wants no more workers."""
        while self.clients or self.control.fileno() >= 0:
            for fd, _ in self._poll.poll():
                if fd == self.watch:
                    return
                if fd == self.control.fileno():
                    self._admit()
                elif not self._answer(self.clients[fd]):
                    self._drop(self.clients.pop(fd))

    def end(self) -> NoReturn:
        """End every worker that is left, and this process."""
        for client in self.clients.values():
            self._drop(client)
        os._exit(0)

    def _admit(self) -> None:
        """Take a new client, or note that no more will come."""
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
        """Import what forked workers will probably need, which they share from then on."""
        for name in modules:
            with suppress(Exception):  # a worker that uses the module gets the error
                importlib.import_module(name)
        gc.freeze()  # the memory in use stays shared with the workers

    def _answer(self, client: LoaderChannel) -> bool:
        """Answer the next message of a client; return False if it has hung up."""
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
        except OSError as error:  # of a worker's channel, which no longer fits
            send(client.channel, failed(error))
        return True

    def _drop(self, client: LoaderChannel) -> None:
        """Kill the workers of a client that is gone, and reap them."""
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
        except OSError as error:  # no more processes, no more memory
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
        """Close, in a forked worker, what belongs to the supervisor."""
        self.control.close()
        for client in self.clients.values():
            client.channel.close()
        if self.watch >= 0:
            os.close(self.watch)

    def _spawn(self, fd: int) -> int:
        settings = {"path": self.settings["path"], "fd": fd, "parent": os.getpid()}
        command = [*self.settings["command"], "-c", _WORKER, json.dumps(settings)]
        process = subprocess.Popen(command, pass_fds=[fd], stdin=subprocess.DEVNULL)
        process.returncode = 0  # reaped by ``_status``, not by the object
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
    """Return the answer for a worker that the system does not let start."""
    return {"failure": str(error), "errno": error.errno}


def _has_one_thread() -> bool:
    """Return True unless an import has started a thread, whose locks a fork would copy."""
    with suppress(OSError):
        return len(os.listdir("/proc/self/task")) == 1
    return threading.active_count() == 1


def pidfd(pid: int) -> int | None:
    """Return a descriptor that is readable once the process has ended, or None."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def run(settings: dict[str, Any]) -> None:
    """Serve the program whose settings these are; the main function of the process."""
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
