"""Compare needle's speed with PyTorch's: python -m apps.bench.against [STUDY ...]

Its options are those of harness/program.py.
"""

from __future__ import annotations

import sys
from functools import partial

from apps.bench.harness import program
from apps.bench.harness.report import Benchmark

HOW = (
    "Every contestant runs in its own process with the same number of threads, and takes turns "
    "with the others in shuffled order. Times are medians over the rounds, with the range in "
    "brackets. A ratio (×) is the time of PyTorch's fastest variant over that of needle's, paired "
    "round by round. PyTorch's variants are eager, eager with channels-last tensors, torch.compile "
    "(training steps and memory-bound operations) and, on a GPU, a CUDA graph of the step; its "
    "optimisers are the fused ones. *needle, captured* is `needle.capture`. The models in torch.nn "
    "(`torch_models.py`) have the same layers and parameters. A training step is forward, backward "
    "and SGD with momentum on random images of 32 × 32 pixels; its FLOPs are three times those of "
    "the forward pass. Convolutions count the FLOPs of the direct method; Winograd's needs fewer, "
    "so a share of the peak above 100 % is possible. Memory is the peak resident size of a process "
    "that runs three steps."
)
BENCHMARK = Benchmark("against", "needle beside PyTorch", HOW, ("torch", "numpy"), counts=True)
main = partial(program.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
