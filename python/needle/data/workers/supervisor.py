"""The supervisor: a small process, run as a script, that starts the workers of a loader.

It has one thread, so forking from it is safe ("forkserver"); or it starts each worker as a new
interpreter ("spawn"). When the parent has ended, for whatever reason, it ends the workers and
itself. launch.py talks to it. It imports nothing of needle before it is asked to.
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
import traceback
from collections.abc import Callable, Sequence
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


def exit_code(pid: int, wait: bool) -> int | None:
    """Return the exit code of a child process, -signal if a signal ended it, None if it runs."""
    found, status = os.waitpid(pid, 0 if wait else os.WNOHANG)
    return None if found == 0 else os.waitstatus_to_exitcode(status)


class Supervisor:
    """Answers ``start`` with a process id and its pidfd, ``status`` with an exit status."""

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
            gc.freeze()  # the memory in use stays shared with the workers

    def serve(self) -> None:
        """Answer messages until the parent has ended."""
        while True:
            self._await()
            try:
                got = receive(self.channel)
            except OSError as error:  # of a worker's channel, which no longer fits
                send(self.channel, failed(error))
                continue
            if got is None:
                return
            message, fds = got
            if message["do"] == "start":
                self._start(fds[0])
            else:
                self._status(message["pid"], message["wait"])

    def end(self) -> NoReturn:
        """End every worker that is left, and this process."""
        for pid in self.running:
            os.kill(pid, signal.SIGKILL)
        for pid in self.running:
            os.waitpid(pid, 0)  # in a container no other process may reap them
        os._exit(0)

    def _await(self) -> None:
        """Wait for a message or for the death of the parent."""
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
            send(self.channel, failed(error))
            return
        finally:
            os.close(fd)
        self.running.add(pid)
        sentinel = pidfd(pid)
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
        process.returncode = 0  # reaped by ``_status``, not by the object
        return process.pid

    def _status(self, pid: int, wait: bool) -> None:
        try:
            code = exit_code(pid, wait)
        except ChildProcessError as error:
            send(self.channel, {"unknown": str(error)})
            return
        if code is not None:
            self.running.discard(pid)
        send(self.channel, {"status": code})


def failed(error: OSError) -> dict[str, Any]:
    """Return the answer for a worker that the system does not let start."""
    return {"failure": str(error), "errno": error.errno}


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
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    got = receive(channel)
    if got is None:
        return
    settings = got[0]
    parent = pidfd(settings["parent"])
    if os.getppid() != settings["parent"]:
        return
    settings["watch"] = -1 if parent is None else parent
    sys.path[:] = settings["path"]
    supervisor = Supervisor(channel, settings)
    try:
        supervisor.serve()
    except OSError:
        pass  # the parent ended in the middle of a message
    finally:
        supervisor.end()


if __name__ == "__main__":
    main()
