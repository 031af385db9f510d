"""Rules that turn ops into ONNX nodes, in the files of their families; importing registers them."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
