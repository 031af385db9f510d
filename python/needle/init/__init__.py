"""Initial tensors: constants, random tensors, and the Xavier and Kaiming initialisers."""

from ..array_namespace import default_device
from .basic import (
    constant,
    one_hot,
    ones,
    ones_like,
    rand,
    randb,
    randn,
    zeros,
    zeros_like,
)
from .fans import kaiming_normal, kaiming_uniform, xavier_normal, xavier_uniform
from .generator import Generator, seed

__all__ = [
    "Generator",
    "constant",
    "default_device",
    "kaiming_normal",
    "kaiming_uniform",
    "one_hot",
    "ones",
    "ones_like",
    "rand",
    "randb",
    "randn",
    "seed",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
    "zeros_like",
]
