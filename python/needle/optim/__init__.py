"""Optimisers, learning-rate schedules and averages of weights."""

from typing import TYPE_CHECKING

from ..torch_names import missing_attribute
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

if not TYPE_CHECKING:

    def __getattr__(name):
        raise missing_attribute(__name__, name)
