# Written by `python -m needle.ops.stubs`; do not edit.
# fmt: off
"""The public functions of all ops, and the course's op classes, each from its family file."""

from .adaptive_pooling import adaptive_avg_pool2d, adaptive_max_pool2d, max_unpool2d
from .arithmetic import (
    AddScalar, DivScalar, EWiseAdd, EWiseDiv, EWiseMul, EWisePow, MulScalar, Negate,
    PowerScalar, add, add_scalar, divide, divide_scalar, mul_scalar, multiply, negate, power,
    power_scalar, scalar_power, square,
)
from .attention import scaled_dot_product_attention
from .class_losses import cross_entropy, nll_loss
from .convolution import Conv, conv, conv2d, conv2d_input_grad, conv2d_weight_grad
from .ctc import ctc_loss
from .cumulative import cumprod, cumsum, prod
from .elementwise import (
    Exp, Log, ReLU, Tanh, abs, astype, cos, elu, erf, exp, gelu, hardswish, leaky_relu, log,
    log_sigmoid, normal_cdf, relu, sigmoid, silu, sin, softplus, sqrt, tanh, to_device,
)
from .elementwise_losses import (
    binary_cross_entropy, binary_cross_entropy_with_logits, cosine_embedding_loss, huber_loss,
    kl_div, l1_loss, mse_loss, smooth_l1_loss, triplet_margin_loss,
)
from .gathering import confusion_matrix, gather, index_select, masked_fill, scatter
from .grid_sampling import grid_sample
from .indexing import concatenate, embedding, getitem, scatter_add
from .interpolation import interpolate
from .linalg import MatMul, einsum, matmul, matmul_reversed
from .loss import LogSoftmax, LogSumExp, logsoftmax, logsumexp, softmax
from .normalization import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from .padding import pad
from .pooling import avg_pool2d, max_pool2d
from .pooling_1d import adaptive_avg_pool1d, adaptive_max_pool1d, avg_pool1d, max_pool1d
from .reduction import (
    Summation, cosine_similarity, max, mean, min, norm, normalize, std, summation, var,
)
from .repetition import repeat, repeat_interleave, roll, tile
from .rounding import ceil, floor, round, sign, trunc
from .selection import (
    clip, equal, greater, greater_equal, isfinite, isinf, isnan, less, less_equal, logical_and,
    logical_not, logical_or, maximum, minimum, not_equal, where,
)
from .shape import (
    BroadcastTo, Dilate, Flip, Reshape, Split, Stack, Transpose, UnDilate, broadcast_to, dilate,
    expand_dims, flatten, flip, permute, reshape, split, squeeze, stack, transpose, undilate,
)
from .sorting import argmax, argmin, argsort, sort, topk
from .transposed_convolution import conv1d, conv_transpose1d, conv_transpose2d
from .triangles import diag, diagonal, trace, tril, triu
from .tuples import (
    FusedAddScalars, MakeTensorTuple, TupleGetItem, chunk, fused_add_scalars, make_tuple,
    split_with_sizes, tuple_get_item,
)
