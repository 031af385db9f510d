"""The options of a run, and losses, optimisers and schedules. Called by train.py and run.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from needle import Tensor, nn, optim
from needle.array_namespace import array_api
from needle.errors import CheckpointError, NeedleError, unknown_name
from needle.ops.loss import CrossEntropy


@dataclass(frozen=True)
class Settings:
    """All options that determine what a run computes; its checkpoints store them."""

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
    """Number of warm-up epochs: the learning rate rises to the start of the schedule."""
    milestones: list[float] = field(default_factory=lambda: [0.5, 0.75])
    """Shares of the run after which the schedule multi-step multiplies the rate by gamma."""
    gamma: float = 0.1
    label_smoothing: float = 0.0
    ema: float = 0.0
    """Decay of the weights' moving average, which is evaluated and saved; 0: no average."""
    accumulate: int = 1
    """Number of parts into which a batch is divided; their gradients are added."""
    flip_test: bool = False
    """Average the logits of each test image and its mirror image."""
    augment: list[dict[str, Any]] = field(default_factory=list)
    weights: str = ""
    """File of initial weights; empty: none."""
    only_matching: bool = False
    """Load only the weights that match the model's in name and shape."""
    source: str = "builtin"
    """The place that the data is read from: one of sources.PLACES, or a URL."""
    precision: str = "float32"
    """Precision of matrix products, as config.matmul_precision."""
    image_size: int = 0
    """Height and width of the model's images; 0: the model's own."""
    virtual_replicas: int = 0
    """Number of slices of a batch; their gradients are added in a fixed order. 0: any order."""
    sync_batch_norm: bool = False
    """Batch norm takes its statistics over the batches of all processes."""
    limit: int = 0
    """Number of samples to use from each split, balanced over the classes; 0: all."""


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


class LossOnDevice(nn.CrossEntropyLoss):
    """Mean cross entropy of labels in [0, classes), on the device of the logits.

    Labels are not checked, since the host would wait for the device: an invalid label gives NaN.
    """

    def forward(self, logits: Tensor, ids: Tensor) -> Tensor:
        """Return the mean loss of logits (N, classes) and labels (N,)."""
        labels = array_api.astype(ids.realize_cached_data(), np.int64)
        return CrossEntropy(labels, self.label_smoothing, self.reduction)(logits)


def build_optimizer(settings: Settings, params: Any) -> optim.Optimizer:
    """Return the optimiser named in the settings; UnknownNameError if there is none."""
    if settings.optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", settings.optimizer, OPTIMIZERS)
    return OPTIMIZERS[settings.optimizer](params, settings.lr, settings.weight_decay)


def build_schedule(
    settings: Settings, optimizer: optim.Optimizer, epoch_steps: int
) -> optim.Schedule:
    """Return the schedule named in the settings, preceded by its warm-up.

    epoch_steps: number of batches of an epoch. UnknownNameError if there is no such schedule;
    NeedleError if the warm-up is as long as the run.
    """
    if settings.schedule not in SCHEDULES:
        raise unknown_name("schedule", settings.schedule, SCHEDULES)
    total, rising = settings.epochs * epoch_steps, round(settings.warmup * epoch_steps)
    if rising >= total:
        raise NeedleError(
            f"--warmup: must be shorter than the run of {settings.epochs} epochs, got "
            f"{settings.warmup:g}; give fewer epochs"
        )
    schedule = SCHEDULES[settings.schedule](optimizer, settings, total - rising)
    if not rising:
        return schedule
    return optim.SequentialLR([optim.WarmUp(optimizer, rising), schedule], [rising])


def resumed(saved: dict[str, Any], given: dict[str, Any]) -> Settings:
    """Return the saved settings of a run; CheckpointError if a given option differs.

    Only ``epochs`` may differ. It extends the run, whose schedule is then that of a run planned
    with this number of epochs.
    """
    names = {field.name for field in fields(Settings)}
    settings = {name: value for name, value in saved.items() if name in names}
    for name, value in given.items():
        if value is None or value == settings.get(name):
            continue
        if name == "epochs":
            settings["epochs"] = value
            continue
        raise CheckpointError(
            f"--resume: the run was started with --{name.replace('_', '-')} {settings.get(name)}, "
            f"got {value}; leave the option out, or start a new run with another --out"
        )
    return Settings(**settings)
