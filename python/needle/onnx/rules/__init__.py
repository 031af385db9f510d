"""How ops become ONNX nodes: one rule per op in the file of its family; importing registers them."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
