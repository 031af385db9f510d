# Trail 29 of 30: Pipeline.prepare: fetch, transform and collate a slice of a batch.
# Next: python/needle/data/loader/dataloader.py
"""The pipeline that prepares a slice of a batch: fetch, transform, collate. All engines run it.

``Pipeline`` is a picklable value. Engines call ``prepare`` in any thread or process, with a ticket
and a ``Work`` that holds the arrays to write to, and join the slices (``collate.concatenate``).
fetch.py reads single samples and streams; transforms/compile.py runs the transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import DataError
from ..datasets.dataset import Dataset, fetch_of, in_memory_of, sample_spec_of
from ..datasets.decode_size import decode_notes, decoded_for, needed_by
from ..samples.native_kernels import Array, gather_rows
from ..samples.pytree import LEAF, Field, Structure, first_field, flatten, with_first
from ..samples.random_source import LOADER_STREAM, PART_STREAM, reseed_globals
from ..samples.ticket import NO_SAMPLE, Indices, Ticket, check_indices, highest
from ..samples.timing import Clock
from ..transforms.base import row_fields
from ..transforms.compile import Chain, placed, spec_of
from ..transforms.execute import Destination, Images, PlacedTransform, fitting
from .collate import Slice, collate_slice, default_collate, place, stack
from .fetch import Progress, Reader, Samples, may_draw
from .gathering import Gathering


@dataclass
class Work:
    """The options with which a ticket is prepared.

    clock: measures the seconds of each stage. out: for each array leaf the rows to write to; a leaf
    with another shape or dtype is returned as a new array. threads: the number of threads of native
    kernels, 0 for the whole pool and 1 for the calling thread. progress: called with the index of
    each sample before it is read, or once with ``NO_SAMPLE`` if all samples are read together.
    """

    clock: Clock = field(default_factory=Clock)
    out: Sequence[Array | None] | None = None
    threads: int = 0
    progress: Progress | None = None

    def rows(self, leaf: int) -> Array | None:
        """Return the rows to which a leaf is written, or None if there are none."""
        return None if self.out is None or leaf >= len(self.out) else self.out[leaf]

    def first_leaf(self) -> Destination:
        """Return where transforms write their images."""
        return Destination(self.rows(0), self.threads)

    def begins_together(self, count: int) -> None:
        """Report that ``count`` samples are about to be read together."""
        if self.progress is not None and count:
            self.progress(NO_SAMPLE)


class Pipeline:
    """An object that turns samples of ``dataset`` into a batch or part of one.

    transforms: a Compose or sequence that is applied to the first field of each sample, or to a
    sample that is not a tuple or list; it draws from the random streams after those of the
    dataset's transforms. collate: a function from a list of samples to a batch; with None or
    ``default_collate`` a batch may be prepared in slices. augment: "worker" runs the transforms in
    ``prepare``; "main" and "device" leave them to ``finish``, which runs them on ``device``.
    on_error: "skip" skips and counts samples that raise DataError when read. uneven: keep the first
    field as a list of arrays if its shapes differ.
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
        dataset = decoded_for(dataset, needed_by(after, augment == "worker"))
        self.dataset = dataset
        self.collate = default_collate if collate is None else collate
        self.augment, self.skip = augment, on_error == "skip"
        self.uneven = uneven or augment != "worker"
        self.device = device if augment == "device" else "cpu"
        here = after if augment == "worker" else ()
        self.chain, self.later = Chain(here), Chain(() if here else after)
        self.memory_chain = Chain((*_row_parts(dataset), *here))
        self.reader = Reader(dataset, self.skip)

    def with_plans_of(self, before: Pipeline) -> Pipeline:
        """Return this pipeline, with the plans of ``before`` for equal built-in transforms.

        The latest iterator of a stream is remembered too, since the next epoch may get it again.
        """
        for name in ("chain", "later", "memory_chain"):
            mine, known = getattr(self, name), getattr(before, name)
            own = not any(map(may_draw, mine.transforms))
            if own and mine.parts == known.parts:
                setattr(self, name, known)
        self.reader.restarts = before.reader.restarts
        return self

    @property
    def splits(self) -> bool:
        """True if a batch may be prepared in slices: a map dataset with the default collate."""
        return self.collate is default_collate and not self.stream

    @property
    def stream(self) -> bool:
        """True if the dataset is a stream; its tickets name a shard instead of indices."""
        return self.reader.is_stream

    def layout(self) -> list[Field] | None:
        """Return the array leaves of a slice, or None if a slice must be read to know them."""
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
        return fields

    def row_bytes(self) -> int | None:
        """Return a sample's bytes if only kernels prepare it from arrays in memory, else None."""
        arrays, fields = in_memory_of(self.dataset), self.layout()
        chain = self.memory_chain
        if arrays is None or fields is None:
            return None
        if chain.parts and not chain.plan(spec_of(arrays[0])).is_one_call():
            return None
        return sum(each.row_bytes for each in fields)

    def explain(self) -> str:
        """Describe where transforms run, which of them are native, and why others are not."""
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
        lines += decode_notes(self.dataset)
        return "\n".join(lines)

    def prepare(self, ticket: Ticket, work: Work | None = None) -> Slice:
        """Return the prepared samples of the ticket.

        An error is tagged with the index of the sample that raised it (``pytree.tagged_sample``).
        """
        work = Work() if work is None else work
        with work.clock.active():
            if self.splits:
                for together in (self._from_memory, self._from_fetch):
                    part = together(ticket, work)
                    if part is not None:
                        return self._with_indices(part, ticket.indices)
            return self._sample_by_sample(ticket, work)

    def finish(
        self, made: Slice, ticket: Ticket, clock: Clock | None = None, stays: bool = False
    ) -> Any:
        """Return the whole batch as NumPy arrays, after transforms that ``prepare`` has not run.

        made: the joined slices of the ticket; the batch of no samples is None. stays: the images
        may stay on the device that transformed them.
        """
        batch = made.batch()
        if batch is None or not self.later.parts:
            return batch
        if made.indices is not None:
            ticket = ticket.of(made.indices)
        with (clock or Clock()).measure("augment"):
            images = first_field(batch)
            done = self.later.on_device(images, ticket, self.device) if stays else None
            if done is None:
                done = self.later.run(Images(images), ticket, Destination(device=self.device))
            if isinstance(done, list):
                done = stack(done, "array")
        return with_first(batch, done)

    @property
    def _ragged(self) -> int | None:
        """The index of the leaf that stays a list if its shapes differ."""
        return 0 if self.uneven else None

    @property
    def _notes_indices(self) -> bool:
        """True if a slice must record its samples' indices, since some may have been skipped."""
        return self.augment != "worker" and (self.skip or self.stream)

    def _after_transforms(self, declared: list[Field]) -> list[Field] | None:
        if not self.chain.parts or not declared:
            return declared
        first = row_fields([declared[0].of(0)], self.chain.transforms)
        return None if first is None else [*first, *declared[1:]]

    def _from_memory(self, ticket: Ticket, work: Work) -> Slice | None:
        """Gather and transform rows of in-memory arrays in one call; None if there are none."""
        arrays, chain = in_memory_of(self.dataset), self.memory_chain
        if arrays is None or (ticket.seed is None and chain.draws):
            return None
        work.begins_together(len(ticket.indices))
        try:
            where = self.dataset.rows(self._checked(ticket))
        except DataError:
            if self.skip:
                return None  # reads one by one, to find the unreadable sample
            raise
        leaves: list[Any] = []
        if chain.parts:
            with work.clock.measure("augment"):
                leaves += [chain.run(Images(arrays[0], where), ticket, work.first_leaf())]
        with work.clock.measure("read"):
            for i, array in enumerate(arrays[len(leaves) :], len(leaves)):
                out = fitting(work.rows(i), (len(where), *array.shape[1:]), array.dtype)
                leaves.append(gather_rows(array, where, out))
        if isinstance(leaves[0], list):
            return collate_slice(list(zip(*leaves)), work.out, self._ragged)
        in_place = tuple(leaf is work.rows(i) for i, leaf in enumerate(leaves))
        return Slice(_rows_structure(len(leaves)), leaves, len(where), in_place)

    def _checked(self, ticket: Ticket) -> Indices:
        """Return the ticket's indices; an IndexError for a bad index affects this batch only."""
        run, length = ticket.run, len(self.dataset)
        if run is not None and run.once("highest", lambda: highest(run.indices)) < length:
            return ticket.indices
        return check_indices("DataLoader", ticket.indices, length)

    def _from_fetch(self, ticket: Ticket, work: Work) -> Slice | None:
        """Fetch all samples with one call to the dataset and transform them, or return None."""
        fetch = fetch_of(self.dataset)
        if fetch is None or (ticket.seed is None and self.chain.draws):
            return None
        work.begins_together(len(ticket.indices))
        if self.reader.may_draw:
            _reseed_for(ticket)
        try:
            with work.clock.measure("read"):
                batch = fetch(ticket.indices)
        except DataError:
            if self.skip:
                return None  # reads one by one, to find the unreadable sample
            raise
        images = first_field(batch)
        uneven, chain = _are_uneven(images), self.chain
        if batch is None or (uneven and not chain.parts):
            return None
        if chain.parts:
            if not (uneven or isinstance(images, np.ndarray)):
                return None
            with work.clock.measure("augment"):
                made = chain.run(Images(images), ticket, work.first_leaf())
            if isinstance(made, list):
                return None
            batch = with_first(batch, made)
        return _as_slice(batch, len(ticket.indices), work)

    def _sample_by_sample(self, ticket: Ticket, work: Work) -> Slice:
        # interleaves reading and transforming, so that draws come in the order of the course
        mixed = ticket.seed is None and self.chain.draws
        between = self._transformed if mixed else None
        found = Samples()
        rows = work.rows(0) if self.collate is default_collate else None
        images = Gathering(ticket.samples, rows)
        for group in self.reader.read(ticket, work.clock, work.progress, between):
            if self.chain.parts and not mixed:
                self._transform(group, ticket.of(np.array(group.indices)), images, work)
            found.samples += group.samples
            found.indices += group.indices
        if not found.samples:
            return Slice()
        if work.out is not None:
            out = [None if each is None else each[: len(found.samples)] for each in work.out]
            work = replace(work, out=out)
        return self._collated(ticket, found, images, work)

    def _transform(self, group: Samples, ticket: Ticket, images: Gathering, work: Work) -> None:
        with work.clock.measure("augment"):
            fields = [first_field(sample) for sample in group.samples]
            into = Destination(images.room(len(fields)), work.threads)
            made = self.chain.run(Images(fields), ticket, into)
            images.add(made, into.out)
            group.samples = [with_first(s, x) for s, x in zip(group.samples, made)]

    def _transformed(self, sample: Any) -> Any:
        """Apply the transforms to one sample, in the order of draws that the course expects."""
        field = first_field(sample)
        for part in self.chain.parts:
            field = part.transform(field)
        return with_first(sample, field)

    def _collated(self, ticket: Ticket, found: Samples, images: Gathering, work: Work) -> Slice:
        with work.clock.measure("collate"):
            if self.collate is default_collate:
                ready, out = images.array(), work.out
                if out is not None and images.in_place:
                    out = [ready, *out[1:]]
                part = collate_slice(found.samples, out, self._ragged, ready)
            else:
                _reseed_for(ticket)
                part = _as_slice(self.collate(found.samples), len(found.samples), work)
        return self._with_indices(part, np.array(found.indices))

    def _with_indices(self, part: Slice, indices: Indices) -> Slice:
        if self._notes_indices:
            part.indices = indices
        return part


def _reseed_for(ticket: Ticket) -> None:
    """Seed the global generators for user code that handles several samples at once."""
    if ticket.seed is not None:
        reseed_globals(ticket.seed, ticket.epoch, ticket.first, PART_STREAM)


def _row_parts(dataset: Any) -> tuple[PlacedTransform, ...]:
    """Return the transforms of an in-memory row; the conversions around them draw nothing."""
    if not isinstance(dataset, Dataset):
        return ()
    before, own, after = dataset.row_transforms()
    return (
        *(PlacedTransform(each, 0) for each in before),
        *placed(own),
        *(PlacedTransform(each, 0) for each in after),
    )


def _are_uneven(images: Any) -> bool:
    """Return True for a list of images, which forms a batch only after transforms."""
    return isinstance(images, list) and all(isinstance(image, np.ndarray) for image in images)


@lru_cache(maxsize=8)
def _rows_structure(leaves: int) -> Structure:
    return Structure(("tuple", None, (LEAF,) * leaves), ("array",) * leaves)


def _as_slice(batch: Any, samples: int, work: Work) -> Slice:
    """Return a finished batch as a Slice, with its arrays copied to ``work.out`` if they fit."""
    structure, leaves = flatten(batch)
    in_place = []
    for i, leaf in enumerate(leaves):
        rows = work.rows(i)
        if rows is not None and isinstance(leaf, np.ndarray) and leaf is not rows:
            leaves[i] = place(leaf, rows)
        in_place.append(rows is not None and leaves[i] is rows)
    return Slice(structure, leaves, samples, tuple(in_place))
