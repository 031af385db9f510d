"""One of several simultaneous training tasks without the training: it takes batches on request.

``python -m apps.bench.data.training_task SPEC``, started by study_multitask.py. "N" on standard
input takes N batches, also across epochs, and prints how long that took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import needle.data as data
from needle.sharing import GlobalDataLoader

from . import ours, peers, pictures
from .settings import Settings


@dataclass(frozen=True)
class Spec:
    """The settings of a task.

    system: "server" (at ``address``), "needle" or "torch". indices: [start, stop) pairs. pause:
    simulated training seconds per batch. photos, cifar: folders; photos is empty for CIFAR.
    """

    task: str
    system: str
    batch: int
    indices: list[list[int]]
    photos: str = ""
    cifar: str | None = None
    quick: bool = False
    address: str = ""
    workers: int = 1
    pause: float = 0.0

    def to_json(self) -> str:
        """Return the settings as JSON for the command line."""
        return json.dumps(asdict(self))


def small(cifar: str | None = None, quick: bool = False) -> data.ImageArrays:
    """Return CIFAR-10 or random pixels; a server opens this data set by the function's name."""
    images, labels = pictures.small_pictures(Settings("", None, cifar, quick))
    return data.ImageArrays(images, labels, dtype="uint8", layout="HWC")


def loader(spec: Spec) -> Any:
    """Return the loader that the task iterates over once per epoch."""
    indices = np.concatenate([np.arange(*pair) for pair in spec.indices])
    transforms = ours.JPEG_TO_FLOATS if spec.photos else ours.SMALL_TO_FLOATS
    if spec.system == "server":
        return GlobalDataLoader(
            spec.address,
            spec.batch,
            task=spec.task,
            indices=indices,
            transforms=transforms,
            drop_last=True,
            seed=ours.SEED,
        )
    if spec.system == "torch":
        return torch_loader(spec, indices)
    whole = (
        data.ImageFolder(spec.photos, dtype="uint8", layout="HWC")
        if spec.photos
        else small(spec.cifar, spec.quick)
    )
    return data.DataLoader(
        data.Subset(whole, indices),
        spec.batch,
        shuffle=True,
        drop_last=True,
        seed=ours.SEED,
        num_workers=spec.workers,
        transforms=transforms,
    )


def torch_loader(spec: Spec, indices: Any) -> Any:
    """Return PyTorch's loader with a typical user's data set."""
    from torch.utils.data import Subset

    if spec.photos:
        whole: Any = peers.Photos(spec.photos, peers.photo_to_floats)
    else:
        images, labels = pictures.small_pictures(Settings("", None, spec.cifar, spec.quick))
        whole = peers.SmallPictures(images, labels)
    return peers.torch_loader(
        Subset(whole, indices.tolist()), spec.batch, spec.workers, drop_last=True
    )


def endless(source: Any) -> Iterator[Any]:
    """Yield batches of one epoch after the other."""
    while True:
        yield from source


def take(batches: Iterator[Any], count: int, spec: Spec) -> dict[str, float]:
    """Take batches and read a pixel of each image; return total and waiting seconds."""
    parts = peers.torch_arrays if spec.system == "torch" else ours.tensors
    started, waited, samples = time.perf_counter(), 0.0, 0
    for _ in range(count):
        asked = time.perf_counter()
        images, labels = parts(next(batches))
        np.asarray(images[:, 0, 0, 0]).sum()
        waited += time.perf_counter() - asked
        samples += len(labels)
        time.sleep(spec.pause)
    return {"seconds": time.perf_counter() - started, "waited": waited, "samples": samples}


def main(arguments: list[str]) -> int:
    """Serve one task until standard input ends."""
    spec = Spec(**json.loads(arguments[0]))
    source = loader(spec)
    batches = endless(source)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(take(batches, int(line), spec)), flush=True)
    close = getattr(source, "close", None)
    if close is not None:
        close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
