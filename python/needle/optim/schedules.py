"""Learning-rate schedules that are pure functions of the step number and the base rate.

Call ``schedule.step()`` after each optimiser step (or epoch; the unit is up to you) to set every
group's ``lr``. The base rate is the group's ``lr`` when the first schedule was created, or when the
group was added later; the group keeps it as ``initial_lr``. Schedules can therefore be combined,
and resumed from their step number alone. ``plateau`` has the schedule that depends on a metric.
"""

from __future__ import annotations

import inspect
import math
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, ClassVar

from ..errors import CheckpointError
from ..host_steps import Counter, host_step
from ..torch_names import PointsToKeywords, SchedulePointers
from .optimizer import Optimizer
from .options import COUNT, NOT_NEGATIVE, RATES, SCHEDULE_RULES, Rule, broken_rule, number_of


class Schedule(PointsToKeywords, SchedulePointers):
    """Base class of schedules; subclasses define ``rate``, and set their options first.

    ValueError for an option of needle's schedules that breaks its rule.
    """

    steps = Counter()
    by_metric = False
    """True if the rates depend on earlier metrics, so that no other schedule can restore them."""
    _RULES: ClassVar[dict[str, Rule]] = SCHEDULE_RULES
    _SAVED: ClassVar[dict[str, Rule]] = {"steps": COUNT, "base_lrs": RATES}

    def __init__(self, optimizer: Optimizer) -> None:
        options = {name: number_of(vars(self)[name]) for name in self._own_options()}
        vars(self).update(options)
        if wrong := broken_rule(self._RULES, options):
            raise ValueError(f"{type(self).__name__}: {wrong}; pass one such value for all groups")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"{type(self).__name__}: optimizer must be an Optimizer, got {optimizer!r:.80}; "
                "create one first"
            )
        self.optimizer = optimizer
        self._check_no_conflict()
        self.steps = 0
        self._apply()
        optimizer.schedule = weakref.ref(self)

    def _own_options(self) -> list[str]:
        """Return the arguments of needle's own class; other attributes belong to a user's class."""
        mro = type(self).__mro__
        given = self._RULES.keys() & vars(self).keys()
        own = next(each for each in mro if each.__module__.startswith(f"{__package__}."))
        return [name for name in inspect.signature(own).parameters if name in given]

    def __copy__(self) -> Schedule:
        """Return a copy for the same optimiser, which keeps the original as its schedule."""
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        return made

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Attach a copied schedule to its copied optimiser."""
        vars(self).update(state)
        self.optimizer.schedule = weakref.ref(self)

    def rate(self, step: int, base_lr: float) -> float:
        """Return the learning rate after ``step`` steps, given the group's base rate."""
        raise NotImplementedError

    @host_step
    def step(self) -> None:
        """Advance by one step and set the new rates."""
        self._check_no_conflict()
        self.steps += 1
        self._apply()

    def _check_no_conflict(self, kind: type[Exception] = ValueError) -> None:
        latest = self.optimizer.schedule and self.optimizer.schedule()
        if isinstance(latest, Schedule) and latest.by_metric and not self.by_metric:
            raise kind(
                f"{type(self).__name__}: the rates must not depend on a step and on a metric at "
                f"the same time, got this and {type(latest).__name__} for one optimizer; create "
                f"{type(latest).__name__} after the last step of other schedules"
            )

    def _apply(self) -> None:
        for group in self.optimizer.param_groups:
            self.set_rate(group)

    def set_rate(self, group: dict[str, Any]) -> None:
        """Set the current rate of a group; its ``lr`` becomes its base rate if it has none."""
        group.setdefault("initial_lr", group["lr"])
        rate = float(self.rate(self.steps, group["initial_lr"]))
        if wrong := broken_rule({"the rate": NOT_NEGATIVE}, {"the rate": rate}):
            raise ValueError(
                f"{type(self).__name__}: {wrong} at step {self.steps}; correct the arguments"
            )
        group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        """Return ``{"steps": int, "base_lrs": [...]}``; constructor arguments are not included."""
        base = [group["initial_lr"] for group in self.optimizer.param_groups]
        return {"steps": self.steps, "base_lrs": base}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the saved step and set its rates.

        CheckpointError, without any change, if the state is another schedule's or the groups
        differ.
        """
        lacking = [f"state has no {name}" for name in self._SAVED if name not in state]
        if wrong := lacking[0] if lacking else broken_rule(self._SAVED, state):
            raise CheckpointError(
                f"{type(self).__name__}: the saved {wrong}; the state is damaged or belongs to "
                "another schedule"
            )
        groups, base = self.optimizer.param_groups, state["base_lrs"]
        if {len(base), len(state.get("rates", base))} != {len(groups)}:
            raise CheckpointError(
                f"{type(self).__name__}: the state was saved for {len(base)} parameter groups, the "
                f"optimizer has {len(groups)}; create it with the same groups"
            )
        self._check_no_conflict(CheckpointError)
        for group, lr in zip(groups, base, strict=True):
            group["initial_lr"] = lr
        self.steps = int(state["steps"])
        self._apply()


class StepLR(Schedule):
    """Step schedule: base * gamma ** (step // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def rate(self, step: int, base_lr: float) -> float:
        return float(base_lr * self.gamma ** (step // self.step_size))


class MultiStepLR(Schedule):
    """Step schedule: base * gamma ** (number of ``milestones`` reached), as in PyTorch."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1) -> None:
        self.milestones: Any = milestones
        self.gamma = gamma
        with suppress(TypeError, ValueError):  # the check below refuses such values
            self.milestones = sorted(milestones)
        super().__init__(optimizer)

    def rate(self, step: int, base_lr: float) -> float:
        return float(base_lr * self.gamma ** bisect_right(self.milestones, step))


class ExponentialLR(Schedule):
    """Exponential decay: base * gamma ** step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, step: int, base_lr: float) -> float:
        return float(base_lr * self.gamma**step)


class LambdaLR(Schedule):
    """Schedule given by a function: base * ``lr_lambda(step)``, one function for all groups.

    The function is called with the step number, and must depend on nothing else. TypeError unless
    it is one function; ValueError if a rate is negative or not finite.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        if not callable(lr_lambda):
            raise TypeError(
                f"LambdaLR: lr_lambda must be one function of the step, got "
                f"{type(lr_lambda).__name__}; set lr per parameter group instead"
            )
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def rate(self, step: int, base_lr: float) -> float:
        return float(base_lr * self.lr_lambda(step))


class CosineLR(Schedule):
    """Half a cosine from base down to ``min_lr`` in ``total_steps``, constant afterwards."""

    def __init__(self, optimizer: Optimizer, total_steps: int, min_lr: float = 0.0) -> None:
        self.total_steps, self.min_lr = total_steps, min_lr
        super().__init__(optimizer)

    def rate(self, step: int, base_lr: float) -> float:
        ### BEGIN YOUR SOLUTION [schedules]
        return _cosine(base_lr, self.min_lr, min(step / self.total_steps, 1.0))
        ### END YOUR SOLUTION


class CosineAnnealingWarmRestarts(Schedule):
    """Repeated half cosines from base to ``min_lr`` (SGDR, Loshchilov & Hutter 2017).

    The first takes ``first_steps``, and each later one ``factor`` times as many as the one before.
    """

    def __init__(
        self, optimizer: Optimizer, first_steps: int, factor: int = 1, min_lr: float = 0.0
    ) -> None:
        if not isinstance(factor, int) or factor < 1:
            raise ValueError(
                f"{type(self).__name__}: factor must be a whole number of at least 1, got "
                f"{factor!r}; use 1 for restarts at regular intervals"
            )
        self.first_steps, self.factor, self.min_lr = first_steps, factor, min_lr
        super().__init__(optimizer)

    def rate(self, step: int, base_lr: float) -> float:
        length = self.first_steps
        if self.factor == 1:
            step %= length
        while step >= length:
            step -= length
            length *= self.factor
        return _cosine(base_lr, self.min_lr, step / length)


class OneCycleLR(Schedule):
    """One-cycle schedule (Smith & Topin 2018): up to ``max_lr``, then down, both along cosines.

    The rate rises from max_lr/div_factor to max_lr in the first ``pct_start`` of the steps, then
    falls to max_lr/div_factor/final_div_factor. Results agree with PyTorch's, without its momentum
    cycle.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
    ) -> None:
        self.max_lr, self.total_steps, self.pct_start = max_lr, total_steps, pct_start
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        super().__init__(optimizer)

    def rate(self, step: int, base_lr: float) -> float:
        peak, last = self.pct_start * self.total_steps - 1, self.total_steps - 1
        start = self.max_lr / self.div_factor
        if step <= peak:
            return _cosine(start, self.max_lr, step / peak if peak > 0 else 1.0)
        share = (step - peak) / (last - peak) if last > peak else 1.0
        return _cosine(self.max_lr, start / self.final_div_factor, min(share, 1.0))


class WarmUp(Schedule):
    """Linear increase from base * start_factor to base in ``total_steps``; base afterwards."""

    def __init__(self, optimizer: Optimizer, total_steps: int, start_factor: float = 0.0) -> None:
        self.total_steps, self.start_factor = total_steps, start_factor
        super().__init__(optimizer)

    def rate(self, step: int, base_lr: float) -> float:
        ### BEGIN YOUR SOLUTION [schedules]
        share = min(step / self.total_steps, 1.0)
        return float(base_lr * (self.start_factor + (1.0 - self.start_factor) * share))
        ### END YOUR SOLUTION


class SequentialLR(Schedule):
    """Schedules in sequence: ``schedules[i]`` runs until step ``milestones[i]``, then the next one.

    Each schedule counts from its own step 0.

    >>> SequentialLR([WarmUp(opt, 100), CosineLR(opt, 900)], [100])  # doctest: +SKIP
    """

    def __init__(self, schedules: Sequence[Schedule], milestones: Sequence[int]) -> None:
        increasing = all(a < b for a, b in pairwise(milestones))
        if len(schedules) != len(milestones) + 1 or not increasing:
            raise ValueError(
                "SequentialLR: there must be one milestone fewer than schedules, in increasing "
                f"order, got {len(schedules)} schedules and milestones {list(milestones)}; add or "
                "remove a milestone"
            )
        for each in schedules:
            if not isinstance(each, Schedule) or each.by_metric:
                raise TypeError(
                    "SequentialLR: each must be a schedule that depends on the step alone, got "
                    f"{each!r:.80}; create a ReduceLROnPlateau after the last step of the others"
                )
        if len({id(schedule.optimizer) for schedule in schedules}) > 1:
            raise ValueError(
                "SequentialLR: all schedules must share one optimizer, got several; create them "
                "for the same one"
            )
        self.schedules, self.milestones = list(schedules), list(milestones)
        super().__init__(schedules[0].optimizer)

    def rate(self, step: int, base_lr: float) -> float:
        passed = sum(step >= milestone for milestone in self.milestones)
        begin = self.milestones[passed - 1] if passed else 0
        return self.schedules[passed].rate(step - begin, base_lr)


def _cosine(start: float, end: float, share: float) -> float:
    """Return the value at ``share`` in [0, 1] of a half cosine from ``start`` to ``end``."""
    ### BEGIN YOUR SOLUTION [schedules]
    return float(end + (start - end) * (1.0 + math.cos(math.pi * share)) / 2.0)
    ### END YOUR SOLUTION
