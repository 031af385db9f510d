"""Rules that convert ops to ONNX nodes, a file per family; importing a file registers its rules."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
