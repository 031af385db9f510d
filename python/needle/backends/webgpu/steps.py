"""SGD and Adam, updating as many parameters per dispatch as the limit on buffers allows.

A GPU allows 8 to 32 or more buffers per kernel. With 32, one dispatch updates 10 parameters by SGD
with momentum, or 7 by Adam. ``optional`` adds the other kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...shapes import product
from ..base import View
from . import sources
from .norms import NormKernels
from .queue import ROW, SLOT
from .required import THREADS, grid, words

ROWS = 4
"""Rows of four words for the settings, which precede those of the parameters."""
MOST = (SLOT // 16 - ROWS) // 2
"""Maximum number of parameters in a dispatch, limited by the space for their offsets."""
Group = Sequence[View]


class StepKernels(NormKernels):
    """Base class with the optimisers' kernels of one adapter."""

    def sgd_step(
        self,
        params: Sequence[View],
        grads: Sequence[View],
        velocities: Sequence[View],
        outs: Sequence[View],
        lr: float,
        momentum: float,
        dampening: float,
        weight_decay: float,
        nesterov: bool,
    ) -> None:
        settings = words(lr, momentum, 1 - dampening, weight_decay)
        settings += [int(bool(velocities)), int(nesterov), 0, 0, 0, 0, 0, 0]
        moments = [velocities] if velocities else []
        self._step_all("sgd_step", settings, params, grads, moments, outs)

    def adam_step(
        self,
        params: Sequence[View],
        grads: Sequence[View],
        firsts: Sequence[View],
        seconds: Sequence[View],
        outs: Sequence[View],
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        decoupled: bool,
        step: int,
    ) -> None:
        settings = words(lr / (1 - beta1**step), beta1, beta2, eps)
        settings += words(weight_decay, 1 - lr * weight_decay, 1 / (1 - beta2**step), 1 - beta1)
        settings += [*words(1 - beta2), int(decoupled), 0, 0]
        self._step_all("adam_step", settings, params, grads, [firsts, seconds], outs)

    def _step_all(
        self,
        rule: str,
        settings: Sequence[int],
        params: Group,
        grads: Group,
        moments: Sequence[Group],
        outs: Group,
    ) -> None:
        """Apply the rule to all parameters, with as many per dispatch as its buffers allow."""
        rows = list(zip(params, grads, *moments, outs, strict=True))
        for in_place in (True, False):
            same = [row for row in rows if _in_place(row) == in_place and 0 not in row[0].shape]
            each = 2 + len(moments) + (not in_place)
            most = min((self.queue.most_buffers - 1) // each, MOST)
            for first in range(0, len(same), most):
                some = same[first : first + most]
                source = sources.step(rule, len(moments), in_place, len(some))
                self._step_some(source, settings, some, each)

    def _step_some(
        self, source: str, settings: Sequence[int], rows: Sequence[Group], each: int
    ) -> None:
        """Dispatch one step; each row has a parameter, its gradient, its moments and its result."""
        blocks, places = 0, []
        for param, grad, *moments, out in rows:
            count = product(param.shape)
            offsets = [view.offset for view in moments] + [0, 0]
            places += [blocks, count, param.offset, grad.offset, *offsets[:2], out.offset, 0]
            blocks += -(-count // THREADS)
        buffers = [view.handle for row in rows for view in row[:each]]
        parameters = [len(rows), ROW, 0, 0, *settings, *places]
        self.queue.dispatch(source, parameters, buffers, grid(blocks))


def _in_place(row: Group) -> bool:
    """Return True if the last view of a row (the result) is the first (the parameter)."""
    return row[0].handle is row[-1].handle and row[0].offset == row[-1].offset
