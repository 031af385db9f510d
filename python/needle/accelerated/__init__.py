"""Operations that a backend may accelerate, each with a body in plain array operations.

Functions over arrays (NDArray or ``numpy.ndarray``), images channels last. They know no Tensor and
no gradient graph; ``ops`` and ``optim`` call them. ``softmax.definition`` is the plain body.
"""

from .activation import bias_relu, bias_relu_grad, relu_grad
from .convolution import (
    conv2d,
    conv2d_bias,
    conv2d_input_grad,
    conv2d_relu,
    conv2d_weight_grad,
)
from .indexing import argmax, argmin, gather, one_hot, scatter, scatter_add
from .loss import cross_entropy, cross_entropy_grad
from .normalization import (
    batch_norm,
    batch_norm_add_relu,
    batch_norm_add_relu_grad,
    batch_norm_grad,
    batch_norm_relu,
    batch_norm_relu_grad,
    layer_norm,
    layer_norm_grad,
)
from .optimizer_steps import adam_step, sgd_step
from .pooling import avg_pool2d, avg_pool2d_grad, max_pool2d, max_pool2d_grad
from .random import random
from .registry import OPERATIONS, Accelerated, accelerated
from .softmax import log_softmax, logsumexp, softmax
from .special import erf

__all__ = [
    "OPERATIONS",
    "Accelerated",
    "accelerated",
    "adam_step",
    "argmax",
    "argmin",
    "avg_pool2d",
    "avg_pool2d_grad",
    "batch_norm",
    "batch_norm_add_relu",
    "batch_norm_add_relu_grad",
    "batch_norm_grad",
    "batch_norm_relu",
    "batch_norm_relu_grad",
    "bias_relu",
    "bias_relu_grad",
    "conv2d",
    "conv2d_bias",
    "conv2d_input_grad",
    "conv2d_relu",
    "conv2d_weight_grad",
    "cross_entropy",
    "cross_entropy_grad",
    "erf",
    "gather",
    "layer_norm",
    "layer_norm_grad",
    "log_softmax",
    "logsumexp",
    "max_pool2d",
    "max_pool2d_grad",
    "one_hot",
    "random",
    "relu_grad",
    "scatter",
    "scatter_add",
    "sgd_step",
    "softmax",
]
