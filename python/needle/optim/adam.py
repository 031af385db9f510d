"""Adam and its variants: AdamW, NAdam, RAdam."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from .. import accelerated
from ..array_namespace import array_api as xp
from ..autograd import Tensor
from .optimizer import Array, Arrays, Group, Optimizer, Tensors, numbers, unshared


class _OfMoments(Optimizer):
    """Base class of optimisers that keep moving averages of g and g**2."""

    def _moments(
        self, params: Tensors, values: Arrays, grads: Arrays, group: Group, decoupled: bool
    ) -> Iterator[tuple[Array, Array, Array, Array]]:
        """Yield each decayed value, its gradient, and its updated first and second moment."""
        lr, beta1, beta2, decay = numbers(group, "lr", "beta1", "beta2", "weight_decay")
        for p, g, first, second in zip(values, grads, *self._both_moments(params), strict=True):
            if decoupled:
                p = p * (1.0 - lr * decay)
            elif decay:
                g = g + p * decay
            first[...] = first * beta1 + g * (1.0 - beta1)
            second[...] = second * beta2 + g * g * (1.0 - beta2)
            yield p, g, first, second

    def _both_moments(self, params: Tensors) -> tuple[Arrays, Arrays]:
        """Return the first and the second moments."""
        first, second = (self._state_arrays(params, f"{n}_moment") for n in ("first", "second"))
        return first, second


class Adam(_OfMoments):
    """Adam with bias correction (Kingma & Ba 2015); eps is outside the root, decay is added to g.

    The step count belongs to the optimiser and is the same for all parameters. amsgrad: the largest
    second moment so far replaces the second moment (Reddi et al. 2018). maximize: g is
    the negative gradient.
    """

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
            *self._both_moments(params),
            *numbers(group, "lr", "beta1", "beta2", "eps", "weight_decay"),
            self._decoupled,
            self.steps,
            reuse=unshared(params, values),
        )
        return stepped

    def _amsgrad(self, params: Tensors, values: Arrays, grads: Arrays, group: Group) -> Arrays:
        lr, beta1, beta2, eps = numbers(group, "lr", "beta1", "beta2", "eps")
        moments = self._moments(params, values, grads, group, self._decoupled)
        new = []
        for (p, _, first, second), largest in zip(
            moments, self._state_arrays(params, "largest_second_moment"), strict=True
        ):
            largest[...] = xp.maximum(largest, second)
            spread = xp.sqrt(largest / (1.0 - beta2**self.steps)) + eps
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


class NAdam(_OfMoments):
    """Adam with Nesterov momentum (Dozat 2016); its coefficient mu grows with the step t.

    mu(t) = beta1 * (1 - 0.96**(t*momentum_decay) / 2) weights the gradient and the first moment.
    decoupled_weight_decay: as in AdamW. maximize: g is the negative gradient. Results agree with
    PyTorch's.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float = 0.002,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 0.004,
        *,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
        decays = {"weight_decay": weight_decay, "momentum_decay": momentum_decay}
        flags = {"decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize}
        super().__init__(params, **options, **decays, **flags)

    def _update(self, params: Tensors, values: Arrays, grads: Arrays, group: Group) -> Arrays:
        lr, beta1, beta2, eps = numbers(group, "lr", "beta1", "beta2", "eps")
        decay = float(group["momentum_decay"])
        mu, following = (_nesterov(beta1, decay, self.steps + i) for i in range(2))
        product = 1.0
        for step in range(1, self.steps + 1):
            product *= _nesterov(beta1, decay, step)
            if product < 1e-20:
                break  # 1 - product rounds to 1
        rate, momentum = lr * (1.0 - mu) / (1.0 - product), lr * following
        momentum /= 1.0 - product * following
        new = []
        for p, g, first, second in self._moments(
            params, values, grads, group, group["decoupled_weight_decay"]
        ):
            spread = xp.sqrt(second / (1.0 - beta2**self.steps)) + eps
            new.append(p - (g * rate + first * momentum) / spread)
        return new


def _nesterov(beta1: float, decay: float, step: int) -> float:
    """Return the momentum of NAdam at a step, which counts from 1."""
    share: float = 0.96 ** (step * decay)
    return beta1 * (1.0 - 0.5 * share)


class RAdam(_OfMoments):
    """Adam with a rectified variance (Liu et al. 2020), by which the first steps do not divide.

    While rho(t), the length of the moving average of g**2, is at most 5, p -= lr * first moment.
    decoupled_weight_decay: as in AdamW. maximize: g is the negative gradient. Results agree with
    PyTorch's.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        options = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
        flags = {"decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize}
        super().__init__(params, **options, weight_decay=weight_decay, **flags)

    def _update(self, params: Tensors, values: Arrays, grads: Arrays, group: Group) -> Arrays:
        lr, beta1, beta2, eps = numbers(group, "lr", "beta1", "beta2", "eps")
        correction = 1.0 - beta2**self.steps
        longest = 2.0 / (1.0 - beta2) - 1.0
        rho = longest - 2.0 * self.steps * beta2**self.steps / correction
        rate = lr / (1.0 - beta1**self.steps)
        if rho > 5.0:
            share = (rho - 4.0) * (rho - 2.0) * longest / rho
            rate *= math.sqrt(share / ((longest - 4.0) * (longest - 2.0)) * correction)
        new = []
        for p, _, first, second in self._moments(
            params, values, grads, group, group["decoupled_weight_decay"]
        ):
            step = first * rate
            new.append(p - (step / (xp.sqrt(second) + eps) if rho > 5.0 else step))
        return new
