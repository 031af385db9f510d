"""The onnx package, asked for only when a model is read or written."""

from __future__ import annotations

from typing import Any

from ..errors import NeedleError

OPSET = 17
"""The version of ONNX's operators that is written; 13 and later are read."""
OLDEST = 13


class OnnxError(NeedleError, ValueError):
    """A model that cannot be put into, or taken from, ONNX's form; names the node."""


def onnx_package() -> Any:
    """The module, with its parts; ModuleNotFoundError names the extra to install."""
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
