"""Models to and from ONNX files; needs the package onnx: pip install 'needle[onnx]'.

``save`` and ``load`` are for users; ``NeedleBackend`` implements onnx's own test interface. The
supported operators are the rows of ``exported_graph.EXPORTS`` (by op, filled by rules/) and of
``call.OPERATORS`` (by ONNX name, filled by operators/).
"""

from .backend import NeedleBackend
from .exporting import export, save
from .importing import OnnxModel, convert, load

__all__ = ["NeedleBackend", "OnnxModel", "convert", "export", "load", "save"]
