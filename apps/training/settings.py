"""The options of a run, and the optimisers and schedules that can be named in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

from needle import optim
from needle.errors import CheckpointError, unknown_name


@dataclass(frozen=True)
class Settings:
    """All that decides what a run computes; saved in its checkpoints."""

    model: str
    data: str
    device: str
    epochs: int
    batch_size: int
    optimizer: str
    lr: float
    schedule: str
    weight_decay: float
    seed: int

    def as_json(self) -> dict[str, Any]:
        """The options by name."""
        return asdict(self)


# Each takes (params, lr, weight_decay).
OPTIMIZERS: dict[str, Callable[[Any, float, float], optim.Optimizer]] = {
    "sgd": lambda params, lr, decay: optim.SGD(
        params, lr, momentum=0.9, weight_decay=decay, nesterov=True
    ),
    "adam": lambda params, lr, decay: optim.Adam(params, lr, weight_decay=decay),
    "adamw": lambda params, lr, decay: optim.AdamW(params, lr, weight_decay=decay),
}

# Each takes (optimizer, lr, total_steps); one step is one batch.
SCHEDULES: dict[str, Callable[[optim.Optimizer, float, int], optim.Schedule]] = {
    "constant": lambda optimizer, lr, steps: optim.StepLR(optimizer, steps, gamma=1.0),
    "cosine": lambda optimizer, lr, steps: optim.CosineLR(optimizer, steps),
    "one-cycle": lambda optimizer, lr, steps: optim.OneCycleLR(optimizer, lr, steps),
    "step": lambda optimizer, lr, steps: optim.StepLR(optimizer, -(-steps // 3)),
}


def build_optimizer(settings: Settings, params: Any) -> optim.Optimizer:
    """The optimiser named in the settings; UnknownNameError lists the names and the nearest."""
    if settings.optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", settings.optimizer, OPTIMIZERS)
    return OPTIMIZERS[settings.optimizer](params, settings.lr, settings.weight_decay)


def build_schedule(
    settings: Settings, optimizer: optim.Optimizer, total_steps: int
) -> optim.Schedule:
    """The schedule named in the settings; UnknownNameError lists the names and the nearest."""
    if settings.schedule not in SCHEDULES:
        raise unknown_name("schedule", settings.schedule, SCHEDULES)
    return SCHEDULES[settings.schedule](optimizer, settings.lr, total_steps)


def resumed(saved: dict[str, Any], given: dict[str, Any]) -> Settings:
    """The saved settings. What is also given must say the same; only a run whose learning rate is
    constant may be given more epochs, since the others' rates depend on how many there are."""
    settings = {name: saved[name] for name in (field.name for field in fields(Settings))}
    for name, value in given.items():
        if value is None or value == settings[name]:
            continue
        if name == "epochs" and settings["schedule"] == "constant":
            settings["epochs"] = value
            continue
        raise CheckpointError(
            f"--resume: the run was started with --{name.replace('_', '-')} {settings[name]}, got "
            f"{value}; leave the option out, or start a new run with another --out"
        )
    return Settings(**settings)
