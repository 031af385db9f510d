"""The options of a run, and the optimisers and schedules that can be named in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from needle import optim
from needle.errors import CheckpointError, NeedleError, unknown_name


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
    weight_decay: float = 0.0
    seed: int = 0
    recipe: str = ""
    warmup: float = 0.0
    """Epochs in which the rate rises to where the schedule starts."""
    milestones: list[float] = field(default_factory=lambda: [0.5, 0.75])
    """Of the schedule multi-step: shares of the run after which the rate is multiplied by gamma."""
    gamma: float = 0.1
    label_smoothing: float = 0.0
    ema: float = 0.0
    """Decay of the average of weights that is evaluated and saved; 0: none."""
    accumulate: int = 1
    """Parts in which a batch is computed; their gradients are added."""
    flip_test: bool = False
    """Test images are seen as they are and mirrored; logits are averaged."""
    augment: list[dict[str, Any]] = field(default_factory=list)
    weights: str = ""
    """A file of weights to start from."""
    source: str = "builtin"
    """Where the data is read from, one of sources.PLACES or an address."""
    precision: str = "float32"
    """Of products: config.matmul_precision."""
    limit: int = 0
    """So many samples of each split are used, as many of each class; 0: all."""

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

# Each takes (optimizer, settings, total_steps); one step is one batch.
SCHEDULES: dict[str, Callable[[optim.Optimizer, Settings, int], optim.Schedule]] = {
    "constant": lambda optimizer, s, steps: optim.StepLR(optimizer, steps, gamma=1.0),
    "cosine": lambda optimizer, s, steps: optim.CosineLR(optimizer, steps),
    "multi-step": lambda optimizer, s, steps: optim.MultiStepLR(
        optimizer, [round(share * steps) for share in s.milestones], s.gamma
    ),
    "one-cycle": lambda optimizer, s, steps: optim.OneCycleLR(optimizer, s.lr, steps),
    "step": lambda optimizer, s, steps: optim.StepLR(optimizer, -(-steps // 3), s.gamma),
}


def build_optimizer(settings: Settings, params: Any) -> optim.Optimizer:
    """The optimiser named in the settings; UnknownNameError lists the names and the nearest."""
    if settings.optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", settings.optimizer, OPTIMIZERS)
    return OPTIMIZERS[settings.optimizer](params, settings.lr, settings.weight_decay)


def build_schedule(
    settings: Settings, optimizer: optim.Optimizer, epoch_steps: int
) -> optim.Schedule:
    """The schedule named in the settings, after its warm-up; ``epoch_steps`` batches an epoch.

    UnknownNameError lists the names and the nearest. NeedleError if the warm-up is too long.
    """
    if settings.schedule not in SCHEDULES:
        raise unknown_name("schedule", settings.schedule, SCHEDULES)
    total, rising = settings.epochs * epoch_steps, round(settings.warmup * epoch_steps)
    if rising >= total:
        raise NeedleError(
            f"--warmup: must be shorter than the run of {settings.epochs} epochs, got "
            f"{settings.warmup:g}; give fewer"
        )
    schedule = SCHEDULES[settings.schedule](optimizer, settings, total - rising)
    if not rising:
        return schedule
    return optim.SequentialLR([optim.WarmUp(optimizer, rising), schedule], [rising])


def resumed(saved: dict[str, Any], given: dict[str, Any]) -> Settings:
    """The saved settings. What is also given must say the same; only a run whose learning rate is
    constant may be given more epochs, since the others' rates depend on how many there are."""
    names = {field.name for field in fields(Settings)}
    settings = {name: value for name, value in saved.items() if name in names}
    for name, value in given.items():
        if value is None or value == settings.get(name):
            continue
        if name == "epochs" and settings["schedule"] == "constant":
            settings["epochs"] = value
            continue
        raise CheckpointError(
            f"--resume: the run was started with --{name.replace('_', '-')} {settings.get(name)}, "
            f"got {value}; leave the option out, or start a new run with another --out"
        )
    return Settings(**settings)
