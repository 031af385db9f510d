"""Layers, losses and the Module they are made of."""

from . import torch_mapping
from .activations import GELU, LeakyReLU, ReLU, Sigmoid, Tanh
from .containers import Flatten, Identity, Residual, Sequential
from .convolution import Conv, Conv2d
from .dropout import Dropout
from .linear import Linear
from .loss import CrossEntropyLoss, SoftmaxLoss
from .module import Module, Parameter
from .normalization import BatchNorm1d, BatchNorm2d, LayerNorm, LayerNorm1d
from .pooling import AdaptiveAvgPool2d, AvgPool2d, GlobalAvgPool, MaxPool2d

__all__ = [
    "GELU",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "GlobalAvgPool",
    "Identity",
    "LayerNorm",
    "LayerNorm1d",
    "LeakyReLU",
    "Linear",
    "MaxPool2d",
    "Module",
    "Parameter",
    "ReLU",
    "Residual",
    "Sequential",
    "Sigmoid",
    "SoftmaxLoss",
    "Tanh",
    "torch_mapping",
]
