"""Batch norm over the batches of all processes, as if one process had the whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_namespace import from_numpy, to_numpy
from ..autograd import Tensor, TensorOp
from ..host_steps import host_step
from .communicator import Communicator, communicator


def synchronise_batch_norm(model: Any, group: Communicator | None = None) -> None:
    """Let each batch norm of a model take its statistics over the batches of all ranks.

    A step then computes what one process computes with the whole batch, up to rounding, for two
    messages in each direction of a layer, which wait for the slowest rank. Every rank must run the
    same layers in training, with at least one sample. group: by default ``communicator()``.
    Evaluation does not change.
    """
    over_all = _SumOverRanks(group)
    for _, module in model.named_modules():
        if hasattr(module, "over_processes"):  # a batch norm
            module.over_processes = over_all


def is_synchronised(model: Any) -> bool:
    """Return True if ``synchronise_batch_norm`` has changed a layer of the model."""
    named = model.named_modules() if hasattr(model, "named_modules") else ()
    return any(getattr(module, "over_processes", None) is not None for _, module in named)


class _SumOverRanks:
    """The sum over the ranks of a group; a copy or pickle uses the group of its process."""

    def __init__(self, group: Communicator | None) -> None:
        self._group = group

    def __call__(self, values: Tensor, weight: float) -> Tensor:
        return AllReduce(self._group or communicator(), weight)(values)

    def __getstate__(self) -> dict[str, Any]:
        return {"_group": None}


class AllReduce(TensorOp):
    """The sum of an array over the ranks of a group; all ranks get it.

    The gradient is the sum of the ranks' gradients. Each belongs to the loss of its rank, and the
    loss of the step is the mean of these, weighted by ``weight``: so are the gradients, in units of
    this rank's weight.
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
