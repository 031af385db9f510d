"""Models to and from ONNX files. Needs the package onnx: pip install 'needle[onnx]'.

``save`` and ``load`` are for users; ``NeedleBackend`` answers onnx's own test interface. Which
operators there are: ``exporting.EXPORTS``, op by op, and ``call.OPERATORS``, by ONNX's names.
"""

from .backend import NeedleBackend
from .exporting import export, save
from .importing import OnnxModel, convert, load

__all__ = ["NeedleBackend", "OnnxModel", "convert", "export", "load", "save"]
