"""The pages and the chart of the storage study, made from the rows of sweep.py, which calls this.

The seconds of an epoch are the mean over all epochs after the first, if there are any: the first
includes the start of the workers and, for shards, the only GETs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from apps.plot import Measured, draw_bars, read_run
from apps.training.figures import figure_of

Row = dict[str, Any]
LOCAL, IMAGES, SHARDS = "builtin", "s3-images", "s3-packed"
MOST, AT_ONCE, FEWER = 1.1, 8, 10
"""The targets: an epoch takes at most MOST times the local one, judged where at least AT_ONCE GETs
run at once; shards need at least FEWER times fewer GETs than single images."""

WORKERS = {
    "processes": "processes; each fetches up to 8 objects at once",
    "threads": "threads; each fetches up to 8 objects at once, over the 10 connections of the S3 "
    "client that they share",
}


def later_epochs(run: Measured) -> Measured:
    """Return the run without its first epoch, if it has others."""
    return replace(run, training=run.training[1:] or run.training)


def models_of(rows: list[Row]) -> list[str]:
    """Return the names of the models in the order of the rows."""
    return list(dict.fromkeys(row["model"] for row in rows))


def seconds(row: Row) -> float:
    """Return the seconds of an epoch."""
    return float(row["waiting_s"] + row["computing_s"])


def table(rows: list[Row]) -> list[str]:
    """Return the rows of one model as a Markdown table.

    "times" compares with the first source and the same number of workers. GETs are those of the
    whole run: indices, the test split and every epoch.
    """
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


def summary(rows: list[Row]) -> list[str]:
    """Return a Markdown table with a row for each model and source.

    Seconds are medians over the numbers of workers, with the range in brackets.
    """
    lines = [
        "| model | source | workers | waiting s | an epoch s | GETs | at once |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["source"]), []).append(row)
    for (model, source), own in groups.items():
        workers = ", ".join(str(row["workers"]) for row in own)
        waiting = _median_and_range([row["waiting_s"] for row in own])
        whole = _median_and_range([seconds(row) for row in own])
        gets, at_once = (
            max((row[k] for row in own if row[k] is not None), default="")
            for k in ("gets", "at_once")
        )
        lines.append(
            f"| {model} | {source} | {workers} | {waiting} | {whole} | {gets} | {at_once} |"
        )
    return lines


def _median_and_range(values: list[float]) -> str:
    low, middle, high = (f"{value:.2f}" for value in (min(values), median(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def targets(rows: list[Row]) -> list[str]:
    """Return a Markdown table of the targets that concern the sources of the study.

    The same computation took a third longer in one case than in another; therefore the median
    over the numbers of workers decides, and the range is shown beside it.
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
    """Return True if a row counts: it has workers and, unless shards, enough GETs at once."""
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


def page(
    rows: list[Row],
    study: dict[str, Any],
    facts: dict[str, Any],
    picture: str,
    full: bool = True,
) -> str:
    """Return the page in Markdown.

    study: the content of study.json. facts: that of one run.json. full: show every row, else a
    summary of them.
    """
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
            else "The store is a process on the same machine that delays every GET by "
            f"{store['delay_ms']:g} ms; it and the S3 client use processor time of the same cores."
        ),
        "Seconds of an epoch are the mean of all epochs after the first; the first includes the "
        "start of the workers and, for shards, the only GETs.",
        "",
    ]
    if found := targets(rows):
        lines += ["## Targets", "", "Over all cases with at least one worker.", ""]
        lines += [*found, ""]
    lines += [f"![seconds an epoch waits and computes]({picture})", ""]
    if not full:
        said = "Medians over the numbers of workers, with the range in brackets."
        lines += ["## Seconds and requests", "", said, "", *summary(rows), ""]
    for model in models_of(rows):
        own = [row for row in rows if row["model"] == model]
        options = ", ".join(f"{k} {v}" for k, v in own[0]["options"].items())
        lines += (
            [f"## {model}", "", f"{options}.", "", *table(own), ""]
            if full
            else [f"- {model}: {options}"]
        )
    return "\n".join(lines).rstrip() + "\n"


def draw(rows: list[Row], folders: Iterable[Path], path: Path) -> None:
    """Draw a panel for each model: bars of waiting and computing, by source and workers."""
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
