"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from .. import accelerated
from ..autograd import Tensor
from .optimizer import Array, Group, GroupOption, Optimizer, unshared
from .options import FLAG, NOT_NEGATIVE, NUMBER_OR_NONE


class SGD(Optimizer):
    """Gradient descent: g += weight_decay*p; u = momentum*u + (1-dampening)*g; p -= lr*u.

    u is zero at first. dampening: None means ``momentum`` (the course's update) or 0 with
    ``nesterov``; 0 gives PyTorch's numbers. nesterov: p -= lr*(g + momentum*u) (Sutskever et al.
    2013, in PyTorch's form).
    """

    lr = GroupOption()
    momentum = GroupOption()
    weight_decay = GroupOption()
    rules: ClassVar = {
        **dict.fromkeys(("lr", "momentum", "weight_decay"), NOT_NEGATIVE),
        "dampening": NUMBER_OR_NONE,
        "nesterov": FLAG,
    }

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float = 0.01,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        *,
        dampening: float | None = None,
        nesterov: bool = False,
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
        )

    def _update(
        self,
        params: Sequence[Tensor],
        values: Sequence[Array],
        grads: Sequence[Array],
        group: Group,
    ) -> Sequence[Array]:
        momentum, nesterov = float(group["momentum"]), bool(group["nesterov"])
        dampening = group["dampening"]
        if dampening is None:
            dampening = 0.0 if nesterov else momentum
        velocities = self._state_arrays(params, "velocity") if momentum else []
        stepped: Sequence[Any] = accelerated.sgd_step(
            values,
            grads,
            velocities,
            float(group["lr"]),
            momentum,
            float(dampening) if momentum else 0.0,
            float(group["weight_decay"]),
            nesterov,
            unshared(params, values),
        )
        return stepped
