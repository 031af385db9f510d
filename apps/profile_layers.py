"""Times a model layer by layer: python apps/profile_layers.py --model resnet20 --devices cpu

A column for each device and batch size, forward and backward; random images and labels.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: the folder above is where apps.models is found
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import needle
from apps.models import MODELS, build_model, find_model
from apps.profiling import Profile, layer_rows, profile_step
from needle.errors import NeedleError


def measure(model: str, device: str, batch: int, repeats: int, channels: int) -> Profile:
    """The fastest of ``repeats`` steps of batches of random images."""
    place = needle.device(device)
    np.random.seed(0)
    net = build_model(model, in_channels=channels, num_classes=10, device=place)
    size = find_model(model).image_size  # type: ignore[attr-defined]
    shape = (batch, channels, *size)
    pixels = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    images = needle.Tensor(pixels, device=place, requires_grad=False)
    labels = needle.Tensor(np.arange(batch) % 10, device=place, dtype="int64", requires_grad=False)
    profiles = [profile_step(net, images, labels, warm_up=i == 0) for i in range(repeats)]
    return min(profiles, key=lambda profile: profile.seconds)


def table(measured: dict[str, Profile]) -> str:
    """Markdown: a row a layer, "forward / backward" milliseconds in a column a measurement."""
    columns = {name: {r["layer"]: r for r in layer_rows(p)} for name, p in measured.items()}
    layers = list(dict.fromkeys(layer for rows in columns.values() for layer in rows))
    kinds = next(iter(measured.values())).kinds
    lines = [
        f"| layer | kind | {' | '.join(columns)} |",
        "|---|---|" + "---:|" * len(columns),
    ]
    for layer in layers:
        cells = [_times(rows.get(layer)) for rows in columns.values()]
        lines.append(f"| {layer} | {kinds.get(layer, '')} | {' | '.join(cells)} |")
    whole = [f"{1e3 * profile.seconds:.2f}" for profile in measured.values()]
    return "\n".join([*lines, f"| **step** | | {' | '.join(whole)} |"])


def main(arguments: list[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    parser = argparse.ArgumentParser(prog="apps/profile_layers.py", description=__doc__)
    add = parser.add_argument
    add("--model", default="lenet5", help=", ".join(sorted(MODELS)))
    add("--devices", default="cpu_numpy,cpu", help="separated by commas")
    add("--batch-sizes", default="128", help="separated by commas")
    add("--channels", type=int, help="of an image (default: 1 for lenet5 and mlp_resnet, else 3)")
    add("--repeats", type=int, default=3, help="steps, of which the fastest is shown")
    options = parser.parse_args(arguments)
    channels = options.channels or (1 if options.model in ("lenet5", "mlp_resnet") else 3)
    try:
        batches = [int(text) for text in options.batch_sizes.split(",")]
        measured = {
            f"{device}, {batch}": measure(options.model, device, batch, options.repeats, channels)
            for device in options.devices.split(",")
            for batch in batches
        }
    except (NeedleError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.model}, milliseconds forward / backward by device and batch size\n")
    print(table(measured))
    return 0


def _times(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{row['forward_ms']:.2f} / {row['backward_ms']:.2f}"


if __name__ == "__main__":
    sys.exit(main())
