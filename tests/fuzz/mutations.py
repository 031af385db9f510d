"""Corrupt copies of bytes and of JSON values, each a function of its seed."""

import json
from typing import Any

import numpy as np

ODD = [None, True, "", "x", -1, 0, 2**31, 2**63, 10**400, 1e308, float("nan"), [], {}, [[]]]


def mutated(content: bytes, seed: int) -> bytes:
    """Return a corrupted copy: cut, or with bytes flipped, zeroed, filled, repeated or moved."""
    r = np.random.default_rng(seed)
    data = bytearray(content)
    kind = r.integers(8)
    # Half of the mutations hit the first or last 1500 bytes, where headers and footers are.
    where = r.integers(len(data), size=1 + r.integers(8))
    if r.integers(2):
        where = np.where(r.integers(2, size=len(where)), where % 1500, -1 - where % 1500)
    start = int(where[0]) % len(data)
    if kind == 0:
        return bytes(data[: r.integers(len(data))])
    if kind == 1:
        for place in where:
            data[place % len(data)] ^= 1 << r.integers(8)
    elif kind == 2:
        for place in where:
            data[place % len(data)] = r.choice([0, 1, 0x7F, 0x80, 0xFF])
    elif kind == 3:
        data[start : start + r.integers(1, 64)] = bytes(int(r.integers(1, 64)))
    elif kind == 4:
        number = int(r.choice([-1, 2**31, 2**40, 2**62, -(2**63), len(data), 8]))
        order = "little" if r.integers(2) else "big"
        start &= ~7
        data[start : start + 8] = number.to_bytes(8, order, signed=True)
    elif kind == 5:
        data[start:start] = data[: r.integers(1, 100)]
    elif kind == 6:
        data[start:start] = bytes([data[start]]) * int(10.0 ** r.uniform(1, 5))
    else:
        del data[start : start + r.integers(1, 100)]
    return bytes(data)


def mutated_json(content: bytes, seed: int) -> bytes:
    """Return a copy with corrupted bytes or, half of the time, a corrupted value."""
    if seed % 2:
        return mutated(content, seed)
    r = np.random.default_rng(seed)
    return json.dumps(_replaced(json.loads(content), r)).encode()


def _replaced(value: Any, r: np.random.Generator) -> Any:
    """Return ``value`` with one value in it replaced, removed or nested."""
    if not isinstance(value, (dict, list)) or not value or r.random() < 0.15:
        odd = ODD[r.integers(len(ODD))]
        return [value] * int(r.integers(1, 4)) if r.random() < 0.2 else odd
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[r.integers(len(keys))]
    made = value.copy()
    if r.random() < 0.1:
        del made[key]
    else:
        made[key] = _replaced(value[key], r)
    return made
