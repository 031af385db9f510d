"""Data-parallel training in several processes, and the communicators that it uses.

``DataParallel`` averages the gradients of all processes by a ``Communicator``, which wraps an
existing engine (MPI). Called by training programs that are started with ``mpiexec -n 4 python
program.py``.
"""

from .agreement import gather, require_same
from .batch_norm import synchronise_batch_norm
from .communicator import Communicator, communicator, names, register
from .data_parallel import DataParallel

__all__ = [
    "Communicator",
    "DataParallel",
    "communicator",
    "gather",
    "names",
    "register",
    "require_same",
    "synchronise_batch_norm",
]
