"""The interface with which the onnx package tests a runtime: prepare, run_model, run_node.

``onnx.backend.test.BackendTest(needle.onnx.NeedleBackend, ...)`` runs its tests here. Device "CPU"
is needle's ``cpu``; any other name is that of a needle device.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..array_namespace import device as find_device
from ..errors import NeedleError
from ..graph import no_grad
from .call import MAX_ELEMENTS, Undecided, constant
from .importing import OnnxModel
from .package import OnnxError, onnx_package

TRIAL_SIZES = (1, 32, 224)
"""Sizes that are tried for an axis without a declared one."""


class NeedleRep:
    """A model that is ready to run."""

    def __init__(self, model: OnnxModel, device: Any) -> None:
        self.model, self.device = model, device

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """Return the outputs as NumPy arrays; inputs are given in order or by name."""
        given = [inputs[name] for name in self.model.inputs] if isinstance(inputs, dict) else inputs
        if any(isinstance(each, list) for each in given):
            raise OnnxError("onnx: inputs must be arrays, got a list; sequences are not supported")
        with no_grad():
            result = self.model(*(np.asarray(each) for each in given))
        found = result if isinstance(result, tuple) else (result,)
        return tuple(each.numpy() for each in found)


class NeedleBackend:
    """The methods of ``onnx.backend.base.Backend``, without importing onnx."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **options: Any) -> bool:
        """Return True if ``prepare`` accepts the model and it runs.

        The model runs once on placeholders of the declared shapes and dtypes. Where a node needs
        the values of an input, such as the axes of a sum, the answer is True.
        """
        try:
            rep = cls.prepare(model, device)
            return any(_runs(rep, model.graph.input, size) for size in TRIAL_SIZES)
        except NeedleError:
            return False

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> NeedleRep:
        """Return an ``onnx.ModelProto`` as a model that is ready to run."""
        place = find_device(device.lower())
        return NeedleRep(OnnxModel(model, place), place)

    @classmethod
    def run_model(
        cls, model: Any, inputs: Any, device: str = "CPU", **options: Any
    ) -> tuple[Any, ...]:
        """Prepare a model and run it once."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **options: Any
    ) -> tuple[Any, ...]:
        """Run a single ``onnx.NodeProto``."""
        onnx = onnx_package()
        arrays = [np.asarray(each) for each in inputs]
        used = [name for name in node.input if name]

        def described(name: str, array: Any) -> Any:
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            return onnx.helper.make_tensor_value_info(name, kind, array.shape)

        onnx.checker.check_node(node)
        outputs = [name for name in node.output if name]
        unknown = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
        taken = [described(name, a) for name, a in zip(used, arrays, strict=True)]
        graph = onnx.helper.make_graph([node], "node", taken, unknown)
        opset = options.get("opset_version", onnx.defs.onnx_opset_version())
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
        place = find_device(device.lower())
        return NeedleRep(OnnxModel(model, place, check=False), place).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return True if the device is available."""
        try:
            return bool(find_device(device.lower()).enabled())
        except NeedleError:
            return False


def _runs(rep: NeedleRep, declared: Any, size: int) -> bool:
    """Return True if a model runs on placeholders, in which an axis of any size has ``size``."""
    onnx, model = onnx_package(), rep.model
    kinds = {each.name: each.type.tensor_type for each in declared}
    if not all(kinds[name].HasField("shape") for name in model.inputs):
        return True
    try:
        arrays = []
        for name in model.inputs:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kinds[name].elem_type)
            shape = [
                d.dim_value if d.HasField("dim_value") else size for d in kinds[name].shape.dim
            ]
            if math.prod(shape) > MAX_ELEMENTS:
                return False
            arrays.append(np.full(shape, dtype.kind == "f", dtype))
        with no_grad():
            model.run([constant(each, rep.device) for each in arrays], set(model.inputs))
    except Undecided:
        return True
    except (NeedleError, KeyError, ValueError, TypeError, MemoryError):
        return False
    return True
