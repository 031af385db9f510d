"""Optimisers, learning-rate schedules and averages of weights."""

from typing import TYPE_CHECKING

from ..torch_names import defined_names, missing_attribute
from .adam import Adam, AdamW, NAdam, RAdam
from .averaging import ExponentialAverage
from .optimizer import Optimizer, clip_grad_norm
from .plateau import ReduceLROnPlateau
from .rmsprop import Adagrad, RMSprop
from .schedules import (
    CosineAnnealingWarmRestarts,
    CosineLR,
    ExponentialLR,
    LambdaLR,
    MultiStepLR,
    OneCycleLR,
    Schedule,
    SequentialLR,
    StepLR,
    WarmUp,
)
from .sgd import SGD

__all__ = defined_names(__name__)

if not TYPE_CHECKING:

    def __getattr__(name):
        raise missing_attribute(__name__, name)
