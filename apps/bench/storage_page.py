"""The storage study as a page: its tables, its targets, its chart. sweep.py has the rows.

An epoch's seconds are the mean of those after the first, where there are such: the first has the
start of the workers in it, and of shards the only GETs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from apps.plot import Measured, draw_bars, read_run
from apps.training.report import figure_of

Row = dict[str, Any]
LOCAL, IMAGES, SHARDS = "builtin", "s3-images", "s3-packed"
MOST, AT_ONCE, FEWER = 1.1, 8, 10
"""The targets: times the local epoch, from so many GETs at once on; how many times fewer GETs."""


WORKERS = {
    "processes": "processes; each asks for up to 8 objects at once",
    "threads": "threads; each asks for up to 8 objects at once, over the 10 connections of the S3 "
    "client that they share",
}


def later_epochs(run: Measured) -> Measured:
    """The run without its first epoch, if it has others."""
    return replace(run, training=run.training[1:] or run.training)


def models_of(rows: list[Row]) -> list[str]:
    """The models, in order."""
    return list(dict.fromkeys(row["model"] for row in rows))


def seconds(row: Row) -> float:
    """Of an epoch."""
    return float(row["waiting_s"] + row["computing_s"])


def table(rows: list[Row]) -> list[str]:
    """One model's rows in Markdown; ``times`` is against the source that comes first, with the
    same workers. GETs are those of the whole run: indices, the test split, every epoch."""
    first = rows[0]["source"]
    against = {row["workers"]: seconds(row) for row in rows if row["source"] == first}
    lines = [
        "| source | workers | first epoch s | waiting s | computing s | an epoch s | "
        f"times {first} | GETs | at once |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        gets, at_once = ("" if row[k] is None else row[k] for k in ("gets", "at_once"))
        lines.append(
            f"| {row['source']} | {row['workers']} | {row['first_s']:.2f} | "
            f"{row['waiting_s']:.2f} | {row['computing_s']:.2f} | {seconds(row):.2f} | "
            f"{seconds(row) / against[row['workers']]:.2f} | {gets} | {at_once} |"
        )
    return lines


def targets(rows: list[Row]) -> list[str]:
    """What was reached; of the sources that the study has.

    The same computation took a third longer in one case than in another, so it is the median over
    the numbers of workers that counts, and the range is beside it.
    """
    lines = ["| model | target | median | range | reached |", "|---|---|---:|---|---|"]
    for model in models_of(rows):
        found = {(r["source"], r["workers"]): r for r in rows if r["model"] == model}
        for source in (IMAGES, SHARDS):
            ratios = [
                seconds(row) / seconds(found[LOCAL, workers])
                for (name, workers), row in found.items()
                if name == source and (LOCAL, workers) in found and _at_once_enough(row)
            ]
            said = f"an epoch from {source} at most {MOST} of {LOCAL}"
            lines += _verdict(model, said, ratios, lambda ratio: ratio <= MOST)
        fewer = [
            row["gets"] / found[SHARDS, workers]["gets"]
            for (name, workers), row in found.items()
            if name == IMAGES and row["gets"] and (found.get((SHARDS, workers)) or {}).get("gets")
        ]
        said = f"{SHARDS} at least {FEWER} times fewer GETs than {IMAGES}"
        lines += _verdict(model, said, fewer, lambda ratio: ratio >= FEWER)
    return lines if len(lines) > 2 else []


def _at_once_enough(row: Row) -> bool:
    """Whether it counts: loaded beside the computation, and so many GETs at once if any later."""
    return row["workers"] > 0 and (row["source"] == SHARDS or (row["at_once"] or 0) >= AT_ONCE)


def _verdict(
    model: str, said: str, ratios: list[float], holds: Callable[[float], bool]
) -> list[str]:
    if not ratios:
        return []
    middle = median(ratios)
    span = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return [
        f"| {model} | {said} | {middle:.2f} | {span} | {'yes' if holds(middle) else '**no**'} |"
    ]


def page(rows: list[Row], study: dict[str, Any], facts: dict[str, Any], picture: str) -> str:
    """All of it in Markdown. study: as study.json has it; facts: a run.json of it."""
    machine, store = facts["machine"], study["store"]
    lines = [
        "# The storage study",
        "",
        f"`python apps/sweep.py {study['file']}` on {machine['cores']} cores of "
        f"{machine['processor']}, needle {facts['needle']} at commit {facts['commit']}, Python "
        f"{facts['python']}, {study['threads'] or 'all'} thread(s) for the computation.",
        f"Workers are {WORKERS[study['engine']]}. "
        + (
            f"The store is {store['url']}."
            if store["url"]
            else "The store is a process on the same machine whose GETs wait "
            f"{store['delay_ms']:g} ms; its own processor time and the S3 client's are taken from "
            "the same cores."
        ),
        "Seconds of an epoch are the mean of all epochs after the first, which has the start of "
        "the workers in it and, of shards, the only GETs.",
        "",
    ]
    if found := targets(rows):
        lines += ["## Targets", "", "Over all numbers of workers but none.", ""]
        lines += [*found, ""]
    lines += [f"![seconds an epoch waits and computes]({picture})", ""]
    for model in models_of(rows):
        own = [row for row in rows if row["model"] == model]
        options = ", ".join(f"{k} {v}" for k, v in own[0]["options"].items())
        lines += [f"## {model}", "", f"{options}.", "", *table(own), ""]
    return "\n".join(lines)


def draw(rows: list[Row], folders: Iterable[Path], path: Path) -> None:
    """A panel a model: bars of waiting and computing, by source and workers."""
    models = models_of(rows)
    figure, panels = figure_of(width=13, height=4.2 * len(models), columns=1, rows=len(models))
    runs = [
        (row["model"], replace(later_epochs(read_run(folder)), source=row["source"]))
        for row, folder in zip(rows, folders)
    ]
    for model, axes in zip(models, [panels] if len(models) == 1 else panels):
        draw_bars(axes, [run for name, run in runs if name == model])
        axes.set_title(model, loc="left", fontsize=9)
    figure.savefig(path)
