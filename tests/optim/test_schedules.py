"""Schedules: the rate at every step, sequences, rates per group, resuming."""

from __future__ import annotations

import copy
import math

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
        schedule.step()
    return seen


def test_step_lr():
    assert rates(optim.StepLR(optimizer(1.0), 2, 0.5), 6) == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_multi_step_lr_falls_at_its_milestones():
    seen = rates(optim.MultiStepLR(optimizer(1.0), [4, 2], 0.5), 6)
    assert seen == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_cosine_lr_reaches_its_minimum_and_stays():
    seen = rates(optim.CosineLR(optimizer(1.0), 4, min_lr=0.2), 7)
    expected = [0.2 + 0.8 * (1 + math.cos(math.pi * min(t, 4) / 4)) / 2 for t in range(7)]
    assert seen == pytest.approx(expected)
    assert seen[4:] == pytest.approx([0.2] * 3)


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
        first.step()
        second.step()


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


def test_wrong_arguments_are_refused():
    opt = optimizer(1.0)
    with pytest.raises(ValueError, match="StepLR: step_size must be a positive number"):
        optim.StepLR(opt, 0)
    with pytest.raises(ValueError, match="one milestone fewer"):
        optim.SequentialLR([optim.StepLR(opt, 1)], [3])
    with pytest.raises(ValueError, match="share one optimizer"):
        optim.SequentialLR([optim.StepLR(opt, 1), optim.StepLR(optimizer(1.0), 1)], [3])
