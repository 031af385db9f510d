"""ONNX's operators, one function each: from Tensors and a node's attributes to Tensors.

A file is a family; importing it registers its functions. Absent optional inputs are None. Sizes and
axes that are inputs are read when the operator runs. Where ONNX changed an operator between opset
11 and now, its function takes every form.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
