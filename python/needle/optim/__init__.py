"""Optimisers, learning-rate schedules and averages of weights."""

from .adam import Adam, AdamW
from .averaging import ExponentialAverage
from .optimizer import Optimizer, clip_grad_norm
from .rmsprop import Adagrad, RMSprop
from .schedules import (
    CosineLR,
    MultiStepLR,
    OneCycleLR,
    Schedule,
    SequentialLR,
    StepLR,
    WarmUp,
)
from .sgd import SGD

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "CosineLR",
    "ExponentialAverage",
    "MultiStepLR",
    "OneCycleLR",
    "Optimizer",
    "RMSprop",
    "Schedule",
    "SequentialLR",
    "StepLR",
    "WarmUp",
    "clip_grad_norm",
]
