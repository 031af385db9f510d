"""The onnx package, imported only when a model is read or written, and the error of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import NeedleError

OPSET = 17
"""The version of ONNX's operators that exports use."""
OLDEST = 7
"""The oldest version of ONNX's operators that can be imported."""
NEWEST = 28
"""The newest version whose changes are known; later ones may give an attribute a meaning."""


class OnnxError(NeedleError, ValueError):
    """A model that cannot be converted to or from ONNX; the message names the file and the node."""


@contextmanager
def blamed(place: str) -> Iterator[None]:
    """Context manager: any error inside becomes an OnnxError whose message starts with ``place``.

    A file is untrusted, so every exception that its contents cause is of this one class.
    """
    try:
        yield
    except OnnxError as error:
        raise OnnxError(f"{place}: {error}") from error.__cause__
    except (Exception, RecursionError) as error:
        why = str(error) or type(error).__name__
        raise OnnxError(f"{place}: {why}") from error


def onnx_package() -> Any:
    """Return the module onnx; ModuleNotFoundError names the extra to install."""
    try:
        import onnx
        import onnx.checker
        import onnx.defs
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise ModuleNotFoundError(
            "needle.onnx: ONNX files need the package onnx; pip install 'needle[onnx]'"
        ) from error
    return onnx
