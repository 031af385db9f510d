"""Every environment variable that needle reads, and the settings that a program may change.

An environment variable is one row here and is read nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .contexts import context
from .errors import unknown_name


@dataclass(frozen=True)
class Variable:
    """An environment variable: its name, its default value and its meaning."""

    name: str
    default: str
    meaning: str

    def read(self) -> str:
        """Return the variable's value in the environment, or the default if it is not set."""
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
    "algorithm of 3x3 convolutions of stride 1 on the CPU: auto, direct or winograd",
)
MATMUL_PRECISION = Variable(
    "NEEDLE_MATMUL_PRECISION",
    "float32",
    "precision of float32 products on a GPU: float32, or operands rounded to tf32, bf16 or fp16",
)
CUDA_SYNC = Variable(
    "NEEDLE_CUDA_SYNC",
    "",
    "1: wait for every CUDA kernel, so that the call that launched it raises its error",
)
CUDA_SM90 = Variable(
    "NEEDLE_CUDA_SM90",
    "off",
    "on: H100 and H200 use their warpgroup MMA and TMA, in kernels that have not run on a GPU yet",
)
CUDA_EXACT = Variable(
    "NEEDLE_CUDA_EXACT",
    "",
    "1: take GPU memory in exact sizes and never cache it, for compute-sanitizer's memcheck",
)
DATA_DIR = Variable("NEEDLE_DATA_DIR", "data", "folder of datasets, into which they are downloaded")
CACHE_DIR = Variable(
    "NEEDLE_CACHE_DIR", "~/.cache/needle", "cache of objects from object stores and web servers"
)
CACHE_BYTES = Variable(
    "NEEDLE_CACHE_BYTES", "10e9", "size limit of that cache in bytes (0: no cache)"
)
NETRC = Variable("NETRC", "~/.netrc", "file with the user names and passwords of web servers")
RUNTIME_DIR = Variable(
    "XDG_RUNTIME_DIR",
    "",
    "folder of the sockets of shared loaders' servers (empty: the temporary folder)",
)
COMMUNICATOR = Variable(
    "NEEDLE_COMMUNICATOR",
    "",
    "engine of distributed training: single or mpi (empty: mpi under mpiexec, else single)",
)
COLLECTIVE_TIMEOUT = Variable(
    "NEEDLE_COLLECTIVE_TIMEOUT", "8", "seconds after which a rank that does not answer is an error"
)
REFCOUNTS = Variable(
    "NEEDLE_REFCOUNTS",
    "on",
    "off: free or reuse no memory early because CPython counts no other reference to it",
)

VARIABLES = tuple(each for each in globals().values() if isinstance(each, Variable))

RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
"""Set by mpiexec and srun: MPICH and Intel MPI, PMIx (Slurm), Open MPI."""


def started_by_mpi() -> bool:
    """Return True if mpiexec or srun started this process as one of several."""
    return any(name in os.environ for name in RANKS) and os.environ.get("PMI_SIZE") != "1"


def given() -> dict[str, str]:
    """Return the variables that are set in the environment, with their values."""
    return {row.name: os.environ[row.name] for row in VARIABLES if row.name in os.environ}


class Setting:
    """A setting that a program may change at run time, for the whole process.

    >>> matmul_precision.get()
    'float32'
    >>> with matmul_precision.using("bf16"):
    ...     matmul_precision.get()
    'bf16'
    """

    def __init__(self, name: str, variable: Variable, choices: tuple[str, ...]) -> None:
        self.name, self.variable, self.choices = name, variable, choices
        self._values: dict[object, str | None] = {None: None}
        """Values by precedence: that of ``set`` (None: the variable's), then the open contexts'."""
        self._followers: list[Callable[[str], None]] = []

    def get(self) -> str:
        """Return the value set, else the variable's; UnknownNameError if it is invalid."""
        latest = list(self._values.values())[-1]
        return self._checked(self.variable.read() if latest is None else latest)

    def set(self, value: str) -> None:
        """Set the value; UnknownNameError, which lists the choices, for any other value."""
        self._change(list(self._values)[-1], self._checked(value))

    @context
    def using(self, value: str) -> Iterator[None]:
        """Set the value inside ``with setting.using(value):`` and restore it at exit.

        Of contexts that several threads open, the latest one that is still open counts for all.
        """
        own = object()
        self._change(own, self._checked(value))
        try:
            yield
        finally:
            self._values.pop(own)
            self._tell()

    def follow(self, tell: Callable[[str], None]) -> None:
        """Call ``tell`` with the current value now, and with the new value whenever one is set."""
        tell(self.get())
        self._followers.append(tell)

    def _change(self, owner: object, value: str) -> None:
        self._values[owner] = value
        self._tell()

    def _tell(self) -> None:
        for tell in self._followers:
            tell(self.get())

    def _checked(self, value: str) -> str:
        if value not in self.choices:
            raise unknown_name(self.name, value, self.choices)
        return value


matmul_precision = Setting("precision", MATMUL_PRECISION, ("float32", "tf32", "bf16", "fp16"))
"""The precision of float32 products of matmul, conv2d and its gradients on a GPU.

``float32`` is full float32. The other values round both operands (tf32 and fp16 keep 11 bits, bf16
8; the largest fp16 is 65504) and add the products in float32; arrays stay float32. A GPU before
sm_80 and every other backend always compute in full float32 (``Backend.matmul_precisions``). A
recorded graph keeps the precision of its recording.
"""

conv2d_algorithm = Setting("NEEDLE_CONV2D", CONV2D, ("auto", "direct", "winograd"))
"""The CPU's algorithm for float32 3x3 convolutions with stride 1, and for their gradients.

``winograd`` needs a quarter of the multiplications, but its rounding errors are about three times
those of ``direct``; ``auto`` takes it where it is much faster.
"""

cuda_sm90 = Setting("NEEDLE_CUDA_SM90", CUDA_SM90, ("off", "on"))
"""The kernels of GPUs of sm_90: "on" for those of src/cuda/sm90, "off" for those of sm_80."""

refcounts = Setting("refcounts", REFCOUNTS, ("on", "off"))
"""Switch of the reference counts that decide behaviour; ``autograd.refs`` reads it at import."""

_ONE_THREAD = (
    *(NUM_THREADS.name, "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OPENCV_FOR_THREADS_NUM"),
)


def reading_environment() -> list[str]:
    """Return the variables, as "name=value", that change how data sets are read."""
    chosen = ("NEEDLE_", "AWS_", "LD_", "OMP_", "OPENBLAS_", "MKL_", "HTTP_PROXY", "HTTPS_PROXY")
    return sorted(
        f"{name}={value}" for name, value in os.environ.items() if name.upper().startswith(chosen)
    )


def one_thread_environment() -> dict[str, str]:
    """Return the environment for a worker process: this one's, with one thread for each library."""
    return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1")}


MAX_DIMS = 16
"""The maximum number of axes, equal to ``kMaxDims`` in ``src/core/view.h``."""
