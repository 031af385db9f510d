"""Convert models to and from ONNX files, which requires 'needle[onnx]'.

``save`` and ``load`` work with files, ``export`` and ``convert`` with an ``onnx.ModelProto``. The
supported operators are the rows of ``exported_graph.EXPORTS`` (by op, filled by rules/) and of
``call.OPERATORS`` (by ONNX name, filled by operators/).
"""

from .exporting import export, save
from .importing import OnnxModel, convert, load

__all__ = ["OnnxModel", "convert", "export", "load", "save"]
