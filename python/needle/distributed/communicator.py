"""The interface of communicators, by which processes of a group exchange arrays.

``Communicator`` itself is a group of one process, registered as ``single``. Other engines are
registered by name, like backends. Called by ``data_parallel``, ``agreement`` and programs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt

from .. import config
from ..errors import DistributedError, UnknownNameError, unknown_name

Array = npt.NDArray[Any]
Wait = Callable[[], None]


class Communicator:
    """A group of ``size`` processes, in which this one has the number ``rank``.

    This class implements a group of one process; subclasses override its methods. Arrays are
    C-contiguous NumPy arrays with one shape and dtype on all ranks; they are modified in place. All
    ranks call the same methods in the same order.
    """

    rank: int = 0
    size: int = 1

    def begin_all_reduce(self, array: Array, ordered: bool = False) -> Wait:
        """Start replacing ``array`` by its sum over all ranks; return a function that waits for it.

        ordered: add in the order of ``tree_sum``, so that the result's bits depend only on the
        addends. Until the wait has returned, the array must not be used.
        """
        return lambda: None

    def all_reduce(self, array: Array, ordered: bool = False) -> None:
        """Replace ``array`` by its sum over all ranks. See ``begin_all_reduce``."""
        self.begin_all_reduce(array, ordered)()

    def broadcast(self, array: Array, root: int = 0) -> None:
        """Overwrite ``array`` with the one of rank ``root``."""

    def barrier(self, seconds: float | None = None) -> None:
        """Wait until all ranks have called this method.

        seconds: the time limit, which should be longer if a rank has long work to do; None: the
        limit of the engine's other methods.
        """

    def await_turn(self) -> None:
        """Wait before printing an error, so that a lower rank with the same error ends this one."""

    def abort(self, code: int = 1) -> None:
        """End all processes of the group with this exit code; a no-op in a group of one."""


def tree_sum(parts: Sequence[Array]) -> Array:
    """Return the sum of arrays, added in place in a fixed tree.

    Of n arrays, array i + ceil(n / 2) is added to array i, until one is left. With n = s * 2**k,
    the arrays i, i + s, i + 2s, ... are therefore added first, whichever process holds them.
    """
    ### BEGIN YOUR SOLUTION [tree-sum]
    left = list(parts)
    while len(left) > 1:
        half = -(-len(left) // 2)
        for i in range(len(left) - half):
            left[i] += left[half + i]
        left = left[:half]
    return left[0]
    ### END YOUR SOLUTION


# Given as "module:class", so that an engine is imported only when it is needed.
BUILT_IN = {
    "single": "needle.distributed.communicator:Communicator",
    "mpi": "needle.distributed.mpi:MPICommunicator",
}

_registered: dict[str, Callable[[], Communicator]] = {}
_made: dict[str, Communicator] = {}


def register(name: str, factory: Callable[[], Communicator]) -> None:
    """Register an engine; ``factory`` is called once, at the first request for ``name``."""
    _registered[name] = factory
    _made.pop(name, None)


def names() -> list[str]:
    """Return the names of all engines, built-in ones first."""
    return list(dict.fromkeys([*BUILT_IN, *_registered]))


def communicator(name: str | None = None) -> Communicator:
    """Return the communicator called ``name``, always the same object.

    None means NEEDLE_COMMUNICATOR or, if that is empty, ``mpi`` in a program started by mpiexec or
    srun, otherwise ``single``. Raises UnknownNameError if there is no such engine, and
    DistributedError, which says what to install, if the engine cannot be used.
    """
    chosen = name or config.COMMUNICATOR.read() or ("mpi" if config.started_by_mpi() else "single")
    if chosen not in _made:
        if chosen not in names():
            raise _unknown(chosen)
        _made[chosen] = _make(chosen)
    return _made[chosen]


def _unknown(name: str) -> UnknownNameError:
    error = unknown_name("communicator", name, names())
    if name in ("nccl", "gloo"):
        return UnknownNameError(f"{error}. Use mpi; it sends gradients of GPUs from host memory")
    return error


def _make(name: str) -> Communicator:
    if name in _registered:
        return _registered[name]()
    module, _, attribute = BUILT_IN[name].partition(":")
    try:
        made: Communicator = getattr(importlib.import_module(module), attribute)()
    except (ImportError, RuntimeError) as error:  # mpi4py raises RuntimeError without MPI
        raise DistributedError(
            f"{name}: the communicator needs mpi4py and an MPI library, got {error}; pip install "
            "'needle[mpi]', or set NEEDLE_COMMUNICATOR=single to train in one process"
        ) from error
    return made
