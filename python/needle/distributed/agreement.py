"""Checks that all ranks agree on values such as the seed. Called by data_parallel and programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import DistributedError
from .communicator import Communicator


def gather(communicator: Communicator, value: Any) -> list[Any]:
    """Return the values of all ranks, by rank; a value must be serialisable as JSON."""
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    lengths = np.zeros(communicator.size, np.int64)
    lengths[communicator.rank] = len(text)
    communicator.all_reduce(lengths)
    table = np.zeros((communicator.size, int(lengths.max())), np.uint8)
    table[communicator.rank, : len(text)] = text
    communicator.all_reduce(table)
    return [json.loads(bytes(row[:length])) for row, length in zip(table, lengths)]


def require_same(communicator: Communicator, facts: Mapping[str, Any]) -> None:
    """Raise DistributedError on all ranks if a fact differs between ranks.

    facts: name -> a value that is serialisable as JSON. The error names the first fact that
    differs, its values, and the ranks.
    """
    found = gather(communicator, dict(facts))
    for name in sorted({name for each in found for name in each}):
        ranks: dict[str, list[int]] = {}
        for rank, each in enumerate(found):
            ranks.setdefault(json.dumps(each.get(name)), []).append(rank)
        if len(ranks) > 1:
            values = ", ".join(f"{value} on {_listed(own)}" for value, own in ranks.items())
            raise DistributedError(
                f"distributed: {name} must be the same on all ranks, got {values}; start all ranks "
                "with the same program, options and data"
            )


def _listed(ranks: list[int]) -> str:
    """Return "rank 3" or "ranks 0, 1", at most the first eight ranks."""
    shown = ", ".join(map(str, ranks[:8])) + (" ..." if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
