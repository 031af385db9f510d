"""Measure needle beside PyTorch: python -m apps.bench.against [STUDY ...]

Its options are those of harness/program.py.
"""

from __future__ import annotations

import sys
from functools import partial

from apps.bench.harness import program
from apps.bench.harness.report import Benchmark

HOW = (
    "Every contestant runs in its own process, all libraries with the same number of threads, and "
    "takes turns with the others in shuffled order; times are medians over the rounds, with the "
    "range in brackets. A ratio (×) of speeds is the time of PyTorch's fastest variant over the "
    "time of needle's fastest variant, paired round by round. PyTorch's variants are eager, eager "
    "with tensors in channels-last order, torch.compile (training steps and memory-bound "
    "operations; for a product or a convolution alone it calls the same kernel) and, on a GPU, a "
    "CUDA graph of the step; its optimisers are the fused ones. *needle, captured* is "
    "`needle.capture`. The models in plain torch.nn (`torch_models.py`) have the same layers and "
    "number of parameters; a test loads the state of one into the other. A training step is "
    "forward, backward and SGD with momentum on random images of 32 × 32 pixels. FLOP rates of "
    "training steps count three times the multiplications and additions of the forward pass; those "
    "of convolutions count the operations of the direct method, and Winograd's needs fewer, so a "
    "share of the peak above 100 % is possible. Memory is the peak resident size of a process that "
    "runs three steps."
)
BENCHMARK = Benchmark("against", "needle beside PyTorch", HOW, ("torch", "numpy"), counts=True)
main = partial(program.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
