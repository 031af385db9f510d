"""Runs every fuzz target in turn: ``python -m tests.fuzz SECONDS [SEED]``, or ``make fuzz``.

A target is a file fuzz_NAME.py beside this one with ``run(seconds, seed)``, which raises on a
finding. Each turn runs in its own process, so that a crash is a finding too.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

TURN = 120.0
"""Duration of one turn in seconds."""
TARGETS = sorted(path.stem for path in Path(__file__).parent.glob("fuzz_*.py"))
CODE = """
import sys
from tests.fuzz.{0} import run
print("{0}:", run(float(sys.argv[1]), int(sys.argv[2])), flush=True)
"""


def main(seconds: float, seed: int) -> int:
    end, turn = time.monotonic() + seconds, min(TURN, seconds / len(TARGETS))
    while time.monotonic() < end:
        for target in TARGETS:
            command = [sys.executable, "-W", "ignore", "-c", CODE.format(target)]
            done = subprocess.run(
                [*command, str(turn), str(seed)], stderr=subprocess.PIPE, text=True
            )
            if done.returncode:
                print(done.stderr[-4000:], file=sys.stderr)
                print(f"{target}, seed {seed}: finding, exit {done.returncode}", file=sys.stderr)
                return 1
        seed += 1_000_000
    return 0


if __name__ == "__main__":
    start = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    print(f"fuzzing {', '.join(TARGETS)} for {sys.argv[1]} s from seed {start}", flush=True)
    sys.exit(main(float(sys.argv[1]), start))
