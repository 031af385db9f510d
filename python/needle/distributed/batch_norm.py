"""Synchronised batch norm, with statistics over the batches of all processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_namespace import from_numpy, to_numpy
from ..autograd import Tensor, TensorOp
from ..host_steps import host_step
from .communicator import Communicator, communicator


def synchronise_batch_norm(model: Any, group: Communicator | None = None) -> None:
    """Make each batch norm of a model compute its statistics over the batches of all ranks.

    A step then computes, up to rounding, what one process computes with the whole batch. This costs
    two messages per layer in each direction, each of which waits for the slowest rank. Every rank
    must run the same layers in training, with at least one sample. group: by default
    ``communicator()``. Evaluation mode is unchanged.
    """
    over_all = _SumOverRanks(group)
    for _, module in model.named_modules():
        if hasattr(module, "over_processes"):  # the module is a batch norm
            module.over_processes = over_all


def is_synchronised(model: Any) -> bool:
    """Return True if ``synchronise_batch_norm`` has changed a layer of the model."""
    named = model.named_modules() if hasattr(model, "named_modules") else ()
    return any(getattr(module, "over_processes", None) is not None for _, module in named)


class _SumOverRanks:
    """A function that sums over ranks; a copy or pickle uses its own process's group."""

    def __init__(self, group: Communicator | None) -> None:
        self._group = group

    def __call__(self, values: Tensor, weight: float) -> Tensor:
        return AllReduce(self._group or communicator(), weight)(values)

    def __getstate__(self) -> dict[str, Any]:
        return {"_group": None}


class AllReduce(TensorOp):
    """The op that sums an array over the ranks of a group, with the result on all ranks.

    Its gradient is the weighted sum of the ranks' gradients. Each rank's gradient is that of its
    own loss, and the step's loss is the mean of the ranks' losses weighted by ``weight``. The
    gradients therefore have the same weights, divided by this rank's.
    """

    def __init__(self, group: Communicator, weight: float) -> None:
        self.group, self.weight = group, max(weight, 1.0)

    def compute(self, a: Any) -> Any:
        """Return the sum."""
        return _summed(a, self.group)

    def gradient(self, out_grad: Tensor, node: Any) -> Tensor:
        """Return the weighted sum of all gradients."""
        return AllReduce(self.group, self.weight)(out_grad * self.weight) / self.weight


@host_step
def _summed(a: Any, group: Communicator) -> Any:
    values = np.array(to_numpy(a), order="C")
    group.all_reduce(values)
    return from_numpy(values, getattr(a, "device", None), a.dtype)
