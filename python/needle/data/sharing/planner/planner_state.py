"""Where a task is in its epoch, as JSON can hold it: a bit for each index of its set, packed.

Comes back from clients, so every field is checked when it is read.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....errors import DataError
from .members import Indices


def pack(epoch: int, left: Indices, own: Indices) -> dict[str, Any]:
    """The state of a task that has ``left`` of its rising set ``own``; about len(own) / 6 bytes."""
    among = np.zeros(len(own), bool)
    among[np.searchsorted(own, left)] = True
    bits = np.packbits(among)
    return {
        "epoch": epoch,
        "size": len(own),
        "set": zlib.crc32(own.astype("<i8").tobytes()),
        "remaining": base64.b64encode(zlib.compress(bits.tobytes(), 1)).decode(),
    }


def unpack(state: Mapping[str, Any], own: Indices) -> tuple[int, Indices]:
    """Epoch and what is left of it; DataError for a state of another set or a broken one."""
    epoch = state.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 0:
        raise DataError(f"Planner.join: a state's epoch must be a count, got {epoch!r}")
    if (state.get("size"), state.get("set")) != (len(own), zlib.crc32(own.astype("<i8").tobytes())):
        raise DataError(
            f"Planner.join: the state belongs to another index set, of {state.get('size')!r} "
            f"indices; this one has {len(own)}. Resume with the set it was made for"
        )
    length = (len(own) + 7) // 8
    try:
        packed = base64.b64decode(state.get("remaining", ""), validate=True)
        inflate = zlib.decompressobj()
        bits = np.frombuffer(inflate.decompress(packed, length + 1), np.uint8)
    except (TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise DataError(f"Planner.join: the state's indices cannot be read: {error}") from None
    if len(bits) != length or not inflate.eof:
        raise DataError(
            f"Planner.join: the state has {len(bits)} bytes of indices where {length} belong"
        )
    return epoch, own[np.unpackbits(bits, count=len(own)).view(bool)]
