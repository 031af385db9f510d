"""The functions of all ops, such as ``needle.ops.exp``, and the course's op classes.

An op is one section of a family file in this package (``registry`` describes it). ``public``,
written by ``python -m needle.ops.stubs``, says which file each name comes from. A class that the
course does not have is available only from its family file, such as
``needle.ops.pooling.MaxPool2d``, so that ``needle.nn.MaxPool2d`` is the one public class of that
name.
"""

from typing import Any

from ..torch_names import defined_names, missing_attribute
from .public import *  # noqa: F403
from .registry import REGISTRY, op

__all__ = ["REGISTRY", *defined_names(__name__)]


def __getattr__(name: str) -> Any:
    raise missing_attribute("needle", name)
