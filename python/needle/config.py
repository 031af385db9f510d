"""Every environment variable that needle reads: one row each, read nowhere else; and those that a
running program may change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import unknown_name


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
MATMUL_PRECISION = Variable(
    "NEEDLE_MATMUL_PRECISION",
    "float32",
    "float32 products on a GPU: in full (float32), or with operands rounded to tf32, bf16 or fp16",
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
    *(BACKEND, CPU_ISA, NUM_THREADS, CONV2D, MATMUL_PRECISION, CUDA_SYNC),
    *(DATA_DIR, CACHE_DIR, CACHE_BYTES, RUNTIME_DIR),
)


class Setting:
    """A variable that a running program may change, for the whole process.

    >>> matmul_precision.get()
    'float32'
    >>> with matmul_precision.using("bf16"):
    ...     matmul_precision.get()
    'bf16'
    """

    def __init__(self, name: str, variable: Variable, choices: tuple[str, ...]) -> None:
        self.name, self.variable, self.choices = name, variable, choices
        self._value: str | None = None
        self._followers: list[Callable[[str], None]] = []

    def get(self) -> str:
        """The value that was set, else the variable's; UnknownNameError if that is none."""
        return self._checked(self.variable.read() if self._value is None else self._value)

    def set(self, value: str) -> None:
        """From now on; UnknownNameError, which lists the choices, if ``value`` is none of them."""
        self._value = self._checked(value)
        for tell in self._followers:
            tell(value)

    @contextmanager
    def using(self, value: str) -> Iterator[None]:
        """``with setting.using(value):`` it is so within."""
        before = self.get()
        self.set(value)
        try:
            yield
        finally:
            self.set(before)

    def follow(self, tell: Callable[[str], None]) -> None:
        """``tell`` is called with the value, now and when it is set."""
        tell(self.get())
        self._followers.append(tell)

    def _checked(self, value: str) -> str:
        if value not in self.choices:
            raise unknown_name(self.name, value, self.choices)
        return value


matmul_precision = Setting("precision", MATMUL_PRECISION, ("float32", "tf32", "bf16", "fp16"))
"""In what matmul, conv2d and its gradients compute products of float32 on a GPU.

``float32`` is full float32. The others take both operands rounded (tf32 and fp16 keep 11 bits, bf16
8; fp16 ends at 65504) and add their products in float32; arrays stay float32. A GPU before sm_80
and every other backend compute in full float32 always: ``Backend.matmul_precisions``. What
a graph has recorded keeps the precision of its recording.
"""

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
