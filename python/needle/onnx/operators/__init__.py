"""ONNX's operators, each a function of Tensors and a node's attributes.

Each file has a family of operators, which importing it registers. Missing optional inputs are None.
Sizes and axes that are inputs are read when the operator runs. If ONNX has changed an operator
since opset 11, its function supports all versions.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
