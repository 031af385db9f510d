"""The engine of worker processes: requests become units of work, answers become batches again.

Slices of a batch go on the board, workers write them into slots of the ring; a worker that dies
is replaced and its slice issued again. Processes are crew.py's, the worker's side is worker.py's.
"""

from __future__ import annotations

import os
import signal
import time
import weakref
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import LoaderTimeout, NeedleError, WorkerError
from ..structure import Field, Slice, concatenate
from .base import Completed, Engine, Request
from .board import NO_SAMPLE, NOBODY, Board, Unit, signed
from .crew import Crew, Member
from .launch import check_method
from .memory import Memory
from .messages import BROKEN, DONE, FAILED, READY, Answer, unpack_error, unpack_value
from .ring import Layout, Ring, learn_fields
from .travel import explain_failure, pack

_PARTS = 32  # slices of a batch at most
_HELD = 2  # batches that the consumer may hold in slots; more are copied out
_SHORT = 2e-3  # seconds: slices shorter than this are not worth the asking
_DEATHS = 3  # of one sample's workers, before it is an error
_ATTEMPTS = 20  # of one slice, whatever its workers died of
_START_DEATHS, _START_KILLS = 2, 6  # in a row, before it is an error: by itself, by a signal


@dataclass(eq=False)
class _Part:
    """A slice of a batch: rows first to last of it, issued ``attempt`` times before."""

    batch: _Batch
    first: int
    last: int
    order: int
    attempt: int = 0
    deaths: Counter[int] = field(default_factory=Counter)
    done: Slice | None = None

    @property
    def ticket(self) -> int:
        return self.order << 8 | self.attempt


@dataclass(eq=False)
class _Batch:
    """A request under way; ``place``: where its indices lie; ring, slot: where its rows go."""

    request: Request
    rows: int
    area: int = -1
    place: int = -1
    ring: Ring | None = None
    slot: int = -1
    parts: list[_Part] = field(default_factory=list)
    records: set[int] = field(default_factory=set)
    error: tuple[int, BaseException] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    cancelled: bool = False


class ProcessEngine(Engine):
    """Prepares batches in ``workers`` processes.

    prefetch: batches asked for ahead, for each worker where a batch cannot be made in slices.
    start_method: "forkserver" (the default), "spawn" (macOS's) or "fork". restart_workers:
    replace a worker that died and issue its samples again, else raise WorkerError. held_slots:
    batches that the consumer can hold without their being copied.
    Raises TypeError naming the part of the data set that cannot be pickled, WorkerError where
    memory or the system does not allow it; no process has been started then.
    """

    name = "processes"

    def __init__(
        self,
        pipeline: Any,
        *,
        workers: int,
        prefetch: int = 2,
        start_method: str | None = None,
        restart_workers: bool = True,
        held_slots: int = _HELD,
    ) -> None:
        if workers < 1:
            raise ValueError(f"DataLoader: needs at least one worker, got {workers}")
        self.workers, self.restart_workers = workers, restart_workers
        self.held_slots = max(1, held_slots)
        self.start_method = check_method("DataLoader", start_method)
        self.splits = bool(pipeline.splits)
        ahead = max(1, prefetch)
        self.capacity = max(ahead + 1, workers) if self.splits else ahead * workers
        layout = pipeline.layout()
        self._fields: tuple[Field | None, ...] | None = None if layout is None else tuple(layout)
        self._pipeline = pipeline if self.start_method == "fork" else None
        self._packed = None if self.start_method == "fork" else _packed(pipeline)
        if self._packed is not None:
            weakref.finalize(self, self._packed.close)
        self._closed, self._pid = False, os.getpid()
        self._open()

    def _open(self) -> None:
        """Fresh shared state and the process that will start the workers."""
        self._shared = shared = _Shared()
        self._finalizer = weakref.finalize(self, shared.close)
        self._records: deque[int] = deque(range(self.capacity * _PARTS + self.workers))
        self._board = shared.board = Board.create(len(self._records), self.workers)
        self._crew = shared.crew = Crew(self.workers, self.start_method, self._pipeline)
        self._crew.introduce(
            "board", 0, self._board.memory, (self._board.records, self._board.workers)
        )
        if self._packed is not None:
            self._crew.introduce("pipeline", 0, self._packed)
        self._ring: Ring | None = None
        self._places: deque[int] = deque()
        self._area_rows, self._area = 0, -1
        self._parts: dict[int, _Part] = {}
        self._batches: dict[int, _Batch] = {}
        self._complete: deque[_Batch] = deque()
        self._orders, self._start_deaths = 0, 0
        self._sample_seconds: float | None = None
        self._fatal: NeedleError | None = None
        self._torn = False

    # ---- the engine's interface

    def submit(self, request: Request) -> None:
        """Puts the batch's slices on the board; starts the workers at the first call."""
        self._check_usable()
        if self._torn:
            self._start_over()
        self._torn = True
        self._crew.fill()
        while len(self._records) < _PARTS:
            self._hear(0.01)
        stream = request.indices is None
        batch = _Batch(request, request.count if request.indices is None else len(request.indices))
        self._batches[request.serial] = batch
        if not stream:
            self._write_indices(batch)
        self._take_slot(batch)
        for part in self._cut(batch):
            self._issue(part)
        if stream:
            self._crew.nudge(request.shard % self.workers)
        else:
            self._crew.wake(len(batch.parts))
        self._torn = False

    def collect(self, timeout: float | None = None) -> Completed:
        """The next batch that is complete; see ``Engine.collect``."""
        self._check_usable()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._torn:
                self._start_over()
                raise WorkerError("DataLoader: was interrupted; begin a new epoch")
            if self._fatal is not None:
                raise self._fatal
            if self._complete:
                return self._deliver(self._complete.popleft())
            if not self._batches:
                raise ValueError("DataLoader: collect without anything submitted")
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise LoaderTimeout(self._waited_for(timeout))
            self._hear(left)

    def cancel(self) -> None:
        """Takes back what is not begun; what is begun stops at its next sample and is dropped."""
        self._check_usable()
        if self._torn:
            self._start_over()
        self._torn = True
        for batch in self._batches.values():
            self._abandon(batch, 0)
            batch.cancelled = True
            self._tidy(batch)
        self._batches.clear()
        self._complete.clear()
        self._fatal, self._start_deaths = None, 0
        self._crew.hush()
        self._torn = False
        self._hear(0)

    def close(self) -> None:
        """Ends the workers within a second and frees what was shared; held batches stay valid."""
        if not self._closed:
            self._closed = True
            self._finalizer()
            if self._packed is not None:
                self._packed.close()
            self._parts.clear()
            self._batches.clear()
            self._complete.clear()
            self._ring = None

    def process_ids(self) -> list[int]:
        """The ids of the worker processes that run now."""
        return [member.child.pid for member in self._crew.members.values()]

    # ---- from a request to units on the board

    def _cut(self, batch: _Batch) -> list[_Part]:
        """The batch's slices: one a worker, fewer where they would be too short to be worth it."""
        count = 1
        if self.splits and batch.request.indices is not None:
            count = min(self.workers, _PARTS, max(1, batch.rows))
            if self._sample_seconds is not None:
                worth = int(batch.rows * self._sample_seconds / _SHORT)
                count = min(count, max(1, worth))
        for i in range(count):
            self._orders += 1
            first, last = batch.rows * i // count, batch.rows * (i + 1) // count
            batch.parts.append(_Part(batch, first, last, self._orders))
        return batch.parts

    def _issue(self, part: _Part) -> None:
        record, batch, request = self._records.popleft(), part.batch, part.batch.request
        self._parts[record] = part
        batch.records.add(record)
        unit = Unit(
            ticket=part.ticket,
            serial=request.serial,
            seeded=int(request.seed is not None),
            seed=signed(request.seed or 0),
            epoch=request.epoch,
            area=batch.area,
            place=batch.place * self._area_rows * 8 if batch.area >= 0 else 0,
            rows=batch.rows,
            first=part.first,
            last=part.last,
            ring=batch.ring.generation if batch.ring is not None else -1,
            slot=batch.slot,
            preferred=NOBODY if request.indices is not None else request.shard % self.workers,
            shard=request.shard,
            start=request.start,
            count=request.count,
        )
        self._board.put(record, unit)

    def _write_indices(self, batch: _Batch) -> None:
        """Lays the batch's indices beside the board, in a larger memory where they need it."""
        assert batch.request.indices is not None
        if batch.rows > self._area_rows or not self._shared.areas:
            rows = max(64, 1 << max(0, batch.rows - 1).bit_length())
            places = self.capacity + self.workers + 1
            self._shared.areas.append(Memory(8 * rows * places, "the indices of batches"))
            self._area, self._area_rows = self._area + 1, rows
            self._places = deque(range(places))
            self._crew.introduce("indices", self._area, self._shared.areas[-1])
        batch.area, batch.place = self._area, self._places.popleft()
        start = batch.place * self._area_rows * 8
        buffer = self._shared.areas[-1].buffer
        np.frombuffer(buffer, np.int64, batch.rows, start)[:] = batch.request.indices

    def _take_slot(self, batch: _Batch) -> None:
        """A slot for the batch; without one its slices come over the workers' sockets."""
        if self._fields is None or not any(self._fields) or batch.rows == 0:
            return
        if self._ring is None or self._ring.layout.rows < batch.rows:
            layout = Layout(self._fields, batch.rows)
            generation = 0 if self._ring is None else self._ring.generation + 1
            ring = Ring(layout, self.capacity + self.held_slots, generation)
            self._shared.rings.append(ring)
            self._crew.introduce("ring", generation, ring.memory, layout)
            old, self._ring = self._ring, ring
            if old is not None:
                self._retire(old)
        slot = self._ring.take()
        if slot is not None:
            batch.ring, batch.slot = self._ring, slot

    def _retire(self, ring: Ring) -> None:
        """Lets an outgrown ring go once no batch under way uses it."""
        if ring is not self._ring and ring.taken == 0 and ring in self._shared.rings:
            self._shared.rings.remove(ring)
            self._crew.forget("ring", ring.generation)
            ring.close()

    # ---- from answers to batches

    def _hear(self, timeout: float | None) -> None:
        """Takes in what the workers say; an interruption inside leaves ``_torn``."""
        ready = self._crew.wait(timeout)
        if not ready:
            return
        self._torn = True
        for member, answer in self._crew.read(ready):
            if answer is None:
                self._mourn(member)
            elif answer.kind == READY:
                member.ready, self._start_deaths = True, 0
            elif answer.kind == BROKEN:
                self._broken(member, answer)
            else:
                self._answered(member, answer)
        self._torn = False

    def _answered(self, member: Member, answer: Answer) -> None:
        part = self._parts.get(answer.record)
        result = _read_answer(member, answer, part)
        if part is None or part.ticket != answer.ticket:
            return
        self._unlist(answer.record)
        batch = part.batch
        for stage, seconds in answer.seconds.items():
            batch.seconds[stage] = batch.seconds.get(stage, 0.0) + seconds
        if isinstance(result, Slice):
            part.done = result
            self._learn(batch, part, result, answer.seconds)
        elif result is not None:
            self._failed(part, result)
        self._settle(batch)

    def _learn(self, batch: _Batch, part: _Part, done: Slice, seconds: dict[str, float]) -> None:
        """What the next batches want to know: how long a sample takes, the shape of its fields."""
        if done.samples:
            now = sum(seconds.values()) / done.samples
            before = self._sample_seconds
            self._sample_seconds = now if before is None else 0.8 * before + 0.2 * now
            if self._fields is None:
                self._fields = learn_fields(done.leaves, done.samples)

    def _failed(self, part: _Part, error: BaseException) -> None:
        """Notes a slice's error; what comes after it in the batch need not be made any more."""
        batch = part.batch
        if batch.error is None or part.first < batch.error[0]:
            batch.error = part.first, error
        self._abandon(batch, part.last)

    def _settle(self, batch: _Batch) -> None:
        """Counts the batch as complete if every slice that matters is there."""
        if batch.cancelled:
            self._tidy(batch)
            return
        end = batch.rows + 1 if batch.error is None else batch.error[0]
        if all(part.done is not None for part in batch.parts if part.first < end):
            batch.cancelled = batch.error is not None  # what still runs of it is of no use
            self._complete.append(batch)

    def _deliver(self, batch: _Batch) -> Completed:
        self._torn = True
        done = Completed(batch.request.serial, seconds=batch.seconds)
        self._batches.pop(batch.request.serial, None)
        if batch.error is not None:
            done.error = batch.error[1]
        else:
            try:
                whole = self._assemble(batch)
                done.batch, done.samples = whole.batch(), whole.samples
            except Exception as error:
                done.error = error
        self._tidy(batch)
        self._torn = False
        return done

    def _assemble(self, batch: _Batch) -> Slice:
        """The slices as one, in place; copied out where the consumer holds enough already."""
        slices = [part.done for part in batch.parts if part.done is not None]
        ring, rows = batch.ring, None
        if ring is not None:
            rows = ring.lend(batch.slot, batch.rows)
            batch.ring = None
            for part in batch.parts:
                _point(part, rows)
        whole = concatenate(slices, rows)
        if ring is not None and ring.lent > self.held_slots:
            whole.leaves = [_copied(leaf) for leaf in whole.leaves]
        for part in batch.parts:
            part.done = None
        return whole

    # ---- withdrawing, and giving back

    def _abandon(self, batch: _Batch, first: int) -> None:
        """Withdraws the slices from row ``first`` on; those begun answer that they stopped."""
        for record in list(batch.records):
            if self._parts[record].first >= first and self._board.withdraw(record):
                self._unlist(record)

    def _unlist(self, record: int) -> None:
        part = self._parts.pop(record)
        part.batch.records.discard(record)
        self._board.free(record)
        self._records.append(record)

    def _tidy(self, batch: _Batch) -> None:
        """Gives back slot and place of a batch that nobody works on any more."""
        if batch.records:
            return
        if batch.ring is not None:
            ring, batch.ring = batch.ring, None
            ring.give_back(batch.slot)
            self._retire(ring)
        elif self._ring is not None:
            for old in [ring for ring in self._shared.rings if ring is not self._ring]:
                self._retire(old)
        if batch.area == self._area and batch.place >= 0:
            self._places.append(batch.place)
        batch.place = -1

    # ---- workers that die

    def _mourn(self, member: Member) -> None:
        """A worker has died: replaces it and issues again what it had, or makes it an error."""
        owned = self._board.owned(member.number)
        if not member.ready:
            self._died_starting(member)
        elif not self.restart_workers:
            self._fatal = self._death_error(member, owned)
        for record in owned:
            self._reissue(member, record)
        self._board.note(member.number, NO_SAMPLE)
        if self._fatal is None:
            try:
                self._crew.fill()
            except WorkerError as error:
                self._fatal = error
            self._crew.wake(self._board.open_units())

    def _reissue(self, member: Member, record: int) -> None:
        part = self._parts[record]
        self._unlist(record)
        batch = part.batch
        sample = self._board.current(member.number)
        part.deaths[sample] += 1
        part.attempt += 1
        if batch.cancelled:
            self._tidy(batch)
        elif part.deaths[sample] >= _DEATHS or part.attempt >= _ATTEMPTS:
            times = f"{part.deaths[sample]} times"
            error = WorkerError(
                f"DataLoader: worker processes died {times} at {_named(part, sample)}, the last "
                f"one {_ending(member)}; look at that sample, or at the memory it needs"
            )
            self._failed(part, error)
            self._settle(batch)
        else:
            self._issue(part)

    def _died_starting(self, member: Member) -> None:
        self._start_deaths += 1
        code = member.child.code
        limit = _START_KILLS if code is not None and code < 0 else _START_DEATHS
        if self._start_deaths >= limit:
            self._fatal = WorkerError(
                f"DataLoader: worker processes die while they start ({_ending(member)}); look for "
                f"their message above, or take engine='threads'"
            )

    def _broken(self, member: Member, answer: Answer) -> None:
        """A worker could not read what was sent to it; another one could not either."""
        cause = unpack_error(answer.payload, str(member))
        self._fatal = WorkerError(
            f"DataLoader: {member} could not unpickle the data set ({cause!r}); what it needs "
            f"must be importable in a new process, else take engine='threads'"
        )
        self._fatal.__cause__ = cause.__cause__

    def _death_error(self, member: Member, owned: list[int]) -> WorkerError:
        sample = self._board.current(member.number)
        samples = ", ".join(_named(self._parts[record], sample) for record in owned)
        return WorkerError(
            f"DataLoader: {member} {_ending(member)} at {samples or 'no sample'}; "
            f"restart_workers=True replaces such a worker and loses nothing"
        )

    def _waited_for(self, timeout: float | None) -> str:
        places = [
            f"{member} is at {_named(self._parts[record], self._board.current(member.number))}"
            for member in self._crew.members.values()
            for record in self._board.owned(member.number)
            if record in self._parts
        ]
        return (
            f"DataLoader: a batch must be ready within timeout={timeout} s, got none; "
            f"{'; '.join(places) or 'no worker has begun one'}; give it more time"
        )

    # ---- states of the engine itself

    def _check_usable(self) -> None:
        if self._closed:
            raise ValueError("DataLoader: its worker processes are closed; make a new loader")
        if os.getpid() != self._pid:
            raise WorkerError(
                "DataLoader: its worker processes belong to another process, which forked this "
                "one; make a new loader here"
            )

    def _start_over(self) -> None:
        """After an interruption at an unlucky moment: everything anew but the data set."""
        self._finalizer()
        self._open()


class _Shared:
    """What must be given back however the engine ends; knows nothing of the engine."""

    def __init__(self) -> None:
        self.crew: Crew | None = None
        self.board: Board | None = None
        self.areas: list[Memory] = []
        self.rings: list[Ring] = []

    def close(self) -> None:
        """Ends the processes, then gives the memory back."""
        crew, self.crew = self.crew, None
        if crew is not None:
            crew.close()
        board, self.board = self.board, None
        if board is not None:
            board.close()
        for area in self.areas:
            area.close()
        for ring in self.rings:
            ring.close()
        self.areas, self.rings = [], []


def _packed(pipeline: Any) -> Memory:
    try:
        return pack(pipeline, "the data set")
    except WorkerError:
        raise
    except Exception as error:
        raise explain_failure(pipeline, "pipeline", error) from error


def _read_answer(
    member: Member, answer: Answer, part: _Part | None
) -> Slice | BaseException | None:
    """A slice, an error, or None for one withdrawn. Always read: later ones refer to it."""
    try:
        if answer.kind == FAILED:
            return unpack_error(answer.payload, str(member))
        if answer.kind != DONE:
            return None
        if not answer.payload:
            samples = 0 if part is None else part.last - part.first
            structure, placed = member.heard["structure"], member.heard["placed"]
            return Slice(structure, [None] * len(placed), samples, placed)
        structure, leaves, samples, placed, skipped = unpack_value(answer.payload)
        member.heard.update(structure=structure, placed=placed)
        return Slice(structure, leaves, samples, placed, skipped)
    except Exception as error:
        failed = WorkerError(f"DataLoader: what {member} sent cannot be unpickled ({error!r})")
        failed.__cause__ = error
        return failed


def _point(part: _Part, rows: list[npt.NDArray[Any] | None]) -> None:
    """Puts the part's rows of the slot where its slice says that they were placed."""
    done = part.done
    if done is None:
        return
    for i, placed in enumerate(done.placed):
        whole = rows[i] if placed else None
        if whole is not None:
            done.leaves[i] = whole[part.first : part.first + done.samples]


def _copied(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _named(part: _Part, sample: int) -> str:
    """A sample, or the samples of a slice that is fetched at once, for a message."""
    if sample != NO_SAMPLE:
        return f"sample {sample}"
    indices = part.batch.request.indices
    if indices is None:
        return f"shard {part.batch.request.shard}"
    chosen = indices[part.first : part.last].tolist()
    shown = ", ".join(map(str, chosen[:8])) + (", ..." if len(chosen) > 8 else "")
    return f"samples [{shown}]"


def _ending(member: Member) -> str:
    code = member.child.code
    if code is None:
        return "ended for an unknown reason"
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
