"""The last steps of a batch, in the calling thread: from the arrays of an engine to Tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..batching.collate import to_tensors
from ..batching.pipeline import Pipeline
from ..samples.random_source import BATCH_STREAM, keyed
from ..samples.ticket import Ticket
from ..samples.timing import Clock


@dataclass(frozen=True)
class Delivery:
    """Finishes a batch: the transforms left to this process, batch transforms, mask, Tensors.

    owned: nothing else refers to the arrays of a batch, so Tensors may take over their memory.
    """

    pipeline: Pipeline
    batch_transforms: Sequence[Callable[..., Any]]
    device: Any
    owned: bool

    def __call__(self, batch: Any, ticket: Ticket, clock: Clock) -> Any:
        """Return the finished batch."""
        stays = not self.batch_transforms
        batch = self.pipeline.finish(batch, ticket, clock, stays=stays)
        if self.batch_transforms:
            with clock.measure("augment"):
                batch = transformed(batch, self.batch_transforms, ticket)
        if ticket.valid is not None:
            batch = _with_mask(batch, ticket.valid)
        with clock.measure("deliver"):
            return to_tensors(batch, self.device, self.owned)


def transformed(batch: Any, transforms: Sequence[Callable[..., Any]], ticket: Ticket) -> Any:
    """Return the batch after the transforms of whole batches, keyed by its first sample."""
    if ticket.seed is None:
        return _in_order(batch, transforms)
    with keyed(ticket.seed, ticket.epoch, ticket.first) as draws:
        draws.seek(BATCH_STREAM // 2)  # the first sample has drawn from earlier streams
        return _in_order(batch, transforms)


def _in_order(batch: Any, transforms: Sequence[Callable[..., Any]]) -> Any:
    for transform in transforms:
        batch = transform(batch)
    return batch


def _with_mask(batch: Any, valid: npt.NDArray[np.bool_]) -> Any:
    """Return the batch with bool ``(n,)`` as its last field, or as field "valid" of a dict."""
    if isinstance(batch, Mapping):
        return {**batch, "valid": valid}
    if type(batch) in (tuple, list):
        return type(batch)([*batch, valid])
    return (batch, valid)
