"""One of several simultaneous training tasks without the training: it takes batches on request.

``python -m apps.bench.data.training_task server|needle|torch PHOTOS BATCH WORKERS ADDRESS NAME``,
started by study_multitask.py. "N" on standard input takes N batches, also across epochs, and prints
the seconds that it took.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

from needle.sharing import GlobalDataLoader

from . import ours, peers


def loader(system: str, photos: str, batch: int, workers: int, address: str, name: str) -> Any:
    """Return the loader that the task iterates over once per epoch."""
    if system == "server":
        options = {"transforms": ours.JPEG_TO_FLOATS, "drop_last": True, "seed": ours.SEED}
        return GlobalDataLoader(address, batch, task=name, **options)
    if system == "torch":
        return peers.torch_loader(peers.Photos(photos), batch, workers, drop_last=True)
    return ours.photo_loader(photos, batch, workers, drop_last=True)


def main(arguments: list[str]) -> int:
    """Serve one task until standard input ends."""
    system, photos, batch, workers, address, name = arguments
    source = loader(system, photos, int(batch), int(workers), address, name)
    batches = itertools.chain.from_iterable(itertools.repeat(source))
    parts = peers.torch_arrays if system == "torch" else ours.tensors
    print("ready", flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        for _ in range(int(line)):
            images, _ = parts(next(batches))
            images[:, 0, 0, 0].sum()  # reads a pixel of each image
        print(time.perf_counter() - started, flush=True)
    close = getattr(source, "close", None)
    if close is not None:
        close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
