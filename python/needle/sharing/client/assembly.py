"""Assembly of a batch from blocks in shared memory, by one native call where possible.

The native call gathers and augments. A loader's own transforms give the same results as in
DataLoader, since their random numbers depend on (seed, epoch, index) alone. session.py receives the
list of blocks of a batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...data.batching.collate import Slice, collate_slice, default_collate, stack
from ...data.samples import native_kernels
from ...data.samples.pytree import LEAF, first_field, with_first
from ...data.samples.ticket import Indices, Ticket
from ...data.samples.timing import Clock
from ...data.transforms.compile import Chain
from ...data.transforms.execute import Destination, Images
from ...data.workers.shared_memory import Memory
from ...errors import DataError
from ..wire.sample_layout import SampleLayout, read_layout


class Blocks(NamedTuple):
    """Where the samples of a batch are: int64 ``(n,)`` each; layout is -1 for a failed sample."""

    indices: Indices
    offsets: Indices
    layouts: Indices

    def only(self, chosen: npt.NDArray[np.bool_]) -> Blocks:
        """Return the chosen samples."""
        return Blocks(self.indices[chosen], self.offsets[chosen], self.layouts[chosen])


class Assembler:
    """An object that makes batches from blocks, with the loader's own transforms and collate.

    threads: threads of native kernels; 0 uses all cores, 1 the calling thread alone.
    """

    def __init__(
        self, chain: Chain, collate: Callable[[list[Any]], Any] | None, threads: int = 0
    ) -> None:
        self.chain, self.threads = chain, threads
        self.collate = default_collate if collate is None else collate
        self._memory: Memory | None = None
        self._layouts: dict[int, SampleLayout] = {}

    def attach(self, fd: int, size: int) -> None:
        """Map the server's shared memory, read-only."""
        memory = Memory.attach(fd, size, writable=False)
        if self._memory is not None:
            self._memory.close()
        self._memory = memory

    def detach(self) -> None:
        """Unmap the memory. Batches are copies, so they stay valid."""
        self._layouts.clear()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def learn(self, layouts: Any) -> None:
        """Add the layouts of a BATCH frame."""
        if not isinstance(layouts, dict):
            raise DataError(f"GlobalDataLoader: expected sample layouts, got {layouts!r:.60}")
        for number, values in layouts.items():
            self._layouts[int(number)] = read_layout(values)

    def batch(self, blocks: Blocks, seed: int, epoch: int, clock: Clock) -> Any:
        """Return the batch as NumPy arrays that own their memory; None if there are no samples."""
        if not len(blocks.indices):
            return None
        self._check(blocks)
        ticket = Ticket(0, seed, epoch, blocks.indices)
        numbers = set(blocks.layouts.tolist())
        layout = self._layouts[int(blocks.layouts[0])]
        views = self.collate is default_collate
        views = views and (not self.chain.parts or _first_is_leaf(layout))
        if views and len(numbers) == 1 and not layout.has_text:
            rows, off = np.divmod(blocks.offsets - blocks.offsets.min(), layout.nbytes)
            if not off.any():
                return self._from_rows(layout, int(blocks.offsets.min()), rows, ticket, clock)
        return self._from_samples(blocks, ticket, clock, views)

    def _from_rows(
        self, layout: SampleLayout, base: int, rows: Indices, ticket: Ticket, clock: Clock
    ) -> Any:
        """Make a batch of samples that have one layout and are rows of a strided array."""
        assert self._memory is not None
        columns, leaves = layout.columns(self._memory.buffer, base, int(rows.max()) + 1), []
        if self.chain.parts:
            with clock.measure("augment"):
                made = self.chain.run(
                    Images(columns[0], rows), ticket, Destination(threads=self.threads)
                )
                leaves = [stack(made, "array") if isinstance(made, list) else made]
        with clock.measure("collate"):
            rest = columns[len(leaves) :]
            leaves += [native_kernels.gather_rows(column, rows) for column in rest]
        return Slice(layout.structure, leaves, len(rows)).batch()

    def _from_samples(self, blocks: Blocks, ticket: Ticket, clock: Clock, views: bool) -> Any:
        """Make a batch from one sample at a time; ``views``: without copying from shared memory."""
        samples = []
        for number, leaves in zip(blocks.layouts.tolist(), self._leaves(blocks)):
            if not views:
                leaves = [_copied(x) if isinstance(x, np.ndarray) else x for x in leaves]
            samples.append(self._layouts[number].structure.rebuild(leaves))
        made = None
        if self.chain.parts:
            with clock.measure("augment"):
                first = [first_field(sample) for sample in samples]
                made = self.chain.run(Images(first), ticket, Destination(threads=self.threads))
                samples = [with_first(sample, value) for sample, value in zip(samples, made)]
        with clock.measure("collate"):
            if self.collate is default_collate:
                ready = made if views and isinstance(made, np.ndarray) else None
                return collate_slice(samples, ready=ready).batch()
            return self.collate(samples)

    def _leaves(self, blocks: Blocks) -> list[list[Any]]:
        assert self._memory is not None
        buffer = self._memory.buffer
        return [
            self._layouts[number].leaves(buffer, offset)
            for number, offset in zip(blocks.layouts.tolist(), blocks.offsets.tolist())
        ]

    def _check(self, blocks: Blocks) -> None:
        """Map the memory again if it has grown; raise DataError if a block is out of bounds."""
        assert self._memory is not None
        for number in set(blocks.layouts.tolist()):
            layout = self._layouts.get(number)
            offsets = blocks.offsets[blocks.layouts == number]
            end = int(offsets.max()) + (0 if layout is None else layout.nbytes)
            if end > self._memory.size:
                self.attach(os.dup(self._memory.fd), os.fstat(self._memory.fd).st_size)
            if layout is None or offsets.min() < 0 or end > self._memory.size:
                raise DataError("GlobalDataLoader: the server named a block that does not exist")


def _copied(view: npt.NDArray[Any]) -> Any:
    """Return a copy of an array in shared memory, or a scalar if it has no axes."""
    return view.copy() if view.ndim else view[()]


def _first_is_leaf(layout: SampleLayout) -> bool:
    """Return True if the first field of a sample, to which transforms apply, is one array."""
    if layout.tree == LEAF:
        return True
    container, _, children = layout.tree
    return container != "dict" and bool(children) and children[0] == LEAF
