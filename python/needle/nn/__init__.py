"""Layers, losses, and the Module class that they derive from."""

from typing import TYPE_CHECKING

from ..torch_names import defined_names, missing_attribute
from . import torch_mapping
from .activations import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softshrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
)
from .attention import AttentionLayer, MultiHeadAttention, MultiheadAttention
from .cells import GRUCell, LSTMCell, RNNCell
from .containers import Flatten, Identity, Residual, Sequential
from .convolution import Conv, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d
from .dropout import Dropout, Dropout2d
from .embedding import Embedding
from .group_normalization import GroupNorm, InstanceNorm1d, InstanceNorm2d, RMSNorm
from .linear import Linear
from .loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    CTCLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
    SoftmaxLoss,
    TripletMarginLoss,
)
from .module import Module, Parameter
from .normalization import BatchNorm1d, BatchNorm2d, LayerNorm, LayerNorm1d
from .pixels import (
    PixelShuffle,
    PixelUnshuffle,
    ReflectionPad2d,
    ReplicationPad2d,
    Unfold,
    Upsample,
    ZeroPad2d,
)
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
from .recurrent import GRU, LSTM, RNN
from .transformer import (
    Transformer,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    TransformerLayer,
)

__all__ = ["torch_mapping", *defined_names(__name__)]

if not TYPE_CHECKING:

    def __getattr__(name):
        raise missing_attribute(__name__, name)
