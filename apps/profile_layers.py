"""Times a model layer by layer: python apps/profile_layers.py --model resnet20 --devices cpu

A column for each device and batch size, forward and backward; random images and labels. The first
device is the reference: the others' losses and gradients must be near its (1e-3). A device
``cpu_numpy`` is the sequential reference, ``cpu`` the parallel kernels. --picture draws the table.
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

LARGEST_DIFFERENCE = 1e-3


def prepared(
    model: str, device: str, batch: int, channels: int
) -> tuple[Any, needle.Tensor, needle.Tensor]:
    """The network, random images and labels: the same on every device."""
    place = needle.device(device)
    np.random.seed(0)
    net = build_model(model, in_channels=channels, num_classes=10, device=place)
    size = find_model(model).image_size  # type: ignore[attr-defined]
    shape = (batch, channels, *size)
    pixels = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    images = needle.Tensor(pixels, device=place, requires_grad=False)
    labels = needle.Tensor(np.arange(batch) % 10, device=place, dtype="int64", requires_grad=False)
    return net, images, labels


def measure(model: str, device: str, batch: int, repeats: int, channels: int) -> Profile:
    """The fastest of ``repeats`` steps of batches of random images."""
    net, images, labels = prepared(model, device, batch, channels)
    profiles = [profile_step(net, images, labels, warm_up=i == 0) for i in range(repeats)]
    return min(profiles, key=lambda profile: profile.seconds)


def outcome(model: str, device: str, batch: int, channels: int) -> np.ndarray[Any, Any]:
    """Loss and gradients of all parameters after one pass forward and backward, end to end."""
    net, images, labels = prepared(model, device, batch, channels)
    loss = needle.nn.CrossEntropyLoss()(net(images), labels)
    loss.backward()
    grads = [p.grad.numpy().ravel() for p in net.parameters()]
    return np.concatenate([np.atleast_1d(loss.numpy()), *grads])


def differences(model: str, devices: list[str], batch: int, channels: int) -> dict[str, float]:
    """How far each device's loss and gradients are from the first one's, of their norm."""
    first, *others = (outcome(model, device, batch, channels) for device in devices)
    norm = float(np.linalg.norm(first))
    return {
        device: float(np.linalg.norm(other - first)) / norm
        for device, other in zip(devices[1:], others, strict=True)
    }


def draw(model: str, measured: dict[str, Profile], file: Path) -> None:
    """A bar a layer and column, forward above backward; milliseconds, logarithmic."""
    from apps.pictures.canvas import picture  # matplotlib is of the extra [train]

    columns = {name: {r["layer"]: r for r in layer_rows(p)} for name, p in measured.items()}
    layers = list(dict.fromkeys(layer for rows in columns.values() for layer in rows))
    figure, axes = picture(10, 7, 2)
    width = 0.8 / len(columns)
    for axis, phase in zip(axes.ravel(), ("forward", "backward"), strict=True):
        for i, (name, rows) in enumerate(columns.items()):
            heights = [rows[layer][f"{phase}_ms"] if layer in rows else 0.0 for layer in layers]
            axis.bar(np.arange(len(layers)) + i * width, heights, width, label=name)
        axis.set_xticks(np.arange(len(layers)) + 0.4 - width / 2, layers, rotation=30, fontsize=7)
        axis.set_yscale("log")
        axis.set_ylabel(f"{phase}, ms")
    axes.ravel()[0].legend(fontsize=7, ncols=3, title=model)
    figure.savefig(file)


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
    add("--picture", type=Path, help="a file for the table as a picture (PNG, SVG or PDF)")
    add("--repeats", type=int, default=3, help="steps, of which the fastest is shown")
    options = parser.parse_args(arguments)
    channels = options.channels or (1 if options.model in ("lenet5", "mlp_resnet") else 3)
    try:
        batches = [int(text) for text in options.batch_sizes.split(",")]
        devices = options.devices.split(",")
        measured = {
            f"{device}, {batch}": measure(options.model, device, batch, options.repeats, channels)
            for device in devices
            for batch in batches
        }
        apart = differences(options.model, devices, batches[0], channels)
    except (NeedleError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.model}, milliseconds forward / backward by device and batch size\n")
    print(table(measured))
    for device, distance in apart.items():
        print(f"\nloss and gradients of {device}: {distance:.1e} from those of {devices[0]}")
    if options.picture:
        draw(options.model, measured, options.picture)
    return int(any(not distance < LARGEST_DIFFERENCE for distance in apart.values()))


def _times(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{row['forward_ms']:.2f} / {row['backward_ms']:.2f}"


if __name__ == "__main__":
    sys.exit(main())
