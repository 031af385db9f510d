"""Compare the data module with other loaders: python -m apps.bench.data [STUDY ...]

Its options are those of harness/program.py. A contestant that skips samples fails the run.
"""

from __future__ import annotations

import sys
from functools import partial

from apps.bench.harness import program
from apps.bench.harness.report import Benchmark

HOW = (
    "Every case runs in its own process. The cases of a group take turns in shuffled order; "
    "numbers are medians, with the range over the rounds in brackets. Rates are samples per second "
    "over whole epochs with the files in the page cache. Without `--photos` the photographs are "
    "generated, without `--cifar` the small pictures are random pixels."
)
PACKAGES = ("torch", "opencv-python-headless", "simplejpeg", "numpy")
BENCHMARK = Benchmark("data", "The data module, measured", HOW, PACKAGES, counts=False)
main = partial(program.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
