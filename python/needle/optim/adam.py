"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from .. import accelerated
from ..autograd import Tensor
from .optimizer import Array, Group, GroupOption, Optimizer, unshared
from .options import FRACTION, NOT_NEGATIVE


class Adam(Optimizer):
    """Adam with bias correction (Kingma & Ba 2015); eps outside the root, weight decay added to g.

    The step count belongs to the optimiser and is the same for all parameters.
    """

    lr = GroupOption()
    beta1 = GroupOption()
    beta2 = GroupOption()
    eps = GroupOption()
    weight_decay = GroupOption()
    rules: ClassVar = {
        **dict.fromkeys(("lr", "eps", "weight_decay"), NOT_NEGATIVE),
        **dict.fromkeys(("beta1", "beta2"), FRACTION),
    }
    _decoupled = False

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        options = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
        super().__init__(params, **options, weight_decay=weight_decay)

    def _update(
        self,
        params: Sequence[Tensor],
        values: Sequence[Array],
        grads: Sequence[Array],
        group: Group,
    ) -> Sequence[Array]:
        stepped: Sequence[Any] = accelerated.adam_step(
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
    ) -> None:
        super().__init__(params, lr, beta1, beta2, eps, weight_decay)
