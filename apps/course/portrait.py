"""``progress --html``: one page that shows a learner's work, without scripts or other files.

The colours follow the reader's light or dark scheme. The filters are those of a LeNet which
``own_lenet`` trains with the learner's own tree. Called by __main__.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

from .checking import environment_of
from .outcome import gist
from .processes import STOPPED, run_group
from .progress import DONE, MARKS, WORDS, Entry, coming, load, points_of, states
from .registry import Exercise, Part, exercises, parts

STYLE = Path(__file__).with_suffix(".css")
LONGEST = 90
"""Seconds that the training of a LeNet may take."""


def write(root: Path, file: Path) -> None:
    """Write the page of a student tree into ``file``."""
    found, entries = states(root), load(root)
    file.write_text(page(found, entries, own_lenet(root, found)), "utf-8")


def page(found: Mapping[str, str], entries: Mapping[str, Entry], lenet: Mapping[str, Any]) -> str:
    """Return the page. found: the state of each exercise. lenet: what ``own_lenet`` returns."""
    sections = [
        ("The parts", _parts(found)),
        ("Your LeNet", _lenet(lenet)),
        ("Your kernels", _kernels(entries)),
        ("What to remember", _remember(found)),
    ]
    body = "".join(
        f'<section aria-label="{title}"><h2>{title}</h2>{text}</section>'
        for title, text in sections
        if text
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>My needle</title><style>\n{STYLE.read_text('utf-8')}</style></head><body>"
        f"<header><h1>A deep learning framework, built by me</h1>{_facts(found, entries)}"
        f"</header><main>{body}</main><footer>Written by <code>python -m apps.course progress "
        f"--html</code> on {date.today():%d %B %Y}.</footer></body></html>\n"
    )


def _facts(found: Mapping[str, str], entries: Mapping[str, Entry]) -> str:
    """Return the totals (points, exercises, time) and the next exercise."""
    earned, most = map(sum, zip(*(points_of(part, found) for part in parts()), strict=True))
    done, open_ = (sum(state == each for state in found.values()) for each in ("own", "given"))
    minutes = sum(entry.minutes for entry in entries.values())
    rows = [
        ("points", f"{earned} <small>of {most}</small>"),
        ("exercises solved by me", f"{done} <small>of {len(found) - open_}</small>"),
    ]
    rows += [("spent on exercises", _time(minutes))] if minutes >= 1 else []
    line, *command = coming(dict(found))
    code = f"<br><code>{escape(command[0].strip())}</code>" if command else ""
    facts = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in rows)
    return f'<dl class="facts">{facts}</dl><p class="next">{escape(_capital(line))}{code}</p>'


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _time(minutes: float) -> str:
    if minutes < 60:
        return f"{minutes:.0f} <small>minutes</small>"
    return f"{minutes // 60:.0f} <small>h</small> {minutes % 60:.0f} <small>min</small>"


def _parts(found: Mapping[str, str]) -> str:
    used = [state for state in WORDS if state in found.values()]
    legend = "".join(
        f'<span class="{state}">{MARKS[state].strip()} {WORDS[state]}</span>' for state in used
    )
    rows = "".join(_part(part, found) for part in parts())
    return f'<div class="parts">{rows}</div><p class="legend">{legend}</p>'


def _part(part: Part, found: Mapping[str, str]) -> str:
    """Return a part's row: its title, points, a bar, and a chip for each exercise."""
    earned, most = points_of(part, found)
    chips = "".join(_chip(exercise, found[exercise.tag]) for exercise in part.exercises)
    title = f"{part.number} · {_capital(part.title)}"
    return (
        f'<article class="part"><div><h3>{escape(title)}</h3>'
        f'<span class="soft">{earned} of {most} points</span>'
        f'<div class="bar" aria-hidden="true"><i style="width:{earned / most:.1%}"></i></div></div>'
        f"<ul>{chips}</ul></article>"
    )


def _chip(exercise: Exercise, state: str) -> str:
    mark = (
        f'<span aria-hidden="true">{MARKS[state].strip()}</span> ' if MARKS[state].strip() else ""
    )
    return (
        f'<li class="{state}" title="{escape(exercise.title)}: {WORDS[state]}">{mark}{exercise.tag}'
        f'<span class="hidden">: {WORDS[state]}</span></li>'
    )


def _kernels(entries: Mapping[str, Entry]) -> str:
    """Return a bar for each timed exercise: its rate, and the library's as a mark."""
    timed = [exercise for tag, exercise in exercises().items() if _rate(entries, tag)]
    if not timed:
        return ""
    rows = "".join(_kernel(exercise, *_rate(entries, exercise.tag)) for exercise in timed)
    return (
        "<p>The whole width of a bar is the limit of one core of this machine. The black or white "
        f'mark is the library\'s own kernel.</p><div class="kernels">{rows}</div>'
    )


def _rate(entries: Mapping[str, Entry], tag: str) -> Sequence[float]:
    return entries.get(tag, Entry()).rate


def _kernel(exercise: Exercise, own: float, reference: float, peak: float) -> str:
    return (
        f'<div class="kernel"><h3>{escape(_capital(exercise.title))}</h3><div class="track" '
        f'aria-hidden="true"><i style="width:{min(own / peak, 1):.1%}"></i>'
        f'<b style="left:{min(reference / peak, 1):.1%}"></b></div>'
        f"<p>{own:.1f} GFLOP/s: {own / peak:.0%} of the core's limit of {peak:.0f}, "
        f"{own / reference:.0%} of the library's kernel</p></div>"
    )


def own_lenet(root: Path, found: Mapping[str, str]) -> dict[str, Any]:
    """Return the output of ``own_lenet``; if it fails, {"open": tag} or {"problem": message}."""
    if found["lenet5"] not in DONE:
        return {"open": "lenet5"}
    command = [sys.executable, "-m", "apps.course.own_lenet"]
    done = run_group(command, LONGEST, root, environment_of(root, "np"))
    if done.returncode == STOPPED:
        return {"problem": f"the training was stopped after {LONGEST} s"}
    if done.returncode:
        error = gist(done.stderr, root)
        return {"problem": f"{error['error']}, at {error['place'] or 'an unknown line'}"}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _lenet(found: Mapping[str, Any]) -> str:
    if tag := found.get("open"):
        title = exercises()[tag].title
        return (
            "<p>Once the exercises that LeNet needs are solved, it is trained here with your code, "
            f"and you see its filters. The next of them is <code>{tag}</code>, {escape(title)}.</p>"
        )
    if problem := found.get("problem"):
        return f"<p>It could not be trained: {escape(problem)}.</p>"
    filters, maps, losses = found["filters"], found["maps"], found["losses"]
    largest = max(abs(w) for f in filters for row in f for w in row)
    brightest = max(w for m in maps for row in m for w in row) or 1.0
    tiles = "".join(_tile(f, largest, f"filter {n}") for n, f in enumerate(filters, 1))
    answers = _tile(found["digit"], 1.0, "the digit", "ink") + "".join(
        _tile(m, brightest, f"where filter {n} answers to the digit") for n, m in enumerate(maps, 1)
    )
    return (
        f"<p>Just now your own autograd, layers and optimiser trained it on {len(losses)} batches "
        f"of handwritten digits. It reads <strong>{found['accuracy']:.1%}</strong> of 300 digits "
        'that it has never seen.</p><div class="lenet">'
        f'<figure><div class="tiles">{tiles}</div><figcaption>The six filters of the first layer, '
        "5 × 5 weights each. Blue weights are positive, orange ones negative: a filter with both "
        "answers to an edge between them.</figcaption></figure>"
        f'<figure><div class="tiles">{answers}</div><figcaption>A digit, and how '
        "strongly each filter answers to each place of it.</figcaption></figure>"
        f"<figure>{_curve(losses)}<figcaption>The loss, batch by batch{_averaged(losses)}."
        "</figcaption></figure></div>"
    )


def _tile(
    values: Sequence[Sequence[float]], largest: float, alternative: str, positive: str = "plus"
) -> str:
    """Return numbers as squares whose opacity is proportional to the number."""
    kind = {True: positive, False: "minus"}
    squares = "".join(
        f'<rect class="{kind[value > 0]}" x="{x}" y="{y}" width="1.02" height="1.02" '
        f'opacity="{abs(value) / largest:.2f}"/>'
        for y, row in enumerate(values)
        for x, value in enumerate(row)
        if abs(value) >= 0.02 * largest
    )
    size = f"{len(values[0])} {len(values)}"
    return f'<svg viewBox="0 0 {size}" role="img" aria-label="{alternative}">{squares}</svg>'


def _window(losses: Sequence[float]) -> int:
    return max(1, len(losses) // 60)


def _averaged(losses: Sequence[float]) -> str:
    return f", averaged over {_window(losses)}" if _window(losses) > 1 else ""


def _curve(losses: Sequence[float]) -> str:
    """Return the loss as a line."""
    width, height, left, window = 620, 180, 40, _window(losses)
    means = [
        sum(losses[i : i + window]) / window for i in range(0, len(losses) - window + 1, window)
    ]
    top = max(means)
    step = (width - left) / max(1, len(means) - 1)
    points = " ".join(
        f"{left + step * i:.1f},{10 + (height - 40) * (1 - mean / top):.1f}"
        for i, mean in enumerate(means)
    )
    base = height - 30
    said = f"The loss falls from {means[0]:.2f} to {means[-1]:.2f} in {len(losses)} batches"
    return (
        f'<svg class="curve" viewBox="0 0 {width} {height}" role="img" aria-label="{said}">'
        f'<line x1="{left}" y1="{base}" x2="{width}" y2="{base}"/>'
        f'<text x="0" y="16">{top:.1f}</text><text x="0" y="{base}">0</text>'
        f'<text x="{left}" y="{height - 8}">batch 1</text>'
        f'<text x="{width}" y="{height - 8}" text-anchor="end">{len(losses)}</text>'
        f'<polyline points="{points}"/></svg>'
    )


def _remember(found: Mapping[str, str]) -> str:
    """Return the explanation of each exercise that passes, folded."""
    return "".join(
        f"<details><summary>{escape(_capital(exercise.title))}</summary>"
        f"<p>{escape(exercise.explanation)}</p></details>"
        for tag, exercise in exercises().items()
        if found[tag] in ("own", "solved")
    )
