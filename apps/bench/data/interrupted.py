"""A program that iterates over a slow loader until it is interrupted: the faults study runs it.

``python -m apps.bench.data.interrupted needle|torch``; prints a line when batches have begun.
"""

from __future__ import annotations

import signal
import sys

from . import ours, peers


def main(library: str) -> None:
    """Iterates for a minute, four workers."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore it
    dataset = ours.SlowProcessIds(24_000)
    if library == "torch":
        loader = peers.torch_loader(dataset, 4, 4)
    else:
        import needle.data as data

        loader = data.DataLoader(dataset, 4, num_workers=4)
    for number, _ in enumerate(loader):
        if number == 3:
            print("ready", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
