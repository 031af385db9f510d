"""A small process between the loader's and its workers, run as a script: it starts them cleanly.

It has one thread and none of the parent's, so forking from it is safe ("forkserver"), or it starts
each worker as a new interpreter ("spawn"). When the parent is gone, however it went, it ends the
workers and itself. Its other end is launch.py. Until it is told to, it imports nothing of needle.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose file names are not meant for the top level

import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

LENGTH = struct.Struct("<I")
STARTER = (
    "import json, sys; settings = json.loads(sys.argv[1]); sys.path[:] = settings['path']; "
    "from needle.data.workers import worker; worker.run(settings['fd'], settings['parent'])"
)


def send(channel: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """One message as JSON, with descriptors where there are any."""
    body = json.dumps(message).encode()
    data = LENGTH.pack(len(body)) + body
    if fds:
        sent = socket.send_fds(channel, [data], list(fds))
        data = data[sent:]
    channel.sendall(data)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message and its descriptors; None at the other side's end."""
    fds: list[int] = []
    data, wanted = b"", LENGTH.size
    while len(data) < wanted:
        piece, more, _, _ = socket.recv_fds(channel, wanted - len(data), 4)
        fds += more
        if not piece:
            return None
        data += piece
        if len(data) == LENGTH.size == wanted:
            wanted += LENGTH.unpack(data)[0]
    message: dict[str, Any] = json.loads(data[LENGTH.size :])
    return message, fds


class Supervisor:
    """Answers ``start`` with a process id (and its pidfd), ``status`` with how a process ended."""

    def __init__(self, channel: socket.socket, settings: dict[str, Any]) -> None:
        self.channel, self.settings = channel, settings
        self.running: set[int] = set()
        self.run: Callable[[int, int], None] | None = None
        self.failure: str | None = None
        if settings["method"] == "forkserver":
            try:
                self.run = importlib.import_module("needle.data.workers.worker").run
            except BaseException:
                self.failure = traceback.format_exc()
            gc.collect()
            gc.freeze()  # what is here stays shared with the workers

    def serve(self) -> None:
        """Until the parent's end."""
        while True:
            self._await()
            got = receive(self.channel)
            if got is None:
                return
            message, fds = got
            if message["do"] == "start":
                self._start(fds[0])
            else:
                self._status(message["pid"], message["wait"])

    def end(self) -> NoReturn:
        """Ends every worker that is left, and this process."""
        for pid in self.running:
            os.kill(pid, signal.SIGKILL)
        for pid in self.running:
            os.waitpid(pid, 0)  # a container may have nobody else who does
        os._exit(0)

    def _await(self) -> None:
        """Waits for a message, or for the parent's death where nothing else would tell it."""
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        watch = self.settings["watch"]
        if watch >= 0:
            poll.register(watch, select.POLLIN)
        if watch in [fd for fd, _ in poll.poll()]:
            self.end()

    def _start(self, fd: int) -> None:
        if self.failure is not None:
            os.close(fd)
            send(self.channel, {"failure": self.failure})
            return
        try:
            pid = self._spawn(fd) if self.run is None else self._fork(fd)
        except OSError as error:  # no more processes, no more memory
            send(self.channel, {"failure": str(error)})
            return
        finally:
            os.close(fd)
        self.running.add(pid)
        sentinel = _pidfd(pid)
        send(self.channel, {"pid": pid}, () if sentinel is None else (sentinel,))
        if sentinel is not None:
            os.close(sentinel)

    def _fork(self, fd: int) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self.channel.close()
                if self.settings["watch"] >= 0:
                    os.close(self.settings["watch"])
                assert self.run is not None
                self.run(fd, parent)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        return pid

    def _spawn(self, fd: int) -> int:
        settings = {"path": self.settings["path"], "fd": fd, "parent": os.getpid()}
        command = [*self.settings["command"], "-c", STARTER, json.dumps(settings)]
        process = subprocess.Popen(command, pass_fds=[fd], stdin=subprocess.DEVNULL)
        process.returncode = 0  # waited for by ``_status``, not by the object
        return process.pid

    def _status(self, pid: int, wait: bool) -> None:
        try:
            found, status = os.waitpid(pid, 0 if wait else os.WNOHANG)
        except ChildProcessError as error:
            send(self.channel, {"unknown": str(error)})
            return
        code = None if found == 0 else os.waitstatus_to_exitcode(status)
        if code is not None:
            self.running.discard(pid)
        send(self.channel, {"status": code})


def _pidfd(pid: int) -> int | None:
    """A descriptor that is readable once the process has ended, where the system has such."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def main() -> None:
    """The script: its argument is the descriptor of the channel to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    got = receive(channel)
    if got is None:
        return
    settings = got[0]
    parent = _pidfd(settings["parent"])
    if os.getppid() != settings["parent"]:
        return
    settings["watch"] = -1 if parent is None else parent
    sys.path[:] = settings["path"]
    supervisor = Supervisor(channel, settings)
    try:
        supervisor.serve()
    except OSError:
        pass  # the parent went in the middle of a message
    finally:
        supervisor.end()


if __name__ == "__main__":
    main()
