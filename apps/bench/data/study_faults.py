"""Faults and resuming, in seconds: a killed worker, Ctrl-C, resuming near the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import islice
from typing import Any

import needle.data as data

from . import ours, peers
from .case import Case, Numbers, Once, Subject
from .harness import Result
from .process_tree import PROC, stat_fields
from .settings import Settings
from .target import Target, median_and_range, spread, table

TITLE = "Faults and resuming"
SAMPLES, BATCH = 1_000_000, 100


def cases(settings: Settings) -> list[Case]:
    """Return the cases of needle and PyTorch."""
    torch = ("torch",)
    return [
        Case("needle, worker killed: replaced", open_kill),
        Case("torch, worker killed: error", open_torch_kill, {}, torch),
        Case("needle, Ctrl-C", partial(open_interrupt, library="needle")),
        Case("torch, Ctrl-C", partial(open_interrupt, library="torch"), {}, torch, rounds=3),
        Case("needle, resume at 99 %", open_resume),
        Case("torch, resume at 99 % by skipping", open_skip, {}, torch, rounds=1),
    ]


def open_kill(settings: Settings) -> Subject:
    """Open a case of needle's loader with two workers, one of which is killed."""

    def made() -> Any:
        dataset = ours.SlowProcessIds(settings.pick(120, 60))
        return data.DataLoader(dataset, 4, num_workers=2)

    return Once(partial(after_kill, made, True))


def open_torch_kill(settings: Settings) -> Subject:
    """Open a case of PyTorch's loader with a killed worker."""

    def made() -> Any:
        return peers.torch_loader(ours.SlowProcessIds(settings.pick(120, 60)), 4, 2)

    return Once(partial(after_kill, made, False))


def after_kill(made: Any, restart: bool) -> Numbers:
    """Return seconds from the kill to the error.

    If it is replaced, the longest wait for a batch.
    """
    loader = made()
    seen: list[int] = []
    killed = longest = 0.0
    last = time.perf_counter()
    try:
        for number, (indices, pids) in enumerate(loader):
            now = time.perf_counter()
            longest = max(longest, now - last) if killed else 0.0
            seen += [int(index) for index in indices.numpy()]
            last = time.perf_counter()
            if number == 2:
                os.kill(int(pids.numpy()[0]), signal.SIGKILL)
                killed = last = time.perf_counter()
    except Exception:
        if restart:
            raise
        return {"seconds": time.perf_counter() - killed}
    finally:
        if hasattr(loader, "close"):
            loader.close()
    if not restart:
        raise RuntimeError("a worker was killed and the loader raised no error")
    if sorted(seen) != list(range(len(seen))) or len(seen) != len(loader.dataset):
        raise RuntimeError(
            "after a worker was replaced, not every sample was returned exactly once"
        )
    return {"seconds": longest}


def open_interrupt(settings: Settings, library: str) -> Subject:
    """A separate program that is interrupted as from a terminal."""
    return Once(partial(interrupt, library))


def interrupt(library: str) -> Numbers:
    """Return seconds from SIGINT to the end of the program, tracebacks, and processes left."""
    with tempfile.TemporaryFile() as errors:
        program = subprocess.Popen(
            [sys.executable, "-m", "apps.bench.data.interrupted", library],
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        assert program.stdout is not None
        program.stdout.readline()
        started = time.perf_counter()
        os.killpg(program.pid, signal.SIGINT)
        program.wait()
        seconds = time.perf_counter() - started
        program.stdout.close()
        time.sleep(0.2)
        left = processes_of_session(program.pid)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        errors.seek(0)
        tracebacks = errors.read().count(b"Traceback (most recent call last)")
    return {"seconds": seconds, "tracebacks": tracebacks, "left": len(left)}


def processes_of_session(session: int) -> list[int]:
    """Return the living processes of a session that a program started."""
    if not PROC.is_dir():
        return []
    pids = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
    found = {pid: stat_fields(pid) for pid in pids}
    return [pid for pid, f in found.items() if f and int(f[3]) == session and f[0] != "Z"]


def open_resume(settings: Settings) -> Subject:
    """Open a case of needle: load a state saved near the end of an epoch, get the next batch."""
    count = settings.pick(SAMPLES, 10_000)

    def measure() -> Numbers:
        dataset = ours.Numbers(count)
        loader = data.DataLoader(dataset, BATCH, shuffle=True, seed=ours.SEED)
        position = int(0.99 * count / BATCH)
        state = {**loader.state_dict(), "position": position}
        started = time.perf_counter()
        loader.load_state_dict(state)
        batches = iter(loader)
        next(batches)
        seconds = time.perf_counter() - started
        rest = 1 + sum(1 for _ in batches)
        if rest != count // BATCH - position:
            raise RuntimeError(f"got {rest} batches after resuming at {position}")
        return {"seconds": seconds}

    return Once(measure)


def open_skip(settings: Settings) -> Subject:
    """Open a case of PyTorch: without a state it must produce and discard batches."""
    count = settings.pick(SAMPLES, 10_000)

    def measure() -> Numbers:
        loader = peers.torch_loader(ours.Numbers(count), BATCH, 0)
        started = time.perf_counter()
        next(islice(iter(loader), int(0.99 * count / BATCH), None))
        return {"seconds": time.perf_counter() - started}

    return Once(measure)


def targets(result: Result) -> list[Target]:
    """Return the targets: 0.5 s, 1 s and 0.05 s."""
    found = []
    for what, own, peer, goal in (
        ("worker killed, to the error", "worker killed: error", "worker killed: error", 0.5),
        ("Ctrl-C, to the program's end", "Ctrl-C", "Ctrl-C", 1.0),
        ("resume at 99 %", "resume at 99 %", "resume at 99 % by skipping", 0.05),
    ):
        value = result.median(f"needle, {own}", "seconds")
        other = f"torch, {peer}" if f"torch, {peer}" in result.outcomes else ""
        words = f"torch {median_and_range(result, other, 'seconds')} s" if other else ""
        mine = f"{median_and_range(result, f'needle, {own}', 'seconds')} s"
        found.append(Target(what, value, goal, mine, words, at_most=True, unit="s"))
    return found


def tables(result: Result) -> list[str]:
    """Return a table of all numbers; for replaced workers the longest wait for a batch."""
    rows = []
    for name, outcome in result.outcomes.items():
        if "seconds" in outcome.values:
            cells = [
                spread(outcome.median(k), outcome.span(k))
                for k in ("seconds", "tracebacks", "left")
            ]
            rows.append([name, *cells])
    return table(("", "seconds", "tracebacks", "processes left"), rows)
