"""Every environment variable that needle reads: one row each, read nowhere else."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """One environment variable: its name, the value taken when it is unset, and what it does."""

    name: str
    default: str
    meaning: str

    def read(self) -> str:
        """The value now: the environment's, else the default."""
        return os.environ.get(self.name, self.default)


BACKEND = Variable("NEEDLE_BACKEND", "nd", "array namespace: nd (needle's own) or np (plain NumPy)")
CPU_ISA = Variable(
    "NEEDLE_CPU_ISA", "", "force a CPU kernel table: baseline, avx2, avx512 or neon (empty: best)"
)
NUM_THREADS = Variable(
    "NEEDLE_NUM_THREADS", "", "threads of the CPU backend (empty: the cores this process may use)"
)
CONV2D = Variable(
    "NEEDLE_CONV2D",
    "auto",
    "algorithm of 3x3 convolutions of step 1 on the CPU: auto, direct or winograd",
)
CUDA_SYNC = Variable(
    "NEEDLE_CUDA_SYNC",
    "",
    "1: wait for every CUDA kernel, so that its error is raised by the call that launched it",
)
DATA_DIR = Variable("NEEDLE_DATA_DIR", "data", "where datasets are looked for and downloaded to")
CACHE_DIR = Variable(
    "NEEDLE_CACHE_DIR", "~/.cache/needle", "where objects from stores and web servers are kept"
)
CACHE_BYTES = Variable("NEEDLE_CACHE_BYTES", "10e9", "how many bytes of them are kept (0: none)")
RUNTIME_DIR = Variable(
    "XDG_RUNTIME_DIR", "", "where servers of shared loaders listen (empty: the temporary folder)"
)

VARIABLES = (
    *(BACKEND, CPU_ISA, NUM_THREADS, CONV2D, CUDA_SYNC),
    *(DATA_DIR, CACHE_DIR, CACHE_BYTES, RUNTIME_DIR),
)

_ONE_THREAD = (
    NUM_THREADS.name,
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)


def one_thread_environment() -> dict[str, str]:
    """This process's environment with every library in it held to one thread, for a worker."""
    return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1")}


MAX_DIMS = 16
"""The most dimensions an array can have; ``kMaxDims`` in ``src/core/view.h`` says the same."""
