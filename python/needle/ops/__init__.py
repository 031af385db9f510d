"""The functions of all ops, flat, such as ``needle.ops.exp``, and the course's op classes.

An op is one section of a family file in this package (``registry`` describes it); importing the
file registers it. A class that the course does not have is a name of its family file only, such as
``needle.ops.pooling.MaxPool2d``, so that ``needle.nn.MaxPool2d`` is the one public name of a layer.
``python -m needle.ops.stubs`` writes ``__init__.pyi``, which lists the names for type checkers.
"""

import importlib
import pkgutil
from typing import Any

from ..torch_names import missing_attribute
from .registry import REGISTRY, op

for _module in pkgutil.iter_modules(__path__):
    if _module.name != "stubs":
        importlib.import_module(f"{__name__}.{_module.name}")

COURSE_CLASSES = frozenset(
    "EWiseAdd AddScalar EWiseMul MulScalar EWiseDiv DivScalar EWisePow PowerScalar MatMul "
    "Summation BroadcastTo Reshape Transpose Negate Log Exp ReLU Tanh LogSumExp LogSoftmax "
    "Stack Split Flip Dilate UnDilate Conv MakeTensorTuple TupleGetItem FusedAddScalars".split()
)
"""The op classes that programs of the course use by name."""

PUBLIC = {row.name: row.function for row in REGISTRY.values()} | {
    cls.__name__: cls
    for row in REGISTRY.values()
    for cls in row.classes
    if cls.__name__ in COURSE_CLASSES
}
"""A dict from public names to functions and classes; ``needle`` has the same names."""

globals().update(PUBLIC)
__all__ = ["COURSE_CLASSES", "PUBLIC", "REGISTRY", "op", *PUBLIC]


def __getattr__(name: str) -> Any:
    raise missing_attribute("needle", name)
