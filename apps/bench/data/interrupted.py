"""A program that iterates over a slow loader until it is interrupted. Called by study_faults.py.

``python -m apps.bench.data.interrupted needle|torch`` prints a line at the first batch.
"""

from __future__ import annotations

import signal
import sys

from . import ours, peers


def main(library: str) -> None:
    """Iterate for a minute with four workers."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore SIGINT
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
