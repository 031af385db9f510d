"""Data-parallel training: each process computes gradients of its samples, which are then averaged.

A batch is divided into slices. Each process computes the gradients of one or more slices, and the
gradients are averaged over all samples. Called by training programs between backward and the
optimiser's step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ..errors import DistributedError
from ..host_steps import host_step
from .agreement import require_same
from .batch_norm import is_synchronised
from .communicator import Array, Communicator, Wait, communicator, tree_sum
from .flat import FlatModel, NamesTensors, constant, host_copy


class DataParallel:
    """A data-parallel trainer that averages a model's gradients and buffers over all slices.

    group: the communicator, by default ``communicator()``. slices: the number of slices of each
    batch. By default there is one per process, and gradients are sent while backward computes
    others. A number given must be the number of processes times a power of two; the slices are then
    added in a fixed tree (``tree_sum``), so that with 8 slices, 1, 2, 4 and 8 processes give the
    same bits. A process computes the slices ``rank, rank + size, ...``, listed in ``self.slices``.
    check_every: the number of steps between comparisons of parameters and buffers across ranks.

    The buffers of each slice, such as running statistics, start from those of the step, and their
    average over the samples is kept. The constructor broadcasts the parameters and buffers of rank
    0. Raises DistributedError if the models differ, or if the slices cannot be divided among the
    processes.

    >>> import needle
    >>> model = needle.nn.Linear(3, 2)
    >>> parallel = DataParallel(model)
    >>> with parallel.slice(5) as numbers:
    ...     model(needle.ones(5, 3)).sum().backward()
    ...     numbers.append(2.5)
    >>> parallel.average()
    array([5. , 2.5])
    """

    def __init__(
        self,
        model: NamesTensors,
        group: Communicator | None = None,
        slices: int | None = None,
        check_every: int = 100,
    ) -> None:
        self.group = group or communicator()
        self.ordered, self.count = slices is not None, _checked_count(slices, self.group.size)
        self.slices = range(self.group.rank, self.count, self.group.size)
        """The numbers of the slices that this process computes."""
        self.check_every, self.steps = check_every, 0
        self._synchronised = is_synchronised(model)
        if self.ordered and self._synchronised:
            raise DistributedError(
                "DataParallel: batch norm over all processes needs slices=None, got "
                f"slices={slices}; leave slices out, because each slice has its own statistics"
            )
        self._flat = FlatModel(model)
        require_same(self.group, {"the model": self._flat.description(), "slices": self.count})
        self._begin_step()
        self.broadcast()
        if not self.ordered and self.group.size > 1:
            for number, bucket in enumerate(self._flat.buckets[:-1]):
                last = self._flat.parameters[bucket.parameters[0]]
                last.register_hook(partial(self._send, number))

    def _begin_step(self) -> None:
        self._vectors: list[Array] = []
        self._numbers: list[Array] = []
        self._open, self._weight = False, 0.0
        self._sent: dict[int, Any] = {}  # gradients by parameter number
        self._waits: list[Wait] = []

    def broadcast(self) -> None:
        """Copy the parameters and buffers of rank 0 to all ranks."""
        for tensor in [*self._flat.parameters, *self._flat.buffers()]:
            values = np.ascontiguousarray(host_copy(tensor))
            self.group.broadcast(values)
            if self.group.rank:
                tensor.data = constant(values, tensor)

    # ---- a slice -----------------------------------------------------------------------------

    @contextmanager
    def slice(self, samples: int) -> Iterator[list[float]]:
        """Return a context for a slice's backward pass; its loss is a mean over ``samples``.

        A slice without samples needs no backward pass. The program may append numbers to the list
        that the context yields, equally many in every slice; ``average`` sums them over all slices.
        After an exception the program can restart the step, unless gradients have been sent.
        """
        self._begin_slice(samples)
        numbers: list[float] = []
        try:
            yield numbers
        except BaseException:
            if not self._waits:
                self._drop_step()
            raise
        self._end_slice()
        self._numbers.append(np.array([samples, *numbers], np.float64))

    @host_step(changes_state=True)
    def _begin_slice(self, samples: int) -> None:
        if len(self._vectors) == len(self.slices):
            raise DistributedError(
                f"DataParallel: a step has {len(self.slices)} slices on this rank, got one more; "
                "call average() after the last one"
            )
        if self._synchronised and not samples:
            raise DistributedError(
                "DataParallel: batch norm over all processes needs samples on every rank, got none "
                f"on rank {self.group.rank}; leave out the last, smaller batch"
            )
        for p in self._flat.parameters:
            p.grad = None
        if not self._vectors:
            self._before = [host_copy(b) for b in self._flat.buffers()]
        else:
            for tensor, old in zip(self._flat.buffers(), self._before):
                tensor.data = constant(old, tensor)
        self._vectors.append(self._flat.new_vector())
        self._open, self._weight = True, float(samples)

    def _drop_step(self) -> None:
        """Drop the slices of this step and restore the buffers."""
        for tensor, old in zip(self._flat.buffers(), self._before):
            tensor.data = constant(old, tensor)
        self._flat.reuse(self._vectors)
        self._begin_step()

    @host_step
    def _send(self, number: int, gradient: Any) -> None:
        """Send a bucket once backward has computed the gradient that usually completes it."""
        if not self._open or number > len(self._waits):
            return
        if number < len(self._waits):
            raise _second_backward()
        first, *others = self._flat.buckets[number].parameters
        grads = {first: gradient} | {i: self._flat.parameters[i].grad for i in others}
        if all(grad is not None for grad in grads.values()):
            for i, grad in grads.items():
                self._flat.write_gradient(self._vectors[-1], i, grad, self._weight)
            self._sent |= {i: grads[i] for i in others}
            self._send_bucket()

    def _send_bucket(self) -> None:
        bucket = self._flat.buckets[len(self._waits)]
        self._waits.append(self.group.begin_all_reduce(self._vectors[-1][bucket.place]))

    @host_step(changes_state=True)
    def _end_slice(self) -> None:
        vector = self._vectors[-1]
        if any(self._flat.parameters[i].grad is not grad for i, grad in self._sent.items()):
            raise _second_backward()
        for bucket in self._flat.buckets[len(self._waits) :]:
            for i in bucket.parameters:
                grad = self._flat.parameters[i].grad
                if grad is None:
                    self._flat.clear_gradient(vector, i)
                else:
                    self._flat.write_gradient(vector, i, grad, self._weight)
        self._flat.write_buffers(vector, self._weight, self._before)
        self._open = False

    # ---- a step ------------------------------------------------------------------------------

    @host_step(changes_state=True)
    def average(self) -> Array:
        """Set gradients and buffers to their average over all samples, after the last slice.

        Returns the total number of samples and the sums of the slices' numbers as float64. Raises
        DistributedError if a slice is missing, if there are no samples, or if a parameter differs
        between the ranks.
        """
        if len(self._vectors) != len(self.slices):
            raise DistributedError(
                f"DataParallel: average() needs {len(self.slices)} slices on this rank, got "
                f"{len(self._vectors)}; enter slice(0) for one without samples"
            )
        sums, total = tree_sum(self._numbers), tree_sum(self._vectors)
        if self.ordered:
            self.group.all_reduce(sums, ordered=True)
            self.group.all_reduce(total, ordered=True)
        else:
            self._send_rest(sums)
        if not sums[0] > 0:
            raise DistributedError(
                "DataParallel: a batch must have samples, got none on any rank; leave out the step"
            )
        total[: self._flat.presence] /= total.dtype.type(sums[0])
        total[self._flat.tail :] /= total.dtype.type(sums[0])
        self._flat.read_gradients(total)
        self._flat.read_buffers(total, self._before)
        self._flat.reuse(self._vectors)
        self._begin_step()
        self.steps += 1
        if self.steps % self.check_every == 0:
            self.compare()
        return sums

    def _send_rest(self, sums: Array) -> None:
        """Send the buckets that backward has not sent, and wait for all sums."""
        while len(self._waits) < len(self._flat.buckets):
            self._send_bucket()
        self._waits.append(self.group.begin_all_reduce(sums))
        for wait in self._waits:
            wait()

    def compare(self) -> None:
        """Raise DistributedError on all ranks if a parameter or buffer differs between ranks."""
        names, sums = self._flat.checksums()
        table = np.zeros((self.group.size, len(names)), np.int64)
        table[self.group.rank] = sums
        self.group.all_reduce(table)
        wrong = np.argwhere((table != table[0]).T)
        if len(wrong):
            column = wrong[0][0]
            ranks = [int(rank) for place, rank in wrong if place == column]
            raise DistributedError(
                f"DataParallel: {names[column]} must be the same on all ranks, but differs from "
                f"rank 0's on {ranks} after {self.steps} steps; change parameters on all ranks "
                "alike, or call broadcast() afterwards"
            )


def _second_backward() -> DistributedError:
    return DistributedError(
        "DataParallel: a slice must have one backward pass, got a second one; give "
        "DataParallel(slices=...) a slice for each pass"
    )


def _checked_count(slices: int | None, size: int) -> int:
    count = size if slices is None else slices
    own = count // size
    if count < 1 or count % size or own & (own - 1):
        raise DistributedError(
            f"DataParallel: each of the {size} processes must compute 1, 2, 4, 8 ... slices, got "
            f"{slices} slices; give {size} times a power of two, or start other processes"
        )
    return count
