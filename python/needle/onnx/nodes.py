"""The nodes of a file, with their attributes, their ONNX schemas, and their execution.

A schema states which dtypes an operator takes, and which inputs and outputs must have the same
dtype. Dtypes are checked at every call, so that no result has a dtype that ONNX forbids.
importing.py creates the nodes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ..autograd import Tensor
from ..dtypes import COMPUTE_DTYPES
from . import operators  # noqa: F401  importing registers the functions
from .call import OPERATORS, Call, constant
from .package import OnnxError, blamed

NAMES = {
    dtype: f"tensor({ {'float32': 'float', 'float64': 'double'}.get(dtype.name, dtype.name) })"
    for dtype in COMPUTE_DTYPES
}
"""The names of needle's dtypes in ONNX's schemas."""


class Node:
    """A node with decoded attributes; ``read`` holds the names of values that are read."""

    def __init__(
        self, onnx: Any, proto: Any, index: int, opset: int, read: Collection[str]
    ) -> None:
        self.name, self.kind = f"number {index}", "a node"
        with blamed(f"node number {index}"):
            self.kind, self.name = proto.op_type, proto.name or self.name
            self.inputs, self.outputs = list(proto.input), list(proto.output)
            self._check_known(proto)
        self.opset = opset
        with blamed(f"{self.kind} (node {self.name!r})"):
            self.attributes = {each.name: _attribute(onnx, each) for each in proto.attribute}
            self.types = _Types(onnx, self.kind, opset)
        wanted = [i for i, name in enumerate(self.outputs) if name in read]
        self.count = 1 + max(wanted, default=0)

    def run(self, values: dict[str, Any], device: Any) -> dict[str, Tensor]:
        """Return the outputs by name."""
        inputs = tuple(values[name] for name in self.inputs)
        counts = self.count, len(self.outputs)
        call = Call(self.kind, self.name, inputs, self.attributes, self.opset, *counts)
        try:
            bound = self.types.check_inputs(call)
            result = OPERATORS[self.kind](call)
            results = result if isinstance(result, tuple) else (result,)
            results = tuple(r if isinstance(r, Tensor) else constant(r, device) for r in results)
            self.types.check_outputs(call, results, bound)
        except OnnxError:
            raise
        except Exception as error:
            raise call.refuse(str(error) or type(error).__name__) from error
        if len(results) < self.count:
            missing = ", ".join(self.outputs[len(results) : self.count])
            raise call.refuse(f"its outputs {missing} are not supported; rewrite the model")
        return dict(zip(self.outputs, results, strict=False))

    def _check_known(self, proto: Any) -> None:
        if self.kind not in OPERATORS or proto.domain not in ("", "ai.onnx"):
            raise OnnxError(
                f"the operator {proto.domain and proto.domain + '.'}{self.kind} of node "
                f"{self.name!r} (inputs {', '.join(self.inputs)}) is not known; supported: "
                f"{', '.join(sorted(OPERATORS))}. Rewrite the model, or register a function in "
                "needle.onnx.call.OPERATORS"
            )


class _Types:
    """The dtype rules of an operator from its ONNX schema; without a schema there are none."""

    def __init__(self, onnx: Any, kind: str, opset: int) -> None:
        if not onnx.defs.has(kind):  # an operator registered by the program
            self.inputs: list[str] = []
            self.outputs: list[str] = []
            self.allowed: dict[str, set[str]] = {}
            return
        schema = onnx.defs.get_schema(kind, opset, "")
        self.inputs, self.outputs = (
            [each.type_str for each in side] for side in (schema.inputs, schema.outputs)
        )
        self.allowed = {
            each.type_param_str: set(each.allowed_type_strs) for each in schema.type_constraints
        }
        last = schema.inputs[-1] if schema.inputs else None
        self.repeats = last is not None and str(last.option).endswith("Variadic")

    def check_inputs(self, call: Call) -> dict[str, str]:
        """Return the dtype of each type parameter; raise OnnxError for an invalid dtype."""
        bound: dict[str, str] = {}
        if not self.inputs:
            return bound
        for i, value in enumerate(call.inputs):
            if value is None:
                continue
            if i >= len(self.inputs) and not self.repeats:
                raise call.refuse(f"at most {len(self.inputs)} inputs are allowed, got more")
            self._bind(call, f"input {i}", self.inputs[min(i, len(self.inputs) - 1)], value, bound)
        return bound

    def check_outputs(self, call: Call, results: tuple[Tensor, ...], bound: dict[str, str]) -> None:
        """Raise OnnxError if a result has another dtype than ONNX requires."""
        for i, value in enumerate(results[: call.outputs]):
            if self.outputs:
                kind = self.outputs[min(i, len(self.outputs) - 1)]
                self._bind(call, f"output {i}", kind, value, bound)

    def _bind(self, call: Call, what: str, kind: str, value: Tensor, bound: dict[str, str]) -> None:
        own = NAMES[np.dtype(value.dtype)]
        expected = bound.setdefault(kind, own) if kind in self.allowed else kind
        if own != expected or own not in self.allowed.get(kind, {own}):
            wanted = expected if own != expected else f"one of {sorted(self.allowed[kind])}"
            raise call.refuse(f"{what} must be {wanted}, got {own}; this dtype is not supported")


def _attribute(onnx: Any, proto: Any) -> Any:
    """Return the value of an attribute; raise OnnxError if it is not a plain value."""
    kinds = onnx.AttributeProto
    with blamed(f"attribute {proto.name!r}"):
        if proto.ref_attr_name or proto.type not in (
            *(kinds.FLOAT, kinds.INT, kinds.STRING, kinds.TENSOR),
            *(kinds.FLOATS, kinds.INTS, kinds.STRINGS),
        ):
            raise OnnxError("it must be numbers, a string or a tensor")
        value = onnx.helper.get_attribute_value(proto)
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, onnx.TensorProto):
            return array_of(onnx, value)
        if proto.name in ("to", "dtype"):
            return dtype_of(onnx, value)
        if proto.type in (kinds.FLOATS, kinds.INTS, kinds.STRINGS):
            return [each.decode() if isinstance(each, bytes) else each for each in value]
        return value


def _dtype_name(onnx: Any, code: int) -> str:
    named = code in onnx.TensorProto.DataType.values()
    return f"{onnx.TensorProto.DataType.Name(code)} ({code})" if named else str(code)


def dtype_of(onnx: Any, code: int) -> np.dtype[Any]:
    """Return the dtype with this ONNX code; raise OnnxError if needle lacks it."""
    known = {onnx.helper.np_dtype_to_tensor_dtype(dtype): dtype for dtype in COMPUTE_DTYPES}
    if code not in known:
        listed = ", ".join(f"{each} ({number})" for number, each in known.items())
        raise OnnxError(
            f"the dtype {_dtype_name(onnx, code)} is not supported; use one of {listed}"
        )
    return known[code]


def array_of(onnx: Any, proto: Any) -> Any:
    """Return a stored tensor as an array; raise OnnxError if bytes and shape do not match."""
    dtype = dtype_of(onnx, proto.data_type)
    dims = list(proto.dims)
    count = 1
    for size in dims:
        count *= size
    if any(size < 0 for size in dims) or len(dims) > 32:
        raise OnnxError(f"a stored value must have non-negative sizes, got {dims}")
    if proto.HasField("raw_data") and len(proto.raw_data) != count * dtype.itemsize:
        raise OnnxError(
            f"a stored value of shape {dims} needs {count * dtype.itemsize} bytes, got "
            f"{len(proto.raw_data)}; use another copy of the file"
        )
    array = np.asarray(onnx.numpy_helper.to_array(proto))
    if array.dtype != dtype or list(array.shape) != dims:
        raise OnnxError(f"a stored value must be {dtype} of shape {dims}, got {array.shape}")
    return array
