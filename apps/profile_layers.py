"""Time a model layer by layer: python apps/profile_layers.py --model resnet20 --devices cpu

Prints a table for each batch size with a column for each device: inference, and the forward and the
backward pass of training, on random images and labels. ``cpu_numpy`` uses the definitions in NumPy;
``cpu`` has two columns, one thread and all threads; the column of ``webgpu`` names the adapter.
ReLU is a layer of its own unless --fused is given. The first device is the reference: the losses
and gradients of the others must agree with it to 1e-3. --picture draws the tables.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

if not __package__:  # run as a script, so make the package ``apps`` importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import needle
from apps.models import MODELS, build_model, find_model
from apps.profiling import Profile, layer_rows, profile_inference, profile_step
from needle import nn
from needle.errors import NeedleError

LARGEST_DIFFERENCE = 1e-3
PHASES = ("inference", "forward", "backward")
"""The times in a cell of the table; the last two are for training."""


class Profiles(NamedTuple):
    """The profiles of a device: a forward pass in evaluation mode, and a step of training."""

    inference: Profile
    training: Profile

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the milliseconds of PHASES for each layer, by its name."""
        rows = {row["layer"]: {"inference_ms": 0.0, **row} for row in layer_rows(self.training)}
        for row in layer_rows(self.inference):
            rows.setdefault(row["layer"], row)["inference_ms"] = row["forward_ms"]
        return rows


Measured = dict[str, Profiles]
"""The profiles by the title of their column."""


@dataclass(frozen=True)
class Work:
    """A model to measure on random images with a number of channels."""

    model: str
    channels: int
    fused: bool = False

    def prepare(self, device: str, batch: int) -> tuple[nn.Module, needle.Tensor, needle.Tensor]:
        """Return the network, images and labels; they are the same on every device."""
        place = needle.device(device)
        np.random.seed(0)
        net = build_model(self.model, in_channels=self.channels, num_classes=10, device=place)
        if not self.fused:
            split_relus(net)
        size = find_model(self.model).image_size  # type: ignore[attr-defined]
        pixels = np.random.default_rng(0).standard_normal((batch, self.channels, *size))
        images = needle.Tensor(
            pixels.astype(np.float32), device=place, dtype="float32", requires_grad=False
        )
        labels = needle.Tensor(
            np.arange(batch) % 10, device=place, dtype="int64", requires_grad=False
        )
        return net, images, labels


class ReLU(nn.ReLU):
    """A ReLU that Sequential does not fuse with the layer before it."""

    def forward(self, x: needle.Tensor) -> needle.Tensor:
        return super().forward(x)


def split_relus(net: nn.Module) -> None:
    """Make every ReLU of a Sequential a layer of its own."""
    for _, module in net.named_modules():
        if isinstance(module, nn.Sequential):
            module.modules = tuple(ReLU() if type(m) is nn.ReLU else m for m in module)


class Column(NamedTuple):
    """A device, and the number of threads that its kernels use; 0: all of them."""

    device: str
    threads: int = 0

    def __str__(self) -> str:
        """Return the title: the device, and its threads or adapter (marked if in software)."""
        adapter = getattr(needle.device(self.device), "adapter_name", None)
        threads = f" ({self.threads} thread)" if self.threads else ""
        return self.device + threads + (f": {adapter}" if adapter else "")


def columns_of(devices: Sequence[str]) -> tuple[list[Column], list[str]]:
    """Return the columns of the usable devices, and the reasons why others are left out.

    UnknownNameError for an unknown name.
    """
    columns, reasons = [], []
    for name in devices:
        device = needle.device(name)
        if not device.enabled():
            reasons.append(f"{name} is left out: {device.why()}")
            continue
        if name == "cpu" and device.backend.module.num_threads() > 1:
            columns.append(Column(name, 1))
        columns.append(Column(name))
    return columns, reasons


@contextmanager
def threads_of(column: Column) -> Iterator[None]:
    """Let kernels use the column's number of threads inside the context."""
    if not column.threads:
        yield
        return
    module = needle.device(column.device).backend.module
    before = module.num_threads()
    module.set_num_threads(column.threads)
    try:
        yield
    finally:
        module.set_num_threads(before)


def measure(work: Work, column: Column, batch: int, repeats: int) -> Profiles:
    """Return the fastest of ``repeats`` passes and steps on a batch of random images."""
    net, images, labels = work.prepare(column.device, batch)
    with threads_of(column):
        passes = [profile_inference(net, images, labels) for _ in range(repeats)]
        steps = [profile_step(net, images, labels, warm_up=i == 0) for i in range(repeats)]
    fastest = (min(profiles, key=lambda profile: profile.seconds) for profiles in (passes, steps))
    return Profiles(*fastest)


def outcome(work: Work, device: str, batch: int) -> np.ndarray[Any, Any]:
    """Return the loss and the gradients of all parameters, concatenated, after one pass."""
    net, images, labels = work.prepare(device, batch)
    loss = nn.CrossEntropyLoss()(net(images), labels)
    loss.backward()
    grads = [p.grad.numpy().ravel() for p in net.parameters()]
    return np.concatenate([np.atleast_1d(loss.numpy()), *grads])


def differences(work: Work, devices: Sequence[str], batch: int) -> dict[str, float]:
    """Return the relative distance of each device's loss and gradients from the first one's."""
    first, *others = (outcome(work, device, batch) for device in devices)
    norm = float(np.linalg.norm(first))
    return {
        device: float(np.linalg.norm(other - first)) / norm
        for device, other in zip(devices[1:], others, strict=True)
    }


def table(measured: Measured) -> str:
    """Return a Markdown table: layers by devices, the milliseconds of PHASES."""
    columns = {name: profiles.rows() for name, profiles in measured.items()}
    layers = list(dict.fromkeys(layer for rows in columns.values() for layer in rows))
    kinds = next(iter(measured.values())).training.kinds
    lines = [
        f"| layer | kind | {' | '.join(columns)} |",
        "|---|---|" + "---:|" * len(columns),
    ]
    for layer in layers:
        cells = [_times(rows.get(layer)) for rows in columns.values()]
        lines.append(f"| {layer} | {kinds.get(layer, '')} | {' | '.join(cells)} |")
    whole = [
        " / ".join(f"{1e3 * profile.seconds:.2f}" for profile in profiles)
        for profiles in measured.values()
    ]
    return "\n".join([*lines, f"| **inference / step** | | {' | '.join(whole)} |"])


def draw(model: str, tables: dict[int, Measured], file: Path) -> None:
    """Draw a bar for each layer and device, in logarithmic milliseconds.

    Each batch size is a row with a panel for each of PHASES.
    """
    from apps.pictures.canvas import picture  # matplotlib belongs to the extra [train]

    figure, axes = picture(20, 3.2 * len(tables), len(tables), len(PHASES))
    for row, (batch, measured) in zip(axes.reshape(-1, len(PHASES)), tables.items(), strict=True):
        for axis, phase in zip(row, PHASES, strict=True):
            _bars(axis, measured, phase)
            axis.set_ylabel(f"{phase} of {batch}, ms")
    named = axes.ravel()[0].get_legend_handles_labels()
    figure.legend(*named, loc="outside upper center", fontsize=7, ncols=len(named[1]), title=model)
    figure.savefig(file)


def _bars(axis: Any, measured: Measured, phase: str) -> None:
    columns = {name: profiles.rows() for name, profiles in measured.items()}
    layers = list(dict.fromkeys(layer for rows in columns.values() for layer in rows))
    width = 0.8 / len(columns)
    for i, (name, rows) in enumerate(columns.items()):
        heights = [rows[layer][f"{phase}_ms"] if layer in rows else 0.0 for layer in layers]
        axis.bar(np.arange(len(layers)) + i * width, heights, width, label=name)
    kinds = next(iter(measured.values())).training.kinds
    names = [f"{layer} {kinds.get(layer, '').split('(')[0]}" for layer in layers]
    places = np.arange(len(layers)) + 0.4 - width / 2
    axis.set_xticks(places, names, rotation=30, ha="right", rotation_mode="anchor", fontsize=7)
    axis.set_yscale("log")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m needle profile_layers", description=__doc__)
    add = parser.add_argument
    add("--model", default="lenet5", help=", ".join(sorted(MODELS)))
    add("--devices", default="cpu_numpy,cpu", help="separated by commas")
    add("--batch-sizes", default="1,16,128,1024", help="separated by commas")
    add("--channels", type=int, help="of an image (default: 1 for lenet5 and mlp_resnet, else 3)")
    add(
        "--fused",
        action="store_true",
        help="time the model as it trains: ReLU fused into other layers",
    )
    add("--picture", type=Path, help="file for a picture of the tables (PNG, SVG or PDF)")
    add("--repeats", type=int, default=3, help="number of steps; the fastest is shown")
    options = parser.parse_args(arguments)
    options.channels = options.channels or (1 if options.model in ("lenet5", "mlp_resnet") else 3)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return its exit code, which is also 1 if results differ."""
    options = parse(arguments)
    work = Work(options.model, options.channels, options.fused)
    tables: dict[int, Measured] = {}
    equal = True
    try:
        batches = [int(text) for text in options.batch_sizes.split(",")]
        columns, reasons = columns_of(options.devices.split(","))
        if not columns:
            raise NeedleError("; ".join(reasons))
        print(
            f"{options.model}, milliseconds of inference / of training forward / backward; "
            "'loss' is softmax cross entropy"
        )
        for batch in batches:
            tables[batch] = {str(c): measure(work, c, batch, options.repeats) for c in columns}
            print(f"\nBatches of {batch}:\n\n{table(tables[batch])}", flush=True)
            equal = _say_differences(work, columns, batch) and equal
    except (NeedleError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for reason in reasons:
        print(f"\n{reason}")
    if options.picture:
        draw(options.model, tables, options.picture)
    return int(not equal)


def _say_differences(work: Work, columns: Sequence[Column], batch: int) -> bool:
    """Print the differences between devices; return True if all are small enough."""
    devices = list(dict.fromkeys(column.device for column in columns))
    apart = differences(work, devices, batch)
    for device, distance in apart.items():
        print(
            f"\nloss and gradients of {device} differ by {distance:.1e} from those of {devices[0]} "
            f"(at most {LARGEST_DIFFERENCE:g})"
        )
    return all(distance < LARGEST_DIFFERENCE for distance in apart.values())


def _times(row: dict[str, Any] | None) -> str:
    return "" if row is None else " / ".join(f"{row[f'{phase}_ms']:.2f}" for phase in PHASES)


if __name__ == "__main__":
    sys.exit(main())
