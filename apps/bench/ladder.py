"""The ladders' common part: run the program, print the table, draw the roofline.

Called by gemm_ladder, conv_ladder and the course. Times are the best of several calls. The peak is
that of a loop of independent fused multiply-adds, the bandwidths are those of a[i] = b[i] + s *
c[i], all on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def run(
    program: Path, size: int, threads: int, flops: float, step: str = ""
) -> tuple[dict[str, float], list[Row]]:
    """Return one core's limits, and a row for each step with "gflops" and "share" of the peak.

    step: run only this step ("03") and then the library's kernel. The limits are "peak" in GFLOP/s,
    and the other names' bandwidths in GB/s. RuntimeError with the program's message if it fails.
    """
    command = [str(program), str(size), str(threads), *([step] if step else [])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"{program.name}: {done.stderr.strip() or f'exit code {done.returncode}'}"
        )
    first, *rows = [json.loads(line) for line in done.stdout.splitlines()]
    limits = {name: value / 1e9 for name, value in first.items()}
    for row in rows:
        row["gflops"] = flops / row["seconds"] / 1e9
        row["share"] = row["gflops"] / (limits["peak"] * row["threads"])
    return limits, rows


def table(rows: Sequence[Row]) -> list[str]:
    """Return a Markdown table: time, rate, speed-up over step 00, and share of the peak."""
    lines = ["| step | ms | GFLOP/s | times step 00 | of the peak |", "|---|---|---|---|---|"]
    for row in rows:
        lines.append(
            f"| {row['step']} | {row['seconds'] * 1e3:.4g} | {row['gflops']:.3g} "
            f"| {rows[0]['seconds'] / row['seconds']:.3g} | {row['share']:.0%} |"
        )
    return lines


def draw(rows: Sequence[Row], limits: dict[str, float], file: Path) -> None:
    """Draw the roofline of one core: its arithmetic peak and its bandwidths bound every step.

    The abscissa counts the bytes that the inner loop loads and stores, from any cache; so a step
    below its roof waits for something else: a chain of additions, or a slower cache.
    """
    from apps.pictures.roofline import Kernel, draw_roofline  # matplotlib belongs to an extra

    steps = [
        Kernel(row["step"], row["gflops"], row["gflops"] / row["intensity"], 1e-9)
        for row in rows
        if row["threads"] == 1
    ]
    draw_roofline(limits, steps).savefig(file, dpi=120)


def climb(
    name: str,
    size: tuple[str, int, str],
    flops: Callable[[int], float],
    arguments: Sequence[str] | None = None,
) -> None:
    """Run the command line of a ladder. size: its option, default and help. flops: per step."""
    option, default, meaning = size
    parser = argparse.ArgumentParser(prog=f"python -m apps.bench.{name}")
    parser.add_argument("--program", type=Path, required=True, help=f"CMake's {name}")
    parser.add_argument(f"--{option}", type=int, default=default, help=meaning)
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="threads of the last step"
    )
    parser.add_argument("--out", type=Path, help="file of the picture, which needs matplotlib")
    given = parser.parse_args(arguments)
    n = getattr(given, option)
    try:
        limits, rows = run(given.program, n, given.threads, flops(n))
    except RuntimeError as error:
        sys.exit(str(error))
    print(f"{option} = {n}, float32; one core's peak: {limits['peak']:.4g} GFLOP/s\n")
    print(*table(rows), sep="\n")
    if given.out is None:
        return
    try:
        draw(rows, limits, given.out)
        print(f"\nthe roofline: {given.out}")
    except ImportError:
        print("\nno picture: matplotlib is not installed")
