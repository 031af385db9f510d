"""Initial tensors: constants, random tensors, and the Xavier and Kaiming initialisers."""

from ..array_namespace import default_device
from ..torch_names import defined_names
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

__all__ = ["default_device", *defined_names(__name__)]
