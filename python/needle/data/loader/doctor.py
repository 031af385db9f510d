"""``doctor(loader)``, which finds the stage that limits a loader, gives advice and draws a chart.

The doctor runs a few batches three times with its own engines: first it only reads the samples,
then it does all the work in one thread, then it uses the loader's kind of engine. The position of
the loader does not change.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..batching.pipeline import Pipeline
from ..samples.ticket import SERIALS, Ticket
from ..samples.timing import add_seconds
from ..workers import make_engine
from ..workers.engine import Engine
from .choice import available_cores, random_state_kept
from .dataloader import DataLoader
from .statistics import Stats

BATCHES = 12
BAR = 30


@dataclass(frozen=True)
class Diagnosis:
    """The result of ``doctor``, which ``print`` shows as text.

    rates: samples per second of "fetch only" and "prepare only" (in one thread) and of the "full"
    loader. stages: the seconds of each stage in one thread. limit: the slowest stage. advice:
    possible changes, most promising first.
    """

    rates: dict[str, float]
    stages: dict[str, float]
    limit: str
    advice: tuple[str, ...]
    samples: int

    def __str__(self) -> str:
        lines = [f"{self.samples} samples, read three times:"]
        lines += _bars(self.rates, "samples/s")
        lines.append("where the work of one thread goes:")
        total = sum(self.stages.values()) or 1.0
        lines += _bars({name: 100 * s / total for name, s in self.stages.items()}, "%")
        lines += [f"limit: {self.limit}", *(f"- {line}" for line in self.advice)]
        return "\n".join(lines)


def doctor(loader: DataLoader, batches: int = BATCHES) -> Diagnosis:
    """Measure ``loader`` on its first ``batches`` batches, in three passes over them.

    The global random streams are restored afterwards. Raises ValueError if the loader has no
    batches.
    """
    with random_state_kept():
        tickets = _first_tickets(loader, batches)
        collate = None if loader.collate is None else _nothing
        fetching = Pipeline(loader.dataset, None, collate, on_error=loader.on_error)
        everything = loader.make_pipeline()
        fetch, prepare = (_measured(tickets, "inline", each) for each in (fetching, everything))
        full = prepare
        if loader.num_workers:
            workers = {"workers": loader.num_workers, "prefetch": loader.prefetch}
            full = _measured(tickets, loader.engine, everything, **workers)
    passes = {"fetch only": fetch, "prepare only": prepare, "full": full}
    rates = {name: stats.samples_per_second("all") for name, stats in passes.items()}
    stages = {name: s for name, s in prepare.seconds.items() if name != "all" and s > 0}
    limit, advice = _judge(loader, rates, stages)
    return Diagnosis(rates, stages, limit, advice, prepare.samples)


def _nothing(samples: list[Any]) -> None:
    """Return nothing, since the samples are only read."""


def _first_tickets(loader: DataLoader, batches: int) -> list[Ticket]:
    found = loader.make_order().epoch(loader.seed, loader.epoch, 0)
    tickets = list(islice(iter(found.next, None), batches))
    if not tickets:
        raise ValueError("doctor: the loader must have at least one batch, got an empty dataset")
    return tickets


def _measured(
    tickets: list[Ticket], name: str, pipeline: Pipeline, workers: int = 0, prefetch: int = 1
) -> Stats:
    engine = make_engine(name, pipeline, workers=workers, prefetch=prefetch)
    try:
        _pass(tickets[: max(1, workers)], engine)  # fills the caches and starts the workers
        return _pass(tickets, engine)
    finally:
        engine.close()


def _pass(tickets: list[Ticket], engine: Engine) -> Stats:
    """Pass the tickets through an engine; ``seconds["all"]`` is wall-clock time."""
    stats, submitted = Stats(), 0
    started = time.perf_counter()
    for collected in range(len(tickets)):
        while submitted < min(len(tickets), collected + engine.capacity):
            engine.submit(tickets[submitted]._replace(serial=next(SERIALS)))
            submitted += 1
        answer = engine.collect()
        if answer.error is not None:
            raise answer.error
        stats.samples += answer.samples
        add_seconds(stats.seconds, answer.seconds)
    stats.seconds["all"] = time.perf_counter() - started
    return stats


def _judge(
    loader: DataLoader, rates: dict[str, float], stages: dict[str, float]
) -> tuple[str, tuple[str, ...]]:
    limit = max(stages, key=lambda name: stages[name]) if stages else "collate"
    advice = [_for_stage(limit)]
    cores = available_cores()
    gain = rates["full"] / rates["prepare only"] if loader.num_workers else 1.0
    if not loader.num_workers:
        if rates["prepare only"] < 50_000:
            advice.append(f"num_workers={cores} would prepare batches while the program computes")
        else:
            advice.append("one thread prepares this quickly; workers would gain little")
    elif gain < 1:
        advice.insert(
            0,
            f"{loader.num_workers} {loader.engine} prepare {rates['full']:,.0f} samples/s, one "
            f"thread alone {rates['prepare only']:,.0f}: they cost more than they bring; try "
            f"num_workers=0, or 'auto'",
        )
    elif gain < 0.6 * min(loader.num_workers, cores):
        other = "processes" if loader.engine == "threads" else "threads"
        advice.append(
            f"{loader.num_workers} workers are {gain:.1f} times as fast as one thread: try "
            f"engine={other!r}"
        )
    if loader.num_workers > cores:
        advice.append(f"{loader.num_workers} workers share {cores} cores: try num_workers={cores}")
    return limit, tuple(advice)


def _for_stage(stage: str) -> str:
    return {
        "read": "reading takes most: give the dataset fetch(indices), keep it in memory or pack it "
        "(needle.data.pack), or read by more workers",
        "decode": "decoding takes most: store smaller images, or raw ones, or decode by more "
        "workers",
        "augment": "transforms take most: loader.explain() names those that run in Python; crop "
        "before resizing, or augment='device'",
        "collate": "putting batches together takes most: return arrays of one shape and dtype, "
        "and leave collate to the loader",
    }.get(stage, f"{stage} takes most")


def _bars(values: dict[str, float], unit: str) -> list[str]:
    top = max(values.values(), default=0.0) or 1.0
    return [
        f"  {name:<13}{'#' * max(1, round(BAR * value / top)):<{BAR}} {value:>10,.0f} {unit}"
        for name, value in values.items()
    ]
