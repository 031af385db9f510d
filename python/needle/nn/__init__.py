"""Layers, losses, and the Module class that they derive from."""

from . import torch_mapping
from .activations import GELU, LeakyReLU, ReLU, Sigmoid, Tanh
from .attention import AttentionLayer, MultiHeadAttention
from .containers import Flatten, Identity, Residual, Sequential
from .convolution import Conv, Conv2d
from .dropout import Dropout
from .embedding import Embedding
from .linear import Linear
from .loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
    SoftmaxLoss,
)
from .module import Module, Parameter
from .normalization import BatchNorm1d, BatchNorm2d, LayerNorm, LayerNorm1d
from .pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveMaxPool2d,
    AvgPool1d,
    AvgPool2d,
    GlobalAvgPool,
    MaxPool1d,
    MaxPool2d,
    MaxUnpool2d,
)
from .recurrent import LSTM, RNN, LSTMCell, RNNCell
from .transformer import Transformer, TransformerLayer

__all__ = [
    "GELU",
    "LSTM",
    "RNN",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AttentionLayer",
    "AvgPool1d",
    "AvgPool2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool",
    "HuberLoss",
    "Identity",
    "KLDivLoss",
    "L1Loss",
    "LSTMCell",
    "MSELoss",
    "LayerNorm",
    "LayerNorm1d",
    "LeakyReLU",
    "Linear",
    "MaxPool1d",
    "MaxPool2d",
    "MaxUnpool2d",
    "Module",
    "MultiHeadAttention",
    "NLLLoss",
    "Parameter",
    "RNNCell",
    "ReLU",
    "Residual",
    "Sequential",
    "Sigmoid",
    "SmoothL1Loss",
    "SoftmaxLoss",
    "Tanh",
    "Transformer",
    "TransformerLayer",
    "torch_mapping",
]
