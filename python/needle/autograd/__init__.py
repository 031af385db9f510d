"""Reverse-mode differentiation: ops, the graph that they record, and ``backward``.

Read ``graph`` and ``value`` first, then ``tensor``. Memory is freed by ``discarding`` during the
forward pass and by ``replay`` during ``backward``. ``changes`` detects values that a program must
not change in between. ``derivative`` has ``needle.grad``.
"""

import gc
import sys
from types import ModuleType

from ..array_namespace import BACKEND, NDArray, array_api
from ..array_namespace import Device as Device
from .graph import Op, enable_grad, find_topo_sort, no_grad, sum_node_list, topo_sort_dfs
from .tensor import (
    Tensor,
    TensorOp,
    TensorTuple,
    TensorTupleOp,
    as_operand,
    compute_gradient_of_variables,
    number_dtype,
)
from .value import Value, evaluation

LAZY_MODE: bool
TENSOR_COUNTER: int


class _CourseNames(ModuleType):
    """This module, with the two globals of the course's ``autograd`` as properties."""

    @property
    def LAZY_MODE(self) -> bool:
        """If True, a value is computed at its first use instead of immediately."""
        return bool(evaluation.lazy)

    @LAZY_MODE.setter
    def LAZY_MODE(self, lazy: bool) -> None:
        evaluation.lazy = lazy

    @property
    def TENSOR_COUNTER(self) -> int:
        """The number of Values alive, counted on access because Values come and go often."""
        return sum(issubclass(type(each), Value) for each in gc.get_objects())


sys.modules[__name__].__class__ = _CourseNames
