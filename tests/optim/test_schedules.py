"""Test schedules: the rate at every step, sequences, rates per group, resuming."""

from __future__ import annotations

import copy
import gc
import json
import math
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import optim
from needle.errors import CheckpointError


def optimizer(*rates: float) -> optim.SGD:
    groups = [{"params": [ndl.nn.Parameter(ndl.init.ones(2))], "lr": lr} for lr in rates]
    return optim.SGD(groups)


def rates(schedule: optim.Schedule, steps: int, group: int = 0) -> list[float]:
    seen = []
    for _ in range(steps):
        seen.append(schedule.optimizer.param_groups[group]["lr"])
        advance(schedule)
    return seen


def advance(schedule: optim.Schedule) -> None:
    """Take one step; the metric never improves after the first one."""
    if isinstance(schedule, optim.ReduceLROnPlateau):
        schedule.step(1.0)
    else:
        schedule.step()


def test_step_lr():
    assert rates(optim.StepLR(optimizer(1.0), 2, 0.5), 6) == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_cosine_lr_reaches_its_minimum_and_stays():
    seen = rates(optim.CosineLR(optimizer(1.0), 4, min_lr=0.2), 7)
    expected = [0.2 + 0.8 * (1 + math.cos(math.pi * min(t, 4) / 4)) / 2 for t in range(7)]
    assert seen == pytest.approx(expected)
    assert seen[4:] == pytest.approx([0.2] * 3)


def test_exponential_lr():
    assert rates(optim.ExponentialLR(optimizer(1.0), 0.5), 4) == [1, 0.5, 0.25, 0.125]


def test_lambda_lr_multiplies_each_base_rate():
    schedule = optim.LambdaLR(optimizer(1.0, 0.5), lambda step: 1 / (1 + step))
    assert rates(schedule, 3, group=1) == pytest.approx([0.5, 0.25, 1 / 6])
    with pytest.raises(TypeError, match="lr_lambda must be one function of the step, got list"):
        optim.LambdaLR(optimizer(1.0), [abs])  # type: ignore[arg-type]
    for wrong in (-1.0, math.nan):
        with pytest.raises(ValueError, match=f"at least 0, got {wrong} at step 0"):
            optim.LambdaLR(optimizer(1.0), lambda step, wrong=wrong: wrong)


@pytest.mark.parametrize(("factor", "lengths"), [(1, [3, 3, 3]), (2, [3, 6, 12])])
def test_warm_restarts_begin_again(factor: int, lengths: list[int]):
    opt = optimizer(1.0)
    seen = rates(optim.CosineAnnealingWarmRestarts(opt, 3, factor, 0.2), sum(lengths))
    expected = [
        0.2 + 0.4 * (1 + math.cos(math.pi * t / length))
        for length in lengths
        for t in range(length)
    ]
    assert seen == pytest.approx(expected)
    with pytest.raises(ValueError, match="factor must be a whole number of at least 1, got 1.5"):
        optim.CosineAnnealingWarmRestarts(opt, 3, 1.5)  # type: ignore[arg-type]


PLATEAUS = [
    ({}, [3.0] * 12, [1.0] * 11 + [0.1]),
    ({"patience": 1}, [3, 2, 2, 2, 1, 1, 1], [1, 1, 1, 0.1, 0.1, 0.1, 0.01]),
    ({"patience": 0, "mode": "max"}, [3, 2, 4, 4], [1, 0.1, 0.1, 0.01]),
    ({"patience": 0, "threshold": 0.5}, [4, 2.5, 1.9, 1.0], [1, 0.1, 0.1, 0.01]),
    ({"patience": 0, "threshold": 1, "threshold_mode": "abs"}, [4, 2.5, 1.9], [1, 1, 0.1]),
    ({"patience": 0, "cooldown": 2}, [1] * 6, [1, 0.1, 0.1, 0.1, 0.01, 0.01]),
    ({"patience": 0, "min_lr": 0.25, "factor": 0.5}, [1] * 4, [1, 0.5, 0.25, 0.25]),
    ({"patience": 0, "eps": 0.3, "factor": 0.5}, [1] * 4, [1, 0.5, 0.5, 0.5]),
    ({"patience": 0}, [math.nan, 1, math.nan], [0.1, 0.1, 0.01]),
    ({"patience": 1}, [math.inf, 3, 2, 1, 0.5], [1] * 5),
    ({"patience": 0, "mode": "max"}, [-math.inf, 3, 4], [0.1] * 3),
]


@pytest.mark.parametrize(("options", "metrics", "expected"), PLATEAUS)
def test_rates_fall_on_a_plateau(options: Any, metrics: list[float], expected: list[float]):
    opt = optimizer(1.0)
    schedule = optim.ReduceLROnPlateau(opt, **options)
    seen = []
    for metric in metrics:
        schedule.step(ndl.Tensor(metric))
        seen.append(opt.lr)
    assert seen == pytest.approx(expected)


def test_a_plateau_reduces_a_rate_set_by_hand_and_resumes_there():
    opt = optimizer(1.0)
    schedule = optim.ReduceLROnPlateau(opt, patience=1, factor=0.5)
    opt.lr = 0.125
    for _ in range(3):
        schedule.step(1.0)
    assert opt.lr == 0.0625
    schedule.step(1.0)
    other = optimizer(1.0)
    again = optim.ReduceLROnPlateau(other, patience=1, factor=0.5)
    again.load_state_dict(json.loads(json.dumps(schedule.state_dict())))
    assert other.lr == 0.0625 and again.state_dict() == schedule.state_dict()
    again.step(2.0)
    assert other.lr == 0.03125


def test_wrong_plateaus_are_refused():
    opt = optimizer(1.0)
    with pytest.raises(ValueError, match="mode must be 'min' or 'max', got 'least'"):
        optim.ReduceLROnPlateau(opt, "least")
    with pytest.raises(ValueError, match=r"factor must be a number in \[0, 1\), got 1.5"):
        optim.ReduceLROnPlateau(opt, factor=1.5)
    for options in ({"min_lr": [0.1, 0.2]}, {"patience": -1}, {"cooldown": 0.5}, {"eps": "small"}):
        with pytest.raises(ValueError, match=f"ReduceLROnPlateau: {next(iter(options))} must be"):
            optim.ReduceLROnPlateau(opt, **options)
    with pytest.raises(TypeError, match="depends on the step alone, got .*ReduceLROnPlateau"):
        optim.SequentialLR([optim.WarmUp(opt, 2), optim.ReduceLROnPlateau(opt)], [2])


@pytest.mark.parametrize("metric", ["0.5", None, [0.5], 1j, ndl.Tensor([1.0, 2.0])])
def test_a_metric_that_is_no_number_is_not_counted(metric: Any):
    schedule = optim.ReduceLROnPlateau(optimizer(1.0), patience=0)
    schedule.step(1.0)
    before = schedule.state_dict()
    with pytest.raises((TypeError, ValueError)):
        schedule.step(metric)
    assert schedule.state_dict() == before
    schedule.step(ndl.Tensor([math.nan]))  # counts as no improvement
    assert (schedule.steps, schedule.reductions, schedule.best) == (2, 1, 1.0)


def test_a_plateau_and_another_schedule_do_not_undo_each_other():
    opt = optimizer(1.0)
    warm = optim.WarmUp(opt, 2)
    warm.step()
    plateau = optim.ReduceLROnPlateau(opt, patience=0, factor=0.5)
    for _ in range(2):
        plateau.step(1.0)
    assert opt.lr == 0.25
    for act in (
        warm.step,
        lambda: optim.StepLR(opt, 3),
        lambda: warm.load_state_dict({"steps": 2, "base_lrs": [9.0]}),
    ):
        with pytest.raises(
            (ValueError, CheckpointError), match="create ReduceLROnPlateau after the last step"
        ):
            act()
        assert opt.lr == 0.25 and warm.steps == 1
    plateau.step(1.0)
    assert opt.lr == 0.125
    del plateau
    assert optim.StepLR(opt, 3).optimizer.lr == 1.0


def test_warm_up_is_linear():
    seen = rates(optim.WarmUp(optimizer(2.0), 4, start_factor=0.5), 6)
    assert seen == pytest.approx([1.0, 1.25, 1.5, 1.75, 2.0, 2.0])


def test_one_cycle_rises_to_its_peak_and_falls():
    seen = rates(optim.OneCycleLR(optimizer(1.0), 2.0, 10, pct_start=0.3), 12)
    low, end = 2.0 / 25, 2.0 / 25 / 1e4
    expected = [low + (2.0 - low) * (1 - math.cos(math.pi * t / 2)) / 2 for t in range(3)]
    expected += [end + (2.0 - end) * (1 + math.cos(math.pi * t / 7)) / 2 for t in range(1, 8)]
    assert seen == pytest.approx([*expected, end, end], rel=1e-9)


def test_a_sequence_hands_over_at_its_milestones():
    opt = optimizer(1.0)
    schedule = optim.SequentialLR([optim.WarmUp(opt, 2), optim.CosineLR(opt, 2)], [2])
    assert rates(schedule, 5) == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0])


def test_every_group_keeps_its_own_base():
    opt = optimizer(1.0, 0.1)
    schedule = optim.StepLR(opt, 1, 0.5)
    schedule.step()
    assert [group["lr"] for group in opt.param_groups] == pytest.approx([0.5, 0.05])


SCHEDULES = {
    "StepLR": lambda opt: optim.StepLR(opt, 2, 0.5),
    "MultiStepLR": lambda opt: optim.MultiStepLR(opt, [1, 4]),
    "ExponentialLR": lambda opt: optim.ExponentialLR(opt, 0.5),
    "LambdaLR": lambda opt: optim.LambdaLR(opt, lambda step: 0.5**step),
    "CosineAnnealingWarmRestarts": lambda opt: optim.CosineAnnealingWarmRestarts(opt, 2, 2),
    "ReduceLROnPlateau": lambda opt: optim.ReduceLROnPlateau(opt, patience=1, factor=0.5),
    "CosineLR": lambda opt: optim.CosineLR(opt, 7, 0.01),
    "OneCycleLR": lambda opt: optim.OneCycleLR(opt, 2.0, 7),
    "WarmUp": lambda opt: optim.WarmUp(opt, 5),
    "SequentialLR": lambda opt: optim.SequentialLR(
        [optim.WarmUp(opt, 2), optim.CosineLR(opt, 4)], [2]
    ),
}


def test_every_schedule_is_in_the_table():
    kinds = {name for name, kind in vars(optim).items() if kind in optim.Schedule.__subclasses__()}
    assert kinds == set(SCHEDULES)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("when", [0, 1, 3])
def test_a_group_that_is_added_later_follows_the_schedule(name, when):
    whole, later = optimizer(1.0, 0.1), optimizer(1.0)
    first, second = SCHEDULES[name](whole), SCHEDULES[name](later)
    for step in range(7):
        if step == when:
            later.add_param_group({"params": [ndl.nn.Parameter([1.0])], "lr": 0.1})
            assert second.state_dict() == first.state_dict()
        if step >= when:
            assert [g["lr"] for g in later.param_groups] == [g["lr"] for g in whole.param_groups]
        advance(first)
        advance(second)


def test_a_group_that_is_added_leaves_a_rate_set_by_hand():
    opt = optimizer(1.0)
    optim.StepLR(opt, 5)
    opt.lr = 0.125
    opt.add_param_group({"params": [ndl.nn.Parameter([1.0])], "lr": 0.5})
    assert [group["lr"] for group in opt.param_groups] == [0.125, 0.5]


def test_a_copied_optimizer_has_a_schedule_of_its_own():
    opt = optimizer(1.0)
    schedule = optim.StepLR(opt, 1, 0.5)
    twin = copy.deepcopy(opt)
    schedule.step()
    twin.add_param_group({"params": [ndl.nn.Parameter([1.0])], "lr": 0.25})
    assert [group["lr"] for group in twin.param_groups] == [1.0, 0.25]


def test_the_copy_of_a_schedule_leaves_the_optimizer_its_own():
    opt = optimizer(1.0)
    schedule = optim.SequentialLR([optim.StepLR(opt, 1, 0.5), optim.StepLR(opt, 1)], [9])
    assert copy.copy(schedule).state_dict() == schedule.state_dict()
    schedule.step()
    opt.add_param_group({"params": [ndl.nn.Parameter([1.0])], "lr": 0.25})
    assert [group["lr"] for group in opt.param_groups] == [0.5, 0.125]


def test_schedule_and_optimizer_copied_together_stay_together():
    opt = optimizer(1.0)
    schedule = optim.SequentialLR([optim.StepLR(opt, 1, 0.5), optim.StepLR(opt, 1)], [9])
    for twin, own in (copy.deepcopy((opt, schedule)), pickle.loads(pickle.dumps((opt, schedule)))):
        own.step()
        twin.add_param_group({"params": [ndl.nn.Parameter([1.0])], "lr": 0.25})
        assert [group["lr"] for group in twin.param_groups] == [0.5, 0.125]
    assert opt.lr == 1.0


def test_no_cycle_keeps_the_weights_of_a_dropped_optimizer():
    opt = optimizer(1.0)
    schedule = optim.StepLR(opt, 1)
    alive = weakref.ref(opt)
    gc.disable()
    try:
        del opt, schedule
        assert alive() is None
    finally:
        gc.enable()


def test_state_continues_where_it_stopped():
    def build() -> optim.Schedule:
        opt = optimizer(1.0)
        return optim.SequentialLR([optim.WarmUp(opt, 3), optim.CosineLR(opt, 7)], [3])

    whole = rates(build(), 10)
    first = build()
    rates(first, 4)
    second = build()
    second.load_state_dict(first.state_dict())
    assert rates(second, 6) == whole[4:]
    with pytest.raises(CheckpointError, match="saved for 1 parameter groups"):
        optim.StepLR(optimizer(1.0, 2.0), 1).load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    "damage",
    [
        {"steps": -3},
        {"base_lrs": [-1.0]},
        {"base_lrs": [math.nan]},
        {"rates": [-1.0]},
        {"rates": [0.1, 0.1]},
        {"bad_steps": "many"},
        {"best": "low"},
        None,
    ],
)
def test_a_damaged_state_changes_nothing(damage: Any):
    schedule = optim.ReduceLROnPlateau(optimizer(1.0), patience=0)
    for metric in (1.0, 2.0, 3.0):
        schedule.step(metric)
    before = schedule.state_dict()
    step_state = {name: before[name] for name in ("steps", "base_lrs")}
    with pytest.raises(CheckpointError, match="ReduceLROnPlateau: the"):
        schedule.load_state_dict(step_state if damage is None else {**before, **damage})
    assert schedule.state_dict() == before


def test_rates_that_the_optimizer_would_refuse_are_errors():
    opt = optimizer(1.0)
    with pytest.raises(ValueError, match="the rate must be a finite number of at least 0"):
        rates(optim.LambdaLR(opt, lambda step: -step), 2)
    assert opt.lr >= 0


@pytest.mark.parametrize(
    ("option", "build"),
    [
        ("step_size", lambda opt: optim.StepLR(opt, 0)),
        ("step_size", lambda opt: optim.StepLR(opt, "3")),
        ("gamma", lambda opt: optim.StepLR(opt, 1, -0.5)),
        ("gamma", lambda opt: optim.MultiStepLR(opt, [1], math.nan)),
        ("milestones", lambda opt: optim.MultiStepLR(opt, [-1])),
        ("milestones", lambda opt: optim.MultiStepLR(opt, 3)),
        ("gamma", lambda opt: optim.ExponentialLR(opt, -0.5)),
        ("total_steps", lambda opt: optim.CosineLR(opt, None)),
        ("min_lr", lambda opt: optim.CosineLR(opt, 1, -1.0)),
        ("min_lr", lambda opt: optim.CosineAnnealingWarmRestarts(opt, 2, min_lr=-2.0)),
        ("first_steps", lambda opt: optim.CosineAnnealingWarmRestarts(opt, True)),
        ("max_lr", lambda opt: optim.OneCycleLR(opt, -1.0, 2)),
        ("pct_start", lambda opt: optim.OneCycleLR(opt, 1.0, 2, pct_start=30)),
        ("div_factor", lambda opt: optim.OneCycleLR(opt, 1.0, 2, div_factor=0)),
        ("start_factor", lambda opt: optim.WarmUp(opt, 2, "slow")),
        ("milestones", lambda opt: optim.SequentialLR([optim.WarmUp(opt, 2)] * 2, [-1])),
    ],
)
def test_options_out_of_range_are_refused_when_a_schedule_is_created(option: str, build: Any):
    opt = optimizer(1.0)
    with pytest.raises(ValueError, match=f": {option} must be"):
        build(opt)
    assert opt.lr == 1.0 or option == "milestones"


class Mine(optim.Schedule):
    """A schedule of a user, whose attributes have names of needle's options."""

    def __init__(self, opt: optim.Optimizer, **attributes: Any) -> None:
        vars(self).update(attributes)
        super().__init__(opt)

    def rate(self, step: int, base_lr: float) -> float:
        return base_lr / (step + 1)


class MyStepLR(optim.StepLR):
    """A schedule of a user with an attribute that StepLR does not have."""

    def __init__(self, opt: optim.Optimizer, gamma: float) -> None:
        self.min_lr = None
        super().__init__(opt, 1, gamma)


@pytest.mark.parametrize(
    "attributes",
    [
        {"milestones": {10: 0.1}, "max_lr": [0.1, 0.2]},
        {"gamma": None, "total_steps": None},
        {"gamma": math.sqrt, "step_size": "epoch"},
    ],
)
def test_attributes_of_users_schedules_obey_no_rule(attributes: dict[str, Any]):
    assert rates(Mine(optimizer(1.0), **attributes), 2) == [1.0, 0.5]
    assert rates(MyStepLR(optimizer(1.0), 0.5), 2) == [1.0, 0.5]
    with pytest.raises(ValueError, match="MyStepLR: gamma must be"):
        MyStepLR(optimizer(1.0), -0.5)


@pytest.mark.parametrize(
    "milestones",
    [np.array([4, 2]), {4, 2}, {4: 0, 2: 0}.keys(), [4, 2], (step for step in (4, 2))],
)
def test_milestones_may_be_any_iterable_and_are_copied(milestones: Any):
    schedule = optim.MultiStepLR(optimizer(1.0), milestones, 0.5)
    if isinstance(milestones, list):
        milestones.clear()
    assert rates(schedule, 5) == [1, 1, 0.5, 0.5, 0.25]


@pytest.mark.parametrize("gamma", [np.array(0.5), np.array([0.5]), ndl.Tensor([0.5])])
def test_options_may_be_arrays_of_one_value(gamma: Any):
    schedule = optim.StepLR(optimizer(1.0), np.array(2), gamma)  # type: ignore[arg-type]
    assert rates(schedule, 5) == [1, 1, 0.5, 0.5, 0.25]


def test_a_schedule_or_optimizer_without_steps_lacks_the_attribute():
    for kind in (optim.SGD, optim.StepLR):
        made = object.__new__(kind)
        assert not hasattr(made, "steps") and getattr(made, "steps", 3) == 3


def test_wrong_arguments_are_refused():
    opt = optimizer(1.0)
    with pytest.raises(TypeError, match="StepLR: optimizer must be an Optimizer, got"):
        optim.StepLR(opt.params, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="SequentialLR: each must be a schedule"):
        optim.SequentialLR([optim.StepLR(opt, 1), None], [3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="one milestone fewer"):
        optim.SequentialLR([optim.StepLR(opt, 1)], [3])
    with pytest.raises(ValueError, match="share one optimizer"):
        optim.SequentialLR([optim.StepLR(opt, 1), optim.StepLR(optimizer(1.0), 1)], [3])
