"""Sets of indices as they travel and as a state keeps them: runs, or a bit for each index.

Both forms are checked against the data set's length when they are read.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import DataError

Indices = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]

MOST_RUNS = 4096
"""A set of more runs [start, stop) travels as bits."""


def write_indices(indices: Indices) -> tuple[dict[str, Any], bytes]:
    """A rising set as the values and raw bytes of a frame."""
    cuts = np.flatnonzero(np.diff(indices) != 1) + 1
    if len(cuts) < MOST_RUNS:
        starts = indices[np.concatenate(([0], cuts))] if len(indices) else indices
        ends = indices[np.concatenate((cuts - 1, [-1]))] + 1 if len(indices) else indices
        return {"runs": np.stack((starts, ends), 1).tolist()}, b""
    marks = np.zeros(int(indices[-1]) + 1, bool)
    marks[indices] = True
    return {"bits": len(marks)}, np.packbits(marks).tobytes()


def read_indices(values: dict[str, Any], raw: bytes, length: int) -> Indices:
    """Undoes ``write_indices``; DataError for a set that is empty or not within ``length``."""
    runs = values.get("runs")
    if runs is None:
        marks = read_marks(raw, _bit_count(values, length))
        found: Indices = np.flatnonzero(marks).astype(np.int64)
    else:
        found = _expanded(runs, length)
    if not len(found):
        raise DataError("server: a task's index set must not be empty; give it one index")
    return found


def read_marks(raw: bytes, count: int) -> Marks:
    """``count`` bits; all of them 0 where there are no bytes at all."""
    if not raw:
        return np.zeros(count, bool)
    if len(raw) != -(-count // 8):
        raise DataError(f"server: {count} bits need {-(-count // 8)} bytes, got {len(raw)}")
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=count).astype(bool)


def text_of_marks(marks: Marks) -> str:
    """Bits as text for a JSON state; few letters where most are alike."""
    return base64.b64encode(zlib.compress(np.packbits(marks).tobytes(), 6)).decode()


def marks_of_text(text: Any, count: int) -> Marks:
    """Undoes ``text_of_marks``; DataError for anything else."""
    size = -(-count // 8)
    try:
        data = base64.b64decode(text, validate=True)
        raw = zlib.decompressobj().decompress(data, size + 1)
    except (TypeError, ValueError, binascii.Error, zlib.error):
        raw = b""
    if len(raw) != size:
        raise DataError(
            f"GlobalDataLoader.load_state_dict: done must be the bits of {count} samples, got "
            f"{text!r:.40}; give what state_dict() returned"
        )
    return read_marks(raw, count)


def _bit_count(values: dict[str, Any], length: int) -> int:
    count = values.get("bits")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= length:
        raise DataError(
            f"server: an index set has runs, or bits for at most {length} samples, got {count!r}"
        )
    return count


def _expanded(runs: Any, length: int) -> Indices:
    good = isinstance(runs, list) and len(runs) <= MOST_RUNS
    pairs: list[tuple[int, int]] = []
    for run in runs if good else ():
        good = good and isinstance(run, list) and len(run) == 2
        good = good and all(isinstance(x, int) and not isinstance(x, bool) for x in run)
        good = good and (pairs[-1][1] if pairs else 0) <= run[0] < run[1] <= length
        if not good:
            break
        pairs.append((run[0], run[1]))
    if not good:
        raise DataError(
            f"server: runs must be at most {MOST_RUNS} rising [start, stop) pairs within "
            f"[0, {length}), got {runs!r:.80}"
        )
    return np.concatenate(
        [np.arange(*pair, dtype=np.int64) for pair in pairs] or [np.zeros(0, np.int64)]
    )
