"""The interface with which the onnx package tests a runtime: prepare, run_model, run_node.

``onnx.backend.test.BackendTest(needle.onnx.NeedleBackend, ...)`` runs its tests here. Device "CPU"
is needle's ``cpu``; any other name is that of a needle device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_namespace import device as find_device
from ..autograd import Tensor
from ..errors import NeedleError
from ..graph import no_grad
from .importing import OnnxModel, convert
from .package import OnnxError, onnx_package


class NeedleRep:
    """A model that is ready to run."""

    def __init__(self, model: OnnxModel, device: Any) -> None:
        self.model, self.device = model, device

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """Return the outputs as NumPy arrays; inputs are given in order or by name."""
        given = [inputs[name] for name in self.model.inputs] if isinstance(inputs, dict) else inputs
        if any(isinstance(each, list) for each in given):
            raise OnnxError("onnx: inputs must be arrays, got a list; sequences are not supported")
        arrays = [np.asarray(each) for each in given]
        with no_grad():
            tensors = [Tensor(a, device=self.device, dtype=a.dtype) for a in arrays]
            result = self.model(*tensors)
        found = result if isinstance(result, tuple) else (result,)
        return tuple(each.numpy() for each in found)


class NeedleBackend:
    """The methods of ``onnx.backend.base.Backend``, without importing onnx."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **options: Any) -> bool:
        """Return True if ``prepare`` accepts the model."""
        try:
            cls.prepare(model, device)
        except NeedleError:
            return False
        return True

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> NeedleRep:
        """Return an ``onnx.ModelProto`` as a model that is ready to run."""
        place = find_device(device.lower())
        return NeedleRep(convert(model, place), place)

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
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
        place = find_device(device.lower())
        return NeedleRep(OnnxModel(model, place, check=False), place).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return True if the device is available."""
        try:
            return bool(find_device(device.lower()).enabled())
        except NeedleError:
            return False
