"""The schedule that depends on a metric: ``ReduceLROnPlateau``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar

from ..errors import check_choice
from ..host_steps import host_step
from .optimizer import Optimizer
from .options import BEST, COUNT, FRACTION, RATES, SCHEDULE_RULES, Rule
from .schedules import Schedule


class ReduceLROnPlateau(Schedule):
    """Schedule that multiplies the rate by ``factor`` if a metric stops improving.

    Call ``schedule.step(metric)``, usually once per epoch. The rate is reduced after more than
    ``patience`` steps without improvement. mode: "min" if a lower metric is better,
    else "max". A metric improves if it is better than the best one by ``threshold``, which is
    relative to the best one (threshold_mode "rel") or a difference ("abs"); NaN is no improvement.
    After a reduction, ``cooldown`` steps are not counted. No rate falls below ``min_lr``, and no
    reduction by ``eps`` or less is made. Results agree with PyTorch's. ValueError for a step of
    another schedule while this one exists.
    """

    by_metric = True
    _RULES: ClassVar[dict[str, Rule]] = {**SCHEDULE_RULES, "factor": FRACTION}
    _COUNTERS = ("best", "bad_steps", "cooldown_left", "reductions")
    _SAVED: ClassVar[dict[str, Rule]] = {
        "steps": COUNT,
        "base_lrs": RATES,
        "rates": RATES,
        **dict.fromkeys(_COUNTERS, COUNT),
        "best": BEST,
    }

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        name = type(self).__name__
        check_choice(name, "mode", mode, ("min", "max"))
        check_choice(name, "threshold_mode", threshold_mode, ("rel", "abs"))
        self.mode, self.factor, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.min_lr, self.eps = cooldown, min_lr, eps
        self.best: float | None = None
        self.bad_steps = self.cooldown_left = self.reductions = 0
        super().__init__(optimizer)

    def rate(self, step: int, base_lr: float) -> float:
        """Return the rate after the reductions so far; ``step`` has no effect."""
        for _ in range(self.reductions):
            base_lr = self._reduced(base_lr)
        return base_lr

    def _reduced(self, rate: float) -> float:
        lower = max(rate * self.factor, self.min_lr)
        return lower if rate - lower > self.eps else rate

    def set_rate(self, group: dict[str, Any]) -> None:
        """Apply to the ``lr`` of a new group the reductions that the other groups have had."""
        group.setdefault("initial_lr", group["lr"])
        group["lr"] = self.rate(self.steps, group["lr"])

    @host_step
    def step(self, metric: Any) -> None:  # type: ignore[override]
        """Compare ``metric``, a number or a Tensor with one element; reduce the rates if due."""
        value = metric.item() if hasattr(metric, "item") else metric
        if not isinstance(value, Real):
            raise TypeError(
                f"{type(self).__name__}: metric must be a number or a Tensor of one value, got "
                f"{metric!r:.80}; pass the validation loss, for example"
            )
        self.steps, value = self.steps + 1, float(value)
        if self._improves(value):
            self.best, self.bad_steps = value, 0
        else:
            self.bad_steps += 1
        if self.cooldown_left:
            self.cooldown_left -= 1
            self.bad_steps = 0
        if self.bad_steps > self.patience:
            self.reductions += 1
            self.cooldown_left, self.bad_steps = self.cooldown, 0
            for group in self.optimizer.param_groups:
                group["lr"] = self._reduced(group["lr"])

    def _improves(self, value: float) -> bool:
        if self.best is None:
            return value < math.inf if self.mode == "min" else value > -math.inf
        margin = self.threshold * (self.best if self.threshold_mode == "rel" else 1.0)
        return value > self.best + margin if self.mode == "max" else value < self.best - margin

    def state_dict(self) -> dict[str, Any]:
        """Return the state of a schedule, the rates, the best metric and the counters."""
        own = {name: getattr(self, name) for name in self._COUNTERS}
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return {**super().state_dict(), "rates": rates, **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore counters and rates. Raises as ``Schedule.load_state_dict`` does."""
        super().load_state_dict(state)
        vars(self).update({name: state[name] for name in self._COUNTERS})
        for group, rate in zip(self.optimizer.param_groups, state["rates"], strict=True):
            group["lr"] = rate
