"""Measure needle and PyTorch on one GPU in turns, and write RESULTS.md into this folder.

``python -m apps.bench.cuda [--device cuda:1] [--work NAME,...] [--precision tf32] [--seconds 480]
[--quick] [--out FOLDER]``. The page compares each piece with the GPU's measured ceilings: memory
bandwidth (the best side's relu of 512 MB) and arithmetic (the best side's largest product). It is
written after each piece, so a run that is cut off leaves what it has measured.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import needle
from needle import config

from .sides import SIDES, GpuSide, best
from .work import Piece, pieces

ROUNDS, SECONDS = 5, 0.2
OURS = ("needle", "needle, captured")
CAPTURED = (OURS[1], "PyTorch, CUDA graph")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return 1 if the device cannot be used or a piece of needle failed."""
    options = parse(arguments)
    place = needle.device(options.device)
    if not place.enabled():
        print(f"needle: {place.why()}")
        return 1
    if options.precision not in place.matmul_precisions:
        print(f"needle: {place} multiplies in {', '.join(place.matmul_precisions)}")
        return 1
    sides = [name for name in SIDES if name.startswith("needle") or has_torch()]
    if not has_torch():
        print("PyTorch is not installed: only needle is measured", flush=True)
    found: dict[str, dict[str, float]] = {}
    work, failed, left = pieces(options.quick, options.precision), False, []
    ends = time.monotonic() + options.seconds
    for name, piece in work.items():
        if options.work and not any(word in name for word in options.work):
            continue
        if time.monotonic() > ends:
            left.append(name)
            continue
        with config.matmul_precision.using(options.precision):
            found[name], errors = measured(piece, taking_part(piece, sides), options)
        failed = failed or any(side in OURS for side in errors)
        texts = [f"{side} {1e3 * seconds:.3f} ms" for side, seconds in found[name].items()]
        print(
            f"{name}: " + ", ".join([*texts, *(f"{s}: {e}" for s, e in errors.items())]), flush=True
        )
        write(work, found, options)
    if left:
        print(f"{options.seconds:.0f} s are over; --work {','.join(left)} measures the rest")
    return 1 if failed else 0


def write(
    work: dict[str, Piece], found: dict[str, dict[str, float]], options: argparse.Namespace
) -> None:
    """Write the page of what has been measured so far."""
    full = options.precision == config.MATMUL_PRECISION.default
    options.out.mkdir(parents=True, exist_ok=True)
    page = options.out / ("RESULTS.md" if full else f"RESULTS-{options.precision}.md")
    lines = table(work, found, options.device, options.precision)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m apps.bench.cuda", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--work", type=lambda text: text.split(","), help="parts of names")
    choices = config.matmul_precision.choices
    parser.add_argument("--precision", choices=choices, default="float32", help="of products")
    parser.add_argument(
        "--seconds", type=float, default=480, help="no piece is begun after so many (default 480)"
    )
    parser.add_argument("--quick", action="store_true", help="tiny work, only to see that it runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    return parser.parse_args(arguments)


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def taking_part(piece: Piece, sides: Sequence[str]) -> list[str]:
    """Return the sides of a piece; only whole steps are captured."""
    sides = [name for name in sides if name in OURS or not piece.ours]
    return [name for name in sides if piece.captured or name not in CAPTURED]


def measured(
    piece: Piece, names: Sequence[str], options: argparse.Namespace
) -> tuple[dict[str, float], dict[str, str]]:
    """Return median seconds per call of each side over rounds in turns, and the errors."""
    ready, errors = {}, {}
    for name in names:
        try:
            side = SIDES[name](options.device)
            step = piece.build(side)
            ready[name] = (side, step, calls(side, step, options.quick))
        except Exception as error:  # the other sides continue
            errors[name] = f"{type(error).__name__}: {error}"
    samples: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(1 if options.quick else ROUNDS):
        for name, (side, step, count) in ready.items():
            samples[name].append(seconds_of(side, step, count))
    for side, _, _ in ready.values():
        side.release()
    return {name: statistics.median(values) for name, values in samples.items()}, errors


def calls(side: GpuSide, step: object, quick: bool) -> int:
    """Warm up and return the number of calls of a sample."""
    seconds_of(side, step, 1 if quick else 3)
    return 1 if quick else max(1, round(SECONDS / max(seconds_of(side, step, 3), 1e-6)))


def seconds_of(side: GpuSide, step: object, count: int) -> float:
    """Return seconds per call of ``count`` successive calls."""
    assert callable(step)
    side.wait()
    start = time.perf_counter()
    for _ in range(count):
        step()
    side.wait()
    return (time.perf_counter() - start) / count


def table(
    work: dict[str, Piece], found: dict[str, dict[str, float]], device: str, precision: str
) -> list[str]:
    """Return the lines of the page."""
    bandwidth = max(
        (work[n].moved / t for n in found if n == "relu" for t in found[n].values()), default=0
    )
    rate = max(
        (work[n].flops / t for n in found if "product" in n for t in found[n].values()), default=0
    )
    lines = [
        f"# needle on {device}",
        "",
        f"Measured ceilings: {bandwidth / 1e9:.0f} GB/s, {rate / 1e12:.1f} TFLOP/s ({precision}). "
        "Milliseconds per call; medians over rounds in turns. `make bench-cuda` writes this page.",
        "",
        "| work | needle | captured | PyTorch | CUDA graph | of PyTorch's speed | of the graph's "
        "| of the ceiling | goal |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, times in found.items():
        piece = work[name]
        ours = best(times, OURS)
        graph = times.get(CAPTURED[1], float("nan"))
        theirs = best(times, [side for side in times if side not in (*OURS, *CAPTURED)])
        floor = max(piece.moved / bandwidth if bandwidth else 0, piece.flops / rate if rate else 0)
        goal = (
            ""
            if piece.goal is None
            else f"{piece.goal} of {'ceiling' if piece.of_limit else 'PyTorch'}"
        )
        shown = [milliseconds(each) for each in (*map(times.get, OURS), theirs, graph)]
        shares = [share(seconds / ours) for seconds in (theirs, graph, floor)]
        lines.append(f"| {' | '.join([name, *shown, *shares, goal])} |")
    return lines


def milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None or seconds != seconds else f"{1e3 * seconds:.3f}"


def share(of: float) -> str:
    return "–" if of != of else f"{of:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
