"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable

from .. import accelerated
from ..array_namespace import array_api as xp
from ..autograd import Tensor
from .optimizer import Arrays, Group, GroupOption, Optimizer, Tensors, unshared
from .options import FLAG, FRACTION, NOT_NEGATIVE


class Adam(Optimizer):
    """Adam with bias correction (Kingma & Ba 2015); eps outside the root, weight decay added to g.

    The step count belongs to the optimiser and is the same for all parameters. amsgrad: the largest
    second moment so far replaces the second moment (Reddi et al. 2018). maximize: g is
    the negative gradient.
    """

    lr = GroupOption(NOT_NEGATIVE)
    beta1 = GroupOption(FRACTION)
    beta2 = GroupOption(FRACTION)
    eps = GroupOption(NOT_NEGATIVE)
    weight_decay = GroupOption(NOT_NEGATIVE)
    amsgrad = GroupOption(FLAG)
    maximize = GroupOption(FLAG)
    _decoupled = False

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
        flags = {"amsgrad": amsgrad, "maximize": maximize}
        super().__init__(params, **options, weight_decay=weight_decay, **flags)

    def _update(self, params: Tensors, values: Arrays, grads: Arrays, group: Group) -> Arrays:
        if group["amsgrad"]:
            return self._amsgrad(params, values, grads, group)
        stepped: Arrays = accelerated.adam_step(
            values,
            grads,
            self._state_arrays(params, "first_moment"),
            self._state_arrays(params, "second_moment"),
            *(float(group[name]) for name in ("lr", "beta1", "beta2", "eps", "weight_decay")),
            self._decoupled,
            self.steps,
            unshared(params, values),
        )
        return stepped

    def _amsgrad(self, params: Tensors, values: Arrays, grads: Arrays, group: Group) -> Arrays:
        names = ("first_moment", "second_moment", "largest_second_moment")
        moments = zip(*(self._state_arrays(params, name) for name in names), strict=True)
        lr, beta1, beta2, decay = (
            float(group[name]) for name in ("lr", "beta1", "beta2", "weight_decay")
        )
        new = []
        for p, g, (first, second, largest) in zip(values, grads, moments, strict=True):
            if self._decoupled:
                p = p * (1.0 - lr * decay)
            elif decay:
                g = g + p * decay
            first[...] = first * beta1 + g * (1.0 - beta1)
            second[...] = second * beta2 + g * g * (1.0 - beta2)
            largest[...] = xp.maximum(largest, second)
            spread = xp.sqrt(largest / (1.0 - beta2**self.steps)) + float(group["eps"])
            new.append(p - first * (lr / (1.0 - beta1**self.steps)) / spread)
        return new


class AdamW(Adam):
    """Adam with decoupled weight decay, p *= 1 - lr*weight_decay (Loshchilov & Hutter 2019)."""

    _decoupled = True

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        flags = {"amsgrad": amsgrad, "maximize": maximize}
        super().__init__(params, lr, beta1, beta2, eps, weight_decay, **flags)
