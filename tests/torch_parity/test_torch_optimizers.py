"""Optimisers against PyTorch in float64: several steps, some without a gradient for a parameter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import optim

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

SHAPES = [(3, 4), (5,), ()]
RATE = {"lr": 0.05, "weight_decay": 0.1}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sgd": ("SGD", RATE, {}),
    "sgd, momentum": ("SGD", {**RATE, "momentum": 0.9, "dampening": 0.0}, {}),
    "sgd, dampening": ("SGD", {**RATE, "momentum": 0.8, "dampening": 0.3}, {}),
    "sgd, nesterov": ("SGD", {**RATE, "momentum": 0.8, "dampening": 0.0, "nesterov": True}, {}),
    "adam": ("Adam", RATE, {}),
    "adamw": ("AdamW", RATE, {}),
    "amsgrad": ("Adam", {**RATE, "amsgrad": True}, {}),
    "amsgrad, decoupled": ("AdamW", {**RATE, "amsgrad": True}, {}),
    "amsgrad, betas": (
        "Adam",
        {"lr": 0.1, "eps": 1e-3, "amsgrad": True},
        {"betas": (0.5, 0.6), "beta1": 0.5, "beta2": 0.6},
    ),
    "rmsprop": ("RMSprop", RATE, {}),
    "rmsprop, centered": ("RMSprop", {**RATE, "alpha": 0.8, "centered": True, "eps": 1e-4}, {}),
    "rmsprop, momentum": ("RMSprop", {**RATE, "momentum": 0.7, "centered": True}, {}),
    "adagrad": ("Adagrad", RATE, {}),
    "adagrad, options": (
        "Adagrad",
        {**RATE, "lr_decay": 0.2, "initial_accumulator_value": 0.5, "eps": 1e-3},
        {},
    ),
}


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_steps_equal_pytorchs(name: str, maximize: bool, device: Any) -> None:
    kind, options, spelt = CASES[name]
    options = {**options, "maximize": maximize}
    random = np.random.default_rng(3)
    hosts = [random.standard_normal(shape) for shape in SHAPES]
    ours = [ndl.nn.Parameter(host, device=device, dtype="float64") for host in hosts]
    theirs = [torch.tensor(host, requires_grad=True) for host in hosts]
    own = {key: value for key, value in spelt.items() if key != "betas"}
    other = {key: value for key, value in spelt.items() if key == "betas"}
    a = getattr(optim, kind)(ours, **options, **own)
    b = getattr(torch.optim, kind)(theirs, **options, **other)
    for step in range(7):
        for k, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            g = random.standard_normal(p.shape)
            # Adam has one step counter for all parameters
            absent = "sgd" in name and step < 2 and k == 1
            p.grad = None if absent else ndl.Tensor(g, device=device, dtype="float64")
            q.grad = None if absent else torch.tensor(g)
        a.step()
        b.step()
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-11, atol=1e-12)
