"""Rules for the values of options of optimisers and schedules: a description and a predicate.

Options of the same name obey the same rule (``RULES``) in every optimiser. ``Optimizer`` applies it
when a group is created, when ``optimizer.lr = ...`` is set, and when a saved state is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

Rule = tuple[str, Callable[[Any], bool]]


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _finite(value: Any) -> bool:
    return _number(value) and math.isfinite(value)


NOT_NEGATIVE: Rule = ("a finite number of at least 0", lambda v: _finite(v) and v >= 0)
POSITIVE: Rule = ("a finite positive number", lambda v: _finite(v) and v > 0)
SHARE: Rule = ("a number in [0, 1]", lambda v: _finite(v) and 0 <= v <= 1)
NORM: Rule = ("a number of at least 0", lambda v: _number(v) and v >= 0)
FRACTION: Rule = ("a number in [0, 1)", lambda v: _finite(v) and 0 <= v < 1)
NUMBER_OR_NONE: Rule = ("a finite number or None", lambda v: v is None or _finite(v))
COUNT: Rule = (
    "a whole number of at least 0",
    lambda v: isinstance(v, Integral) and not isinstance(v, bool) and int(v) >= 0,
)
RATES: Rule = (
    "a list of finite numbers of at least 0",
    lambda v: isinstance(v, Sequence) and all(map(NOT_NEGATIVE[1], v)),
)
BEST: Rule = ("a number or None", lambda v: v is None or isinstance(v, Real))
FLAG: Rule = ("True or False", lambda v: isinstance(v, bool))

RULES: dict[str, Rule] = {
    **dict.fromkeys(("lr", "initial_lr", "lr_decay", "weight_decay", "eps"), NOT_NEGATIVE),
    **dict.fromkeys(("momentum", "momentum_decay", "initial_accumulator_value"), NOT_NEGATIVE),
    **dict.fromkeys(("alpha", "beta1", "beta2"), FRACTION),
    **dict.fromkeys(("amsgrad", "centered", "decoupled_weight_decay"), FLAG),
    **dict.fromkeys(("maximize", "nesterov"), FLAG),
    "dampening": NUMBER_OR_NONE,
}
"""The rule of each option of needle's optimisers; schedules add ``initial_lr``."""

SCHEDULE_RULES: dict[str, Rule] = {
    **dict.fromkeys(("step_size", "total_steps", "first_steps"), POSITIVE),
    **dict.fromkeys(("div_factor", "final_div_factor"), POSITIVE),
    **dict.fromkeys(("gamma", "min_lr", "max_lr", "start_factor"), NOT_NEGATIVE),
    **dict.fromkeys(("threshold", "eps"), NOT_NEGATIVE),
    **dict.fromkeys(("patience", "cooldown"), COUNT),
    "milestones": RATES,
    "pct_start": SHARE,
}
"""The rule of each option of needle's schedules; ``factor`` has one in its class."""


def number_of(value: Any) -> Any:
    """Return the element of an array or Tensor of one element, and any other value as it is."""
    return value.item() if math.prod(getattr(value, "shape", (0,))) == 1 else value


def broken_rule(rules: Mapping[str, Rule], options: Mapping[str, Any]) -> str | None:
    """Return a description of the first option that breaks its rule, or None."""
    for name, value in options.items():
        if name in rules and not rules[name][1](value):
            return f"{name} must be {rules[name][0]}, got {value!r}"
    return None
