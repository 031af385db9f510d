"""The supervisor: a small process, run as a script, that starts the workers of all loaders.

It has imported what workers need and has one thread, so it can fork them ("forkserver"); or it
starts each as a new interpreter ("spawn"). When the parent has ended, for whatever reason, it ends
the workers and itself. launch.py talks to it. It imports nothing of needle before it is asked to.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # the files of this folder must not be top-level modules

import errno
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

LENGTH = struct.Struct("<I")
STARTER = (
    "import json, sys; settings = json.loads(sys.argv[1]); sys.path[:] = settings['path']; "
    "from needle.data.workers import worker; worker.run(settings['fd'], settings['parent'])"
)


def send(channel: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send a message as JSON, with descriptors if there are any."""
    send_body(channel, json.dumps(message).encode(), fds)


def send_body(channel: socket.socket, body: bytes, fds: Sequence[int] = ()) -> None:
    """Send bytes behind their length, with descriptors if there are any."""
    data = LENGTH.pack(len(body)) + body
    if fds:
        sent = socket.send_fds(channel, [data], list(fds))
        data = data[sent:]
    channel.sendall(data)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next message and its descriptors; None if the other side has ended."""
    got = receive_body(channel)
    return None if got is None else (json.loads(got[0]), got[1])


def receive_body(channel: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return the bytes of ``send_body`` and the descriptors; None if the other side has ended."""
    fds: list[int] = []
    head = _receive_bytes(channel, LENGTH.size, fds)
    body = None if head is None else _receive_bytes(channel, LENGTH.unpack(head)[0], fds)
    return None if body is None else (body, fds)


def _receive_bytes(channel: socket.socket, size: int, fds: list[int]) -> bytes | None:
    """Return the next ``size`` bytes, None at the end; append received descriptors to ``fds``."""
    data = b""
    while len(data) < size:
        piece, more, flags, _ = socket.recv_fds(channel, size - len(data), 4)
        fds += more
        if flags & socket.MSG_CTRUNC:
            for fd in fds:
                os.close(fd)
            raise OSError(errno.EMFILE, "no room for a descriptor that was sent")
        if not piece:
            return None
        data += piece
    return data


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
        self.run: Callable[[int, int], None] | None = None
        self.failure: str | None = None
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
        """Import what forked workers need, which they share from then on."""
        if self.run is None and self.failure is None:
            try:
                worker = importlib.import_module("needle.data.workers.worker")
                worker.kernels()  # loaded once, for all workers
                self.run = worker.run
            except BaseException:
                self.failure = traceback.format_exc()
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
        forks = client.method == "forkserver"
        if forks and self.failure is not None:
            os.close(fd)
            send(client.channel, {"failure": self.failure})
            return
        try:
            pid = self._fork(fd) if forks and _has_one_thread() else self._spawn(fd)
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
                assert self.run is not None
                self.run(fd, parent)
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
        command = [*self.settings["command"], "-c", STARTER, json.dumps(settings)]
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


def main() -> None:
    """Run the script, whose argument is the descriptor of the channel to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    gc.disable()  # imports make no garbage that is worth the search
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    got = receive(channel)
    if got is None:
        return
    settings = got[0]
    parent = pidfd(settings["parent"])
    if os.getppid() != settings["parent"]:
        return
    sys.path[:] = settings["path"]
    supervisor = Supervisor(channel, settings, -1 if parent is None else parent)
    try:
        supervisor.serve()
    except OSError:
        pass  # the parent ended in the middle of a message
    finally:
        supervisor.end()


if __name__ == "__main__":
    main()
