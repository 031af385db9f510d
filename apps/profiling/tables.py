"""A profile as a table of layers, and as a trace for ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .listen import BACKWARD, FORWARD, STEP, Profile

PHASES = (FORWARD, BACKWARD, STEP)


def layer_rows(profile: Profile) -> list[dict[str, Any]]:
    """Return milliseconds, operations and bytes by phase for each layer, in order of first calls.

    ``forward_ms`` and ``backward_ms`` include Python; ``*_kernel_ms`` is the time in kernels.
    """
    rows: dict[str, dict[str, Any]] = {}
    for span in profile.spans:
        row = rows.setdefault(span.layer, _empty(span.layer, profile.kinds.get(span.layer, "")))
        row[f"{span.phase}_ms"] += 1e3 * span.seconds
    for call in profile.calls:
        row = rows[call.layer]
        row[f"{call.phase}_kernel_ms"] += 1e3 * call.seconds
        row[f"{call.phase}_operations"] += call.operations
        row[f"{call.phase}_bytes"] += call.bytes
    return list(rows.values())


def layer_table(profile: Profile, limits: Mapping[str, float] | None = None) -> str:
    """Return a Markdown table of the layers.

    limits: those of the machine, from ``limits.measure``; they add a column with the share of the
    arithmetic or the memory limit, whichever is larger.
    """
    rows = layer_rows(profile)
    head = (
        "| layer | kind | forward ms | backward ms | forward MFLOP | backward MFLOP | GFLOP/s | "
        "forward MB | backward MB | of peak |"
    )
    lines = [head, "|---|---|" + 8 * "---:|"]
    for row in [*rows, _total(rows)]:
        done = sum(row[f"{phase}_operations"] for phase in PHASES)
        moved = sum(row[f"{phase}_bytes"] for phase in PHASES)
        seconds = sum(row[f"{phase}_kernel_ms"] for phase in PHASES) / 1e3
        rate = done / seconds / 1e9 if seconds else 0.0
        share = ""
        if limits and seconds:
            memory = moved / seconds / 1e9 / limits["gbs large"]
            arithmetic = rate / limits["gflops"]
            name = "flops" if arithmetic >= memory else "memory"
            share = f"{max(arithmetic, memory):.0%} {name}"
        ms, flop, mb = (
            " | ".join(f"{row[f'{phase}_{what}'] * scale:.{digits}f}" for phase in PHASES[:2])
            for what, scale, digits in (("ms", 1, 3), ("operations", 1e-6, 2), ("bytes", 1e-6, 2))
        )
        lines.append(
            f"| {row['layer']} | {row['kind']} | {ms} | {flop} | {rate:.1f} | {mb} | {share} |"
        )
    step = sum(row["optimizer_ms"] for row in rows)
    lines += [
        "",
        f"The whole step takes {1e3 * profile.seconds:.2f} ms, the optimiser {step:.2f} ms of it.",
    ]
    if limits:
        lines.append(
            f"The peak, measured just before: {limits['gflops']:.1f} GFLOP/s and "
            f"{limits['gbs large']:.1f} GB/s of memory. A share above 100 % is possible: small "
            "arrays lie in caches, which are faster than memory, and other programs on the machine "
            "lower the measured peak."
        )
    return "\n".join(lines) + "\n"


def write_trace(path: Path, profile: Profile) -> None:
    """Write a trace in Chrome's trace event format, with layers in one row and kernels below."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "tid": i, "name": "thread_name", "args": {"name": name}}
        for i, name in enumerate(("layers", "kernels"))
    ]
    for span in profile.spans:
        label = f"{span.layer} {span.phase}"
        events.append(_event(0, label, span.phase, span.start, span.seconds, {}))
    for call in profile.calls:
        about = {
            "layer": call.layer,
            "shapes": call.shapes,
            "operations": call.operations,
            "bytes": call.bytes,
        }
        events.append(_event(1, call.kernel, call.phase, call.start, call.seconds, about))
    path.write_text(json.dumps({"traceEvents": events}) + "\n", encoding="utf-8")


def _event(
    row: int, name: str, category: str, start: float, seconds: float, about: dict[str, Any]
) -> dict[str, Any]:
    times = {"ts": round(1e6 * start, 3), "dur": round(1e6 * seconds, 3)}
    return {"ph": "X", "pid": 0, "tid": row, "name": name, "cat": category, **times, "args": about}


def _empty(layer: str, kind: str) -> dict[str, Any]:
    numbers = {
        f"{phase}_{what}": 0
        for phase in PHASES
        for what in ("ms", "kernel_ms", "operations", "bytes")
    }
    return {"layer": layer, "kind": kind, **numbers}


def _total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    total = _empty("**all**", "")
    for row in rows:
        for key, value in row.items():
            if key not in ("layer", "kind"):
                total[key] += value
    return total
