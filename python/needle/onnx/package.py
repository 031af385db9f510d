"""The onnx package, imported only when a model is read or written."""

from __future__ import annotations

from typing import Any

from ..errors import NeedleError

OPSET = 17
"""The version of ONNX's operators that exports use."""
OLDEST = 13
"""The oldest version of ONNX's operators that can be imported."""


class OnnxError(NeedleError, ValueError):
    """A model that cannot be converted to or from ONNX; the message names the node."""


def onnx_package() -> Any:
    """Return the module onnx; ModuleNotFoundError names the extra to install."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise ModuleNotFoundError(
            "needle.onnx: ONNX files need the package onnx; pip install 'needle[onnx]'"
        ) from error
    return onnx
