"""Operations that a backend may accelerate, each with a definition in plain array operations.

Functions over arrays (NDArray or ``numpy.ndarray``), images channels last. They know no Tensor and
no gradient graph; ``ops`` and ``optim`` call them. ``softmax.definition`` is the
plain definition of ``softmax``.
"""

from .convolution import conv2d, conv2d_input_grad, conv2d_weight_grad
from .epilogue import apply_epilogue, relu_grad
from .indexing import argmax, argmin, gather, one_hot, scatter, scatter_add
from .loss import cross_entropy, cross_entropy_grad
from .normalization import batch_norm, batch_norm_grad, layer_norm, layer_norm_grad
from .optimizer_steps import adam_step, sgd_step
from .pooling import avg_pool2d, avg_pool2d_grad, max_pool2d, max_pool2d_grad
from .random import random
from .registry import ELEMENTWISE, OPERATIONS, Accelerated, Elementwise, accelerated, elementwise
from .softmax import log_softmax, logsumexp, softmax
from .special import *  # noqa: F403
