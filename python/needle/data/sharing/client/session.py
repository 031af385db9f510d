"""A loader's connection to its server: a thread hears frames, puts batches together and beats.

The thread is the only one that reads and writes the socket; the program takes finished batches
from it. It never waits for the program, so a training step that takes minutes costs no lease.
Which epochs there are is dataloader.py's.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import LoaderServerError, LoaderTimeout, NeedleError
from ...samples.timing import Clock
from ..wire.call import Call, lost, named_error, told
from ..wire.protocol import Frame, Kind, count_of, pack
from .assembly import Assembler, Blocks

LEASE = 3
"""Heartbeats of the server that may be missed."""
GOODBYE = 1.0


@dataclass
class Delivery:
    """A batch, prepared but for what the program's thread does with it.

    indices: int64 ``(n,)`` of all that were asked for. failed: places and errors of those that
    could not be read, which the batch lacks.
    """

    number: int
    generation: int
    blocks: Blocks
    failed: list[tuple[int, Exception]]
    batch: Any = None
    error: BaseException | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """How many the batch has."""
        return len(self.blocks.indices) - len(self.failed)


class Session:
    """One task at one server. ``prefetch``: batches that are put together ahead.

    Errors of the server, and its end, come out of ``next``.
    """

    def __init__(self, call: Call, assembler: Assembler, prefetch: int) -> None:
        self._call, self.assembler, self.prefetch = call, assembler, prefetch
        self.channel, self._inbox = call.channel, call.inbox
        self.parted = False  # the server has said goodbye
        self.last = False  # and that it ends, since this was its last task
        self._news = threading.Condition()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._waker, False)
        self._out = bytearray()
        self._arrived: deque[Delivery] = deque()
        self._ready: deque[Delivery] = deque()
        self._answers: dict[Kind, dict[str, Any]] = {}
        self._generation = self._ended = -1
        self._epoch = self._assembling = 0
        self._error: BaseException | None = None
        self._closing = self._gone = False
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def register(self, values: dict[str, Any], raw: bytes) -> None:
        """Makes the connection a task's and starts the thread; raises what the server refuses."""
        frame = self._call.ask(Kind.REGISTER, values, raw)
        if len(frame.fds) != 1:
            raise lost("it handed over no memory")
        self.assembler.attach(frame.fds[0], count_of(frame.values, "bytes", 1))
        self.channel.setblocking(False)
        self._thread = threading.Thread(target=self._live, name="needle-session", daemon=True)
        self._thread.start()

    # ---- what the program asks

    def begin(self, epoch: int, done: npt.NDArray[np.bool_]) -> None:
        """Starts an epoch without the samples at ``done``; what was under way is forgotten."""
        with self._news:
            self._generation += 1
            self._epoch = epoch
            self._arrived.clear()
            self._ready.clear()
            raw = np.packbits(done).tobytes() if done.any() else b""
            values = {"epoch": epoch, "generation": self._generation}
            self._out += pack(Kind.RESUME, values, raw)
        self._rouse()

    def next(self, timeout: float | None = None) -> Delivery | None:
        """The next batch, when it is there; None at the epoch's end.

        Raises LoaderServerError at the server's end, LoaderTimeout after ``timeout`` seconds.
        """
        if os.getpid() != self._pid:
            raise LoaderServerError(
                "GlobalDataLoader: its connection belongs to the process that this one was forked "
                "from; make a new loader here"
            )
        end = None if timeout is None else time.monotonic() + timeout
        with self._news:
            while True:
                if self._error is not None:
                    raise self._error.with_traceback(None)
                if self._ready:
                    found = self._ready.popleft()
                    values = {"generation": self._generation, "batches": 1}
                    self._out += pack(Kind.NEXT, values)
                    break
                if self._ended == self._generation and not self._arrived and not self._assembling:
                    return None
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise LoaderTimeout(
                        f"GlobalDataLoader: no batch was ready within timeout={timeout} s; raise "
                        "it, or look at python -m needle.data.sharing --status"
                    )
                self._news.wait(left)
        self._rouse()
        return found

    def ask(self, kind: Kind, timeout: float = 5.0) -> dict[str, Any]:
        """What the server answers to STATE or STATUS."""
        with self._news:
            self._answers.pop(kind, None)
            self._out += pack(kind)
        self._rouse()
        with self._news:
            there = self._news.wait_for(lambda: kind in self._answers or self._gone, timeout)
            if kind in self._answers:
                return self._answers.pop(kind)
        raise self._error or lost("it does not answer" if not there else "it has gone")

    def close(self) -> None:
        """Says goodbye and ends the thread; twice is once."""
        thread, self._thread = self._thread, None
        if thread is not None and os.getpid() == self._pid and not self._closing:
            with self._news:
                self._closing = True
                self._out += pack(Kind.BYE)
            self._rouse()
            if thread is not threading.current_thread():  # a collector may run in any of them
                thread.join(2 * GOODBYE)
        elif thread is None:
            self._free()

    # ---- the thread

    def _live(self) -> None:
        try:
            self._listen()
        except NeedleError as error:
            self._fail(error)
        except Exception as error:
            failed = lost(f"it said what cannot be understood ({error!r})")
            failed.__cause__ = error
            self._fail(failed)
        finally:
            self._free()

    def _listen(self) -> None:
        beat = float(self._call.server.get("beat", 5.0))
        heard = beaten = time.monotonic()
        goodbye: float | None = None
        while True:
            now = time.monotonic()
            if self._closing:
                goodbye = goodbye or now + GOODBYE
            if now - beaten >= beat:
                beaten = now
                self._post(Kind.HEARTBEAT)
            ready = self._wait(max(0.0, min(beaten + beat, goodbye or now + beat) - now))
            if self.channel.fileno() in ready:
                heard = time.monotonic()
                for frame in self._inbox.receive():
                    self._take(frame)
            elif now - heard > LEASE * beat:
                raise lost(f"it has not answered for {now - heard:.1f} s")
            if self._inbox.ended and not self._closing:
                raise lost("its process has ended")
            if self._inbox.ended or self.parted or (goodbye and time.monotonic() > goodbye):
                return
            self._assemble()

    def _wait(self, seconds: float) -> set[int]:
        """Sends what there is; the descriptors of which something can be read."""
        with self._news:
            self._flush()
            waiting = bool(self._out)
            work = bool(self._arrived) and len(self._ready) < self.prefetch
        poll = select.poll()
        poll.register(self.channel, select.POLLIN | (select.POLLOUT if waiting else 0))
        poll.register(self._wake, select.POLLIN)
        found = dict(poll.poll(0 if work else int(seconds * 1000) + 1))
        if self._wake in found:
            with suppress(BlockingIOError):
                os.read(self._wake, 4096)
        mask = select.POLLIN | select.POLLHUP | select.POLLERR
        return {fd for fd, events in found.items() if events & mask}

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self.channel.send(self._out)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._out.clear()  # its end will be heard

    def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.BATCH:
            self._batch_arrived(frame)
        elif frame.kind is Kind.EPOCH_END:
            with self._news:
                self._ended = count_of(frame.values, "generation")
                self._news.notify_all()
        elif frame.kind in (Kind.STATE, Kind.STATUS):
            with self._news:
                self._answers[frame.kind] = frame.values
                self._news.notify_all()
        elif frame.kind is Kind.ERROR:
            raise told(frame.values)
        elif frame.kind is Kind.BYE:
            self.parted = True
            self.last = frame.values.get("ending") is True

    def _batch_arrived(self, frame: Frame) -> None:
        values = frame.values
        self.assembler.learn(values.get("records", {}))
        table = np.frombuffer(frame.raw, "<i8").reshape(-1, 3).astype(np.int64)
        blocks = Blocks(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())
        failed = [
            (int(place), named_error(*described))
            for place, described in values.get("errors", {}).items()
        ]
        number, generation = count_of(values, "batch"), count_of(values, "generation")
        with self._news:
            if generation == self._generation:
                self._arrived.append(Delivery(number, generation, blocks, failed))

    def _assemble(self) -> None:
        """Puts one batch together, if one is wanted, and lets the server have its blocks back."""
        with self._news:
            if not self._arrived or len(self._ready) >= self.prefetch:
                return
            delivery, epoch = self._arrived.popleft(), self._epoch
            self._assembling = 1
        clock = Clock()
        try:
            readable = np.ones(len(delivery.blocks.indices), bool)
            readable[[place for place, _ in delivery.failed]] = False
            delivery.batch = self.assembler.batch(delivery.blocks.some(readable), epoch, clock)
        except Exception as error:
            delivery.error = error
        delivery.seconds = clock.seconds
        with self._news:
            self._assembling = 0
            if delivery.generation == self._generation:
                self._ready.append(delivery)
            values = {"generation": delivery.generation, "batch": delivery.number}
            self._out += pack(Kind.RELEASE, values)
            self._news.notify_all()

    def _post(self, kind: Kind) -> None:
        with self._news:
            self._out += pack(kind)

    def _rouse(self) -> None:
        with self._news, suppress(OSError):  # full: it is awake; closed: it has ended
            os.write(self._waker, b"!")

    def _fail(self, error: BaseException) -> None:
        with self._news:
            self._error = error

    def _free(self) -> None:
        with self._news:
            if self._gone:
                return
            self._gone = True
            self._call.close()
            self.assembler.detach()
            os.close(self._wake)
            os.close(self._waker)
            self._wake = self._waker = -1
            self._error = self._error or lost("the connection is closed")
            self._news.notify_all()
