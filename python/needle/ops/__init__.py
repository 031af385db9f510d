"""The functions of all ops, flat, such as ``needle.ops.exp``, and the course's op classes.

An op is one section of a family file in this package (``registry`` describes it). ``public`` says
which file each name comes from; ``python -m needle.ops.stubs`` writes it. A class that the course
does not have is a name of its family file only, such as ``needle.ops.pooling.MaxPool2d``, so that
``needle.nn.MaxPool2d`` is the one public name of a layer.
"""

from typing import Any

from ..torch_names import defined_names, missing_attribute
from .public import *  # noqa: F403
from .registry import REGISTRY, op

__all__ = ["REGISTRY", *defined_names(__name__)]


def __getattr__(name: str) -> Any:
    raise missing_attribute("needle", name)
