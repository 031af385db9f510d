"""ONNX's operators, each a function of Tensors and a node's attributes.

Each file has a family of operators; importing it registers them. Missing optional inputs are None.
Sizes and axes that are inputs are read when the operator runs. If ONNX changed an operator after
opset 11, its function accepts all versions.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
