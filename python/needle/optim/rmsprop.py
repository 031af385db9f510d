"""RMSprop and Adagrad, which divide each step by the root of accumulated squared gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..array_namespace import array_api as xp
from ..autograd import Tensor
from .optimizer import Arrays, Group, Optimizer, Tensors, numbers


class RMSprop(Optimizer):
    """RMSprop (Tieleman & Hinton 2012): p -= lr*g / (sqrt(v) + eps), v a moving average of g**2.

    g += weight_decay*p; v = alpha*v + (1-alpha)*g**2. centered: the square of a moving average of g
    is subtracted from v, which leaves the variance (Graves 2013). momentum: u = momentum*u + g /
    (sqrt(v) + eps); p -= lr*u. maximize: g is the negative gradient.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay}
        flags: dict[str, Any] = {"centered": centered, "maximize": maximize}
        super().__init__(params, **options, momentum=momentum, **flags)

    def _update(self, params: Tensors, values: Arrays, grads: Arrays, group: Group) -> Arrays:
        lr, alpha, eps = numbers(group, "lr", "alpha", "eps")
        decay, momentum = numbers(group, "weight_decay", "momentum")
        centered = group["centered"]
        none = [None] * len(params)
        squares = self._state_arrays(params, "square")
        means = self._state_arrays(params, "mean") if centered else none
        velocities = self._state_arrays(params, "velocity") if momentum else none
        new = []
        for p, g, square, mean, velocity in zip(
            values, grads, squares, means, velocities, strict=True
        ):
            g = g + p * decay if decay else g
            square[...] = square * alpha + g * g * (1.0 - alpha)
            variance = square
            if mean is not None:
                mean[...] = mean * alpha + g * (1.0 - alpha)
                variance = xp.maximum(square - mean * mean, 0)  # rounding can make it negative
            step = g / (xp.sqrt(variance) + eps)
            if velocity is not None:
                velocity[...] = velocity * momentum + step
                step = velocity
            new.append(p - step * lr)
        return new


class Adagrad(Optimizer):
    """Adagrad (Duchi et al. 2011): p -= lr*g / (sqrt(v) + eps), v the sum of g**2 over all steps.

    g += weight_decay*p. v is ``initial_accumulator_value`` at first; at step t, which counts from
    1, lr is divided by 1 + (t-1)*lr_decay. maximize: g is the negative gradient.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float = 0.01,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
        start = {"initial_accumulator_value": initial_accumulator_value}
        super().__init__(params, **options, **start, maximize=maximize)

    def _update(self, params: Tensors, values: Arrays, grads: Arrays, group: Group) -> Arrays:
        lr, slower, decay, eps = numbers(group, "lr", "lr_decay", "weight_decay", "eps")
        rate = lr / (1.0 + (self.steps - 1) * slower)
        sums = self._state_arrays(params, "sum", float(group["initial_accumulator_value"]))
        new = []
        for p, g, total in zip(values, grads, sums, strict=True):
            g = g + p * decay if decay else g
            total[...] = total + g * g
            new.append(p - g * rate / (xp.sqrt(total) + eps))
        return new
