"""Optimisers (a step from gradients) and learning-rate schedules."""

from .adam import Adam, AdamW
from .optimizer import Optimizer, clip_grad_norm
from .schedules import CosineLR, OneCycleLR, Schedule, SequentialLR, StepLR, WarmUp
from .sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CosineLR",
    "OneCycleLR",
    "Optimizer",
    "Schedule",
    "SequentialLR",
    "StepLR",
    "WarmUp",
    "clip_grad_norm",
]
