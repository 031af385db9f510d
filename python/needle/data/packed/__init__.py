"""Data sets in one file: Arrow IPC, written by ``pack`` and mapped by ``PackedDataset``.

Any Arrow library reads the columns; nothing but metadata is needle's own (columns.py).
"""

from .reading import PackedDataset
from .writing import pack

__all__ = ["PackedDataset", "pack"]
