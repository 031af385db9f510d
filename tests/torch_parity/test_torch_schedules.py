"""Schedules of the learning rate compared with PyTorch's."""

from __future__ import annotations

import pytest

import needle as ndl
from needle import optim

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


def test_one_cycle_and_step_schedules():
    ours = optim.SGD([ndl.nn.Parameter(ndl.init.ones(1))], lr=0.1)
    theirs = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    one = optim.OneCycleLR(ours, 0.5, 37, pct_start=0.25)
    other = torch.optim.lr_scheduler.OneCycleLR(theirs, 0.5, 37, pct_start=0.25)
    for step in range(36):
        assert ours.lr == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9), step
        theirs.step()
        one.step()
        other.step()


@pytest.mark.parametrize("name", ["cosine", "step", "multi-step"])
def test_schedules_equal_pytorchs(name):
    pairs = {
        "cosine": (
            lambda o: optim.CosineLR(o, 20, min_lr=0.01),
            lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20, eta_min=0.01),
        ),
        "step": (
            lambda o: optim.StepLR(o, 7, gamma=0.3),
            lambda o: torch.optim.lr_scheduler.StepLR(o, 7, gamma=0.3),
        ),
        "multi-step": (
            lambda o: optim.MultiStepLR(o, [5, 12], gamma=0.2),
            lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [5, 12], gamma=0.2),
        ),
    }
    ours = optim.SGD([ndl.nn.Parameter(ndl.init.ones(2))], lr=0.5)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.5)
    one, other = pairs[name][0](ours), pairs[name][1](theirs)
    for step in range(20):
        assert ours.lr == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9), step
        theirs.step()
        one.step()
        other.step()
