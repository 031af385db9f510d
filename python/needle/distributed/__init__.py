"""Training in several processes: communicators, and data-parallel training with them.

``DataParallel`` averages the gradients of all processes; it is written with the methods of a
``Communicator``, which an existing engine (MPI) provides. Called by training programs, which are
started with ``mpiexec -n 4 python program.py``.
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
