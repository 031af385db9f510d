"""From a list of blocks in shared memory to a batch: gathered and augmented by one native call.

What a loader does with its own transforms is what DataLoader does, with the same random numbers:
those of (seed, epoch, index). Which blocks make a batch, session.py hears.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import DataError
from ...batching.collate import collate_slice, default_collate, stack
from ...samples import native_kernels as native
from ...samples.pytree import LEAF, first_field, with_first
from ...samples.ticket import Ticket
from ...samples.timing import Clock
from ...transforms.compile import Chain
from ...workers.shared_memory import Memory
from ..wire.records import Record, read_record

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Blocks:
    """Samples of one batch: int64 ``(n,)`` each; record -1 for one that could not be read."""

    indices: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]

    def some(self, chosen: npt.NDArray[np.bool_]) -> Blocks:
        """Those chosen."""
        return Blocks(self.indices[chosen], self.offsets[chosen], self.records[chosen])


class Assembler:
    """Makes batches out of blocks, with the loader's own transforms and collate.

    seed: of the transforms. threads: for native kernels, 0 all, 1 the calling one.
    """

    def __init__(
        self, chain: Chain, collate: Callable[[list[Any]], Any] | None, seed: int, threads: int = 0
    ) -> None:
        self.chain, self.seed, self.threads = chain, seed, threads
        self.collate = default_collate if collate is None else collate
        self._memory: Memory | None = None
        self._records: dict[int, Record] = {}

    def attach(self, fd: int, size: int) -> None:
        """Maps the server's memory, to be read only."""
        self.detach()
        self._memory = Memory.attach(fd, size, writable=False)

    def detach(self) -> None:
        """Lets go of the memory; batches are copies and stay."""
        self._records.clear()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def learn(self, records: Any) -> None:
        """Notes how samples lie, as a frame tells it."""
        if not isinstance(records, dict):
            raise DataError(f"GlobalDataLoader: the server sent no records, got {records!r:.60}")
        for number, values in records.items():
            self._records[int(number)] = read_record(values)

    def batch(self, blocks: Blocks, epoch: int, clock: Clock) -> Any:
        """The batch, as NumPy arrays of its own; None for no samples."""
        if not len(blocks.indices):
            return None
        self._check(blocks)
        keys = Ticket(0, self.seed, epoch, blocks.indices)
        numbers = set(blocks.records.tolist())
        record = self._records[int(blocks.records[0])]
        if self.collate is default_collate and (not self.chain.parts or _first_is_leaf(record)):
            if len(numbers) == 1 and not record.has_text:
                return self._of_one_kind(record, blocks, keys, clock)
            if len({self._records[number].tree for number in numbers}) == 1:
                return self._of_many(record, blocks, keys, clock)
        return self._by_sample(blocks, keys, clock)

    def _of_one_kind(self, record: Record, blocks: Blocks, keys: Ticket, clock: Clock) -> Any:
        """Where the blocks lie at multiples of their size: rows of one array with gaps."""
        assert self._memory is not None
        base = int(blocks.offsets.min())
        rows, off = np.divmod(blocks.offsets - base, record.nbytes)
        if off.any():
            return self._of_many(record, blocks, keys, clock)
        columns = record.columns(self._memory.buffer, base, int(rows.max()) + 1)
        leaves: list[Any] = []
        if self.chain.parts:
            with clock.measure("augment"):
                made = self.chain.run(columns[0], rows, keys, None, self.threads)
                leaves.append(stack(made, "array") if isinstance(made, list) else made)
        with clock.measure("collate"):
            leaves += [native.gather_rows(column, rows) for column in columns[len(leaves) :]]
        return record.structure.rebuild(leaves)

    def _of_many(self, record: Record, blocks: Blocks, keys: Ticket, clock: Clock) -> Any:
        """Samples of several sizes, or with texts, each looked at where it lies."""
        columns = list(zip(*self._leaves(blocks)))
        leaves: list[Any] = []
        if self.chain.parts:
            with clock.measure("augment"):
                made = self.chain.run(list(columns[0]), None, keys, None, self.threads)
                leaves.append(stack(made, "array") if isinstance(made, list) else made)
        with clock.measure("collate"):
            leaves += [stack(list(each), _kind(each[0])) for each in columns[len(leaves) :]]
        return record.structure.rebuild(leaves)

    def _by_sample(self, blocks: Blocks, keys: Ticket, clock: Clock) -> Any:
        """Samples as they were, copied, for a user's collate or uncommon structures."""
        samples = []
        for number, found in zip(blocks.records.tolist(), self._leaves(blocks)):
            leaves = [leaf if _kind(leaf) == "text" else _own(leaf) for leaf in found]
            samples.append(self._records[number].structure.rebuild(leaves))
        if self.chain.parts:
            with clock.measure("augment"):
                first = [first_field(sample) for sample in samples]
                made = self.chain.run(first, None, keys, None, self.threads)
                samples = [with_first(sample, value) for sample, value in zip(samples, made)]
        with clock.measure("collate"):
            if self.collate is default_collate:
                return collate_slice(samples).batch()
            return self.collate(samples)

    def _leaves(self, blocks: Blocks) -> list[list[Any]]:
        assert self._memory is not None
        buffer = self._memory.buffer
        return [
            self._records[number].leaves(buffer, offset)
            for number, offset in zip(blocks.records.tolist(), blocks.offsets.tolist())
        ]

    def _check(self, blocks: Blocks) -> None:
        """DataError unless every block lies in the memory that is mapped."""
        assert self._memory is not None
        for number in set(blocks.records.tolist()):
            record = self._records.get(number)
            last = self._memory.size - (0 if record is None else record.nbytes)
            offsets = blocks.offsets[blocks.records == number]
            if record is None or offsets.min() < 0 or offsets.max() > last:
                raise DataError("GlobalDataLoader: the server names a block that is not there")


def _kind(leaf: Any) -> str:
    return "text" if isinstance(leaf, (str, bytes)) else "array"


def _own(view: Array) -> Any:
    """A copy of what lies in shared memory; a number where it is one."""
    return view.copy() if view.ndim else view[()]


def _first_is_leaf(record: Record) -> bool:
    """Whether what transforms are for is the first array of a sample."""
    tree = record.tree
    if tree == LEAF:
        return True
    container, _, children = tree
    return container != "dict" and bool(children) and children[0] == LEAF
