"""The onnx package, imported only when a model is read or written, and OnnxError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import NeedleError

OPSET = 17
"""Opset version of exported files."""
OLDEST = 7
"""Oldest opset version that can be imported."""
NEWEST = 28
"""Newest opset version that needle knows; later ones may change what attributes mean."""


class OnnxError(NeedleError, ValueError):
    """An error for a model that cannot be converted; the message names the file and the node."""


@contextmanager
def blamed(place: str) -> Iterator[None]:
    """Convert any error in the context to an OnnxError whose message starts with ``place``.

    A file is untrusted, so every exception that its contents cause becomes an OnnxError.
    """
    try:
        yield
    except OnnxError as error:
        raise OnnxError(f"{place}: {error}") from error.__cause__
    except (Exception, RecursionError) as error:
        why = str(error) or type(error).__name__
        raise OnnxError(f"{place}: {why}") from error


def onnx_package() -> Any:
    """Return the module onnx; raise ModuleNotFoundError, which names the extra to install."""
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
