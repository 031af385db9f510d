# Trail 21 of 30: SGD: the docstring is the formula, the update one call of a kernel.
# Next: apps/models/resnet.py
"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Iterable

from .. import accelerated
from ..autograd import Tensor
from .optimizer import Arrays, Group, Optimizer, Tensors, unshared


class SGD(Optimizer):
    """Gradient descent: g += weight_decay*p; u = momentum*u + (1-dampening)*g; p -= lr*u.

    dampening: None for the course's update, in which it equals ``momentum`` (0 with ``nesterov``)
    and u is zero at first; a number for PyTorch's update, in which the first u is g. 0 is PyTorch's
    default. nesterov: p -= lr*(g + momentum*u) (Sutskever et al. 2013, in PyTorch's form).
    maximize: g is the negative gradient.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float = 0.01,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        *,
        dampening: float | None = None,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> None:
        if nesterov and momentum <= 0:
            raise ValueError(f"SGD: nesterov needs momentum > 0, got {momentum}; set momentum=0.9")
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            dampening=dampening,
            nesterov=nesterov,
            maximize=maximize,
        )

    def _update(self, params: Tensors, values: Arrays, grads: Arrays, group: Group) -> Arrays:
        momentum, dampening = float(group["momentum"]), group["dampening"]
        decay = float(group["weight_decay"])
        fresh = [i for i, p in enumerate(params) if "velocity" not in self.state.get(p, {})]
        velocities = self._state_arrays(params, "velocity") if momentum else []
        if momentum and dampening:
            for i in fresh:  # makes momentum*v + (1-dampening)*g equal to g
                velocities[i][...] = (grads[i] + values[i] * decay) * (dampening / momentum)
        if dampening is None:
            dampening = 0.0 if group["nesterov"] else momentum
        stepped: Arrays = accelerated.sgd_step(
            values,
            grads,
            velocities,
            float(group["lr"]),
            momentum,
            float(dampening) if momentum else 0.0,
            decay,
            bool(group["nesterov"]),
            reuse=unshared(params, values),
        )
        return stepped
