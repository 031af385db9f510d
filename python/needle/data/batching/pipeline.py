# Trail 29 of 30: Pipeline.prepare: fetch, transform and collate a slice of a batch.
# Next: python/needle/data/loader/dataloader.py
"""The pipeline of a slice of a batch: fetch, transform, collate; the same in every engine.

``Pipeline`` is a picklable value. Engines call ``prepare`` with a ticket and the arrays to write
to, in whatever thread or process they choose, and join the slices (``pytree.concatenate``).
fetch.py reads sample by sample and from streams; transforms/compile.py runs the transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from ..datasets.dataset import Dataset, fetch_of, in_memory_of, sample_spec_of
from ..datasets.decode_size import decode_sizes, decoded_at
from ..samples.native_kernels import gather_rows
from ..samples.pytree import LEAF, Structure, first_field, flatten, with_first
from ..samples.pytree import Field as Field
from ..samples.pytree import Slice as Slice
from ..samples.random_source import LOADER_STREAM
from ..samples.ticket import NO_SAMPLE, Ticket, check_indices, highest
from ..samples.timing import Clock
from ..transforms.base import decode_size, row_fields
from ..transforms.compile import Chain, placed, spec_of
from ..transforms.execute import PlacedTransform
from .collate import collate_slice, default_collate, place, stack
from .fetch import Progress, Reader, Samples
from .gathering import Gathering

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Out = Sequence[Array | None] | None


class Pipeline:
    """Turns samples of ``dataset`` into a batch or part of one.

    transforms: a Compose or sequence for the first field of each sample, or for a sample that is
    not a tuple or list; they draw from streams beyond those of the dataset's transforms. collate: a
    function from a list of samples to a batch; with None or ``default_collate`` a batch may be made
    in slices. augment:
    "worker" runs the transforms in ``prepare``, "main" and "device" leave them to ``finish`` on
    ``device``. on_error: "skip" leaves out and counts samples whose reading raises DataError.
    uneven: a first field whose shapes differ stays a list of arrays.
    """

    def __init__(
        self,
        dataset: Any,
        transforms: Any = None,
        collate: Callable[[list[Any]], Any] | None = None,
        *,
        augment: str = "worker",
        on_error: str = "raise",
        device: str = "cpu",
        uneven: bool = False,
    ) -> None:
        after = placed(transforms, LOADER_STREAM)
        dataset = decoded_at(dataset, decode_size(part.transform for part in after))
        self.dataset = dataset
        self.collate = default_collate if collate is None else collate
        self.augment, self.skip = augment, on_error == "skip"
        self.uneven = uneven or augment != "worker"
        self.device = device if augment == "device" else "cpu"
        here = after if augment == "worker" else ()
        self.chain, self.later = Chain(here), Chain(() if here else after)
        self.memory_chain = Chain((*_row_parts(dataset), *here))
        self.reader = Reader(dataset, self.skip)

    @property
    def splits(self) -> bool:
        """True if a batch may be made in slices: of a map dataset, with the default collate."""
        return self.collate is default_collate and not self.stream

    @property
    def stream(self) -> bool:
        """True if the dataset is a stream, whose tickets name a shard instead of indices."""
        return self.reader.is_stream

    def layout(self) -> list[Field] | None:
        """Return the array leaves of a slice, or None if they are unknown before one is read."""
        if not self.splits:
            return None
        arrays = in_memory_of(self.dataset)
        if arrays is not None:
            fields = row_fields(arrays, self.memory_chain.transforms)
        else:
            declared = sample_spec_of(self.dataset)
            fields = None if declared is None else self._after_transforms(declared)
        if fields is None or any(each.dtype.hasobject for each in fields):
            return None
        return [*fields, Field((), np.dtype(np.int64))] if self._notes_indices else fields

    def row_bytes(self) -> int | None:
        """Return the bytes of a sample that kernels alone make from arrays in memory, else None."""
        arrays, fields = in_memory_of(self.dataset), self.layout()
        chain = self.memory_chain
        if arrays is None or fields is None:
            return None
        if chain.parts and not chain.plan(spec_of(arrays[0])).is_one_call():
            return None
        return sum(field.dtype.itemsize * prod(field.row_shape) for field in fields)

    def explain(self) -> str:
        """Return a text on where the transforms run, which are native, and why others are not."""
        chain, spec = self.chain, None
        arrays = in_memory_of(self.dataset) if self.splits else None
        if arrays is not None:
            chain, spec = self.memory_chain, spec_of(arrays[0])
        elif not self.stream and len(self.dataset):
            one = Ticket(0, 0, 0, np.zeros(1, np.int64))
            read = [each for group in self.reader.read(one, Clock()) for each in group.samples]
            spec = spec_of([first_field(each) for each in read])
        lines = [f"in the {'workers' if self.augment == 'worker' else 'workers, reading only'}:"]
        lines.append(chain.plan(spec).explain())
        if self.later.parts:
            known = spec if not chain.parts else chain.plan(spec).output
            lines.append(f"in the main process, for {self.device}:")
            lines.append(self.later.plan(known).explain(self.device))
        for height, width in sorted(decode_sizes(self.dataset)):
            lines.append(
                f"JPEGs are decoded at half their size or less where {height} x {width} are left"
            )
        return "\n".join(lines)

    def prepare(
        self,
        ticket: Ticket,
        clock: Clock | None = None,
        out: Out = None,
        threads: int = 0,
        progress: Progress | None = None,
        first: int = 0,
    ) -> Slice:
        """Return the samples of the ticket, prepared.

        out: for each array leaf the rows to write to; a leaf of another shape or dtype is returned
        as an array of its own. threads: for native kernels, 0 for all, 1 for the calling one.
        progress: called with the index of a sample before it is read, once with ``NO_SAMPLE`` where
        samples are read together. first: the ticket's first row in its batch, for error messages.
        An error of one sample carries its index (``pytree.tagged_sample``).
        """
        clock = Clock() if clock is None else clock
        with clock.active():
            if self.splits:
                for together in (self._from_memory, self._from_fetch):
                    part = together(ticket, clock, out, threads, progress, first)
                    if part is not None:
                        return self._with_indices(part, ticket.indices, out)
            return self._sample_by_sample(ticket, clock, out, threads, progress, first)

    def finish(
        self, batch: Any, ticket: Ticket, clock: Clock | None = None, stays: bool = False
    ) -> Any:
        """Return the whole batch after the transforms that ``prepare`` has left, as NumPy arrays.

        batch: the slices of the ticket put together; None, for no samples, stays None. stays: the
        images may be left on the device that transformed them.
        """
        if batch is None or self.augment == "worker":
            return batch
        if self._notes_indices:
            batch, indices = batch
            ticket = ticket.of(indices)
        if not self.later.parts:
            return batch
        with (clock or Clock()).measure("augment"):
            images = first_field(batch)
            made = self.later.on_device(images, ticket, self.device) if stays else None
            if made is None:
                made = self.later.run(images, None, ticket, None, 0, self.device)
            if isinstance(made, list):
                made = stack(made, "array")
        return with_first(batch, made)

    @property
    def _notes_indices(self) -> bool:
        """True if a slice carries the indices of its samples, since some may have been skipped."""
        return self.augment != "worker" and (self.skip or self.stream)

    def _after_transforms(self, declared: list[Field]) -> list[Field] | None:
        if not self.chain.parts or not declared:
            return declared
        first = row_fields([declared[0].of(0)], self.chain.transforms)
        return None if first is None else [*first, *declared[1:]]

    def _from_memory(
        self,
        ticket: Ticket,
        clock: Clock,
        out: Out,
        threads: int,
        progress: Progress | None,
        first: int,
    ) -> Slice | None:
        """Gather and transform rows of whole arrays in one call; None if there are none."""
        arrays = in_memory_of(self.dataset)
        if arrays is None or (ticket.seed is None and self.memory_chain.draws):
            return None
        if progress is not None and len(ticket.indices):
            progress(NO_SAMPLE)
        try:
            where = self.dataset.rows(self._checked(ticket))
        except DataError:
            if self.skip:
                return None  # one by one, to find the unreadable one
            raise
        leaves: list[Any] = []
        if self.memory_chain.parts:
            with clock.measure("augment"):
                leaves += [self.memory_chain.run(arrays[0], where, ticket, _row(out, 0), threads)]
        with clock.measure("read"):
            for i, array in enumerate(arrays[len(leaves) :], len(leaves)):
                leaves.append(gather_rows(array, where, _fitting(array, len(where), _row(out, i))))
        if isinstance(leaves[0], list):
            return collate_slice(list(zip(*leaves)), out, first)
        structure = _rows_structure(len(leaves))
        placed_in = tuple(leaf is _row(out, i) for i, leaf in enumerate(leaves))
        return Slice(structure, leaves, len(where), placed_in)

    def _checked(self, ticket: Ticket) -> Integers:
        """Return the ticket's indices, checked; an error belongs to the batch that contains it."""
        run, length = ticket.run, len(self.dataset)
        if run is not None and run.once("highest", lambda: highest(run.indices)) < length:
            return ticket.indices
        return check_indices("DataLoader", ticket.indices, length)

    def _from_fetch(
        self,
        ticket: Ticket,
        clock: Clock,
        out: Out,
        threads: int,
        progress: Progress | None,
        first: int,
    ) -> Slice | None:
        """Have the dataset fetch all samples at once, then transform them; None if it cannot."""
        fetch = fetch_of(self.dataset)
        if fetch is None or (ticket.seed is None and self.chain.draws):
            return None
        if progress is not None and len(ticket.indices):
            progress(NO_SAMPLE)
        try:
            with clock.measure("read"):
                batch = fetch(ticket.indices)
        except DataError:
            if self.skip:
                return None  # one by one, to find the unreadable one
            raise
        images = first_field(batch)
        uneven = _are_uneven(images)
        if batch is None or (
            self.chain.parts and not isinstance(images, np.ndarray) and not uneven
        ):
            return None
        if uneven and not self.chain.parts:
            return None
        if self.chain.parts:
            with clock.measure("augment"):
                made = self.chain.run(images, None, ticket, _row(out, 0), threads)
                made = stack(made, "array") if isinstance(made, list) else made
            batch = with_first(batch, made)
        return _as_slice(batch, len(ticket.indices), out)

    def _sample_by_sample(
        self,
        ticket: Ticket,
        clock: Clock,
        out: Out,
        threads: int,
        progress: Progress | None,
        first: int,
    ) -> Slice:
        mixed = ticket.seed is None and self.chain.draws  # draws come in the course's order
        between = self._transformed if mixed else None
        found = Samples()
        rows = _row(out, 0) if self.collate is default_collate else None
        images = Gathering(ticket.samples, rows)
        for group in self.reader.read(ticket, clock, progress, between):
            if self.chain.parts and group.samples and not mixed:
                keyed = ticket.of(group.indices)
                with clock.measure("augment"):
                    fields = [first_field(sample) for sample in group.samples]
                    made = self.chain.run(fields, None, keyed, images.room(len(fields)), threads)
                    images.add(made)
                    group.samples = [with_first(s, x) for s, x in zip(group.samples, made)]
            found.extend(group)
        if not found.samples:
            return Slice(None, [], 0, skipped=found.skipped)
        if out is not None:
            out = [None if each is None else each[: len(found.samples)] for each in out]
        return self._collated(found, images, first, clock, out)

    def _transformed(self, sample: Any) -> Any:
        """Apply the transforms to one sample; they draw in the order that the course expects."""
        field = first_field(sample)
        for part in self.chain.parts:
            field = part.transform(field)
        return with_first(sample, field)

    def _collated(
        self,
        found: Samples,
        images: Gathering,
        first: int,
        clock: Clock,
        out: Out,
    ) -> Slice:
        with clock.measure("collate"):
            if self.collate is default_collate:
                ragged = 0 if self.uneven else None
                ready = images.array()
                if out is not None and images.in_place:
                    out = [ready, *out[1:]]
                part = collate_slice(found.samples, out, first, ragged, ready)
            else:
                part = _as_slice(self.collate(found.samples), len(found.samples), out)
        part.skipped = found.skipped
        return self._with_indices(part, found.indices, out)

    def _with_indices(self, part: Slice, indices: Integers, out: Out) -> Slice:
        if not self._notes_indices or part.structure is None:
            return part
        inner = part.structure
        rows = _row(out, len(part.leaves))
        column = indices if rows is None else place(indices, rows)
        structure = Structure(("tuple", None, (inner.tree, LEAF)), (*inner.kinds, "array"))
        in_place = (*part.placed, column is rows)
        return Slice(structure, [*part.leaves, column], part.samples, in_place, part.skipped)


def _row_parts(dataset: Any) -> tuple[PlacedTransform, ...]:
    """Return the transforms of a row in memory; conversions around the own ones draw nothing."""
    if not isinstance(dataset, Dataset):
        return ()
    before, own, after = dataset.row_transforms()
    return (
        *(PlacedTransform(each, 0) for each in before),
        *placed(own),
        *(PlacedTransform(each, 0) for each in after),
    )


def _are_uneven(images: Any) -> bool:
    """Return True for a list of images, which only transforms can make a batch of."""
    return isinstance(images, list) and all(isinstance(image, np.ndarray) for image in images)


@lru_cache(maxsize=8)
def _rows_structure(leaves: int) -> Structure:
    return Structure(("tuple", None, (LEAF,) * leaves), ("array",) * leaves)


def _row(out: Out, leaf: int) -> Array | None:
    return None if out is None or leaf >= len(out) else out[leaf]


def _fitting(array: Array, count: int, out: Array | None) -> Array | None:
    if out is None or out.shape != (count, *array.shape[1:]) or out.dtype != array.dtype:
        return None
    return out


def _as_slice(batch: Any, samples: int, out: Out) -> Slice:
    """Return a finished batch as a Slice, its arrays copied to ``out`` if they fit."""
    structure, leaves = flatten(batch)
    in_place = []
    for i, leaf in enumerate(leaves):
        rows = _row(out, i)
        if rows is not None and isinstance(leaf, np.ndarray) and leaf is not rows:
            leaves[i] = place(leaf, rows)
        in_place.append(rows is not None and leaves[i] is rows)
    return Slice(structure, leaves, samples, tuple(in_place))
