"""Corrupts files of every format in turn: ``python -m tests.fuzz SECONDS [SEED]``, make fuzz."""

import itertools
import sys
import time

from tests.fuzz.fuzz_files import FORMATS, garble

TURN = 1000
"""Mutations of a format before the next one's turn."""


def main(seconds: float, seed: int) -> int:
    end = time.monotonic() + seconds
    for first in itertools.count(seed, TURN):
        for name in FORMATS:
            if time.monotonic() > end:
                return 0
            try:
                print(name, garble(name, first, TURN), flush=True)
            except AssertionError as finding:
                print(finding, file=sys.stderr)
                return 1
    raise AssertionError("unreachable")


if __name__ == "__main__":
    start = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    print(f"fuzzing {', '.join(FORMATS)} for {sys.argv[1]} s from seed {start}", flush=True)
    sys.exit(main(float(sys.argv[1]), start))
