"""DataLoader: batches of a dataset, in this process, resumable at any step.

The order comes from sampler.py, batches from collate.py, keyed random numbers from
random_source.py. Worker processes are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ..backend_selection import device as find_device
from .collate import default_collate, rebuild, to_tensors
from .random_source import check_seed, keyed
from .sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    batch_count,
    check_batch_size,
    set_epoch,
)
from .transforms import Compose, Transform

STATE_VERSION = 1


class DataLoader:
    """Iterates over ``dataset`` in batches; each ``iter()`` is one epoch.

    By default as the course's: shuffling draws one ``np.random.permutation(len)`` an epoch, the
    short last batch is kept, a batch is a tuple of Tensors on the default device.

    sampler: indices instead of shuffle. batch_sampler: lists of indices, instead of batch_size,
    shuffle, sampler and drop_last. collate: from a list of samples to a batch (arrays in its
    result become Tensors). transforms: run on each sample's first field, or on a
    sample that is not a tuple or list. seed: order and the
    transforms' random numbers become functions of (seed, epoch, index), and the loader's state
    can be saved. device: a device or its name, for the batches.
    Raises ValueError where options contradict each other.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        transforms: Sequence[Callable[[Any], Any]] | None = None,
        drop_last: bool = False,
        seed: int | None = None,
        device: Any = None,
    ) -> None:
        self.dataset, self.shuffle = dataset, shuffle
        self.device = None if device is None else find_device(device)
        self.batch_size = check_batch_size("DataLoader", batch_size)
        self.drop_last, self.collate = drop_last, collate
        self.transforms = _check_transforms(dataset, transforms)
        self.seed = None if seed is None else check_seed("DataLoader", seed)
        _check_options(self, sampler, batch_sampler)
        self.sampler = self._default_sampler() if sampler is None else sampler
        self.batch_sampler = batch_sampler
        self._own_order = sampler is None and batch_sampler is None
        self.ordering: list[npt.NDArray[np.int64]] | None = None
        if self._own_order and not shuffle:
            self.ordering = self._split(SequentialSampler(len(dataset)).order())
        self._next_epoch, self._start = 0, 0
        self._current: LoaderIterator | None = None

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        return batch_count(len(self.sampler), self.batch_size, self.drop_last)  # type: ignore[arg-type]

    def __iter__(self) -> LoaderIterator:
        """Starts the next epoch, or goes on where ``load_state_dict`` put it."""
        epoch, start = self._next_epoch, self._start
        self._next_epoch, self._start = epoch + 1, 0
        self._current = LoaderIterator(self, epoch, start)
        return self._current

    @property
    def epoch(self) -> int:
        """The epoch under way, else the one that the next ``iter()`` starts."""
        current = self._current
        return self._next_epoch if current is None or current.finished else current.epoch

    def set_epoch(self, epoch: int) -> None:
        """The next ``iter()`` starts this epoch. Optional: epochs advance by themselves."""
        if epoch < 0:
            raise ValueError(f"DataLoader.set_epoch: epoch must not be negative, got {epoch}")
        self._next_epoch, self._start, self._current = int(epoch), 0, None

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, as JSON values: seed, epoch, position (batches delivered).

        After the last batch but before the end of the ``for`` the position is ``len(loader)``:
        a resumed loader then gives no more batch in that epoch. Raises ValueError for a loader
        that shuffles without a seed, whose order nothing can repeat.
        """
        self._check_resumable("state_dict")
        current = self._current
        if current is None or current.finished:
            epoch, position = self._next_epoch, self._start
        else:
            epoch, position = current.epoch, current.position
        return {
            "version": STATE_VERSION,
            "seed": self.seed,
            "epoch": epoch,
            "position": position,
            "batch_size": self.batch_size,
            "length": len(self.dataset),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next ``iter()`` gives the batches that were left, reading no skipped sample.

        The seed comes from the state. Raises ValueError if the state is of another kind, or of
        a loader with another batch size or a dataset of another length.
        """
        self._check_resumable("load_state_dict")
        mine = {"version": STATE_VERSION, "batch_size": self.batch_size}
        for name, value in {**mine, "length": len(self.dataset)}.items():
            if name not in state or state[name] != value:
                raise ValueError(
                    f"DataLoader.load_state_dict: the state's {name} must be {value}, got "
                    f"{state.get(name)!r}; resume with the dataset and options it was saved with"
                )
        epoch, position, seed = (state.get(name) for name in ("epoch", "position", "seed"))
        if not (_is_count(epoch) and _is_count(position)):
            raise ValueError(
                f"DataLoader.load_state_dict: epoch and position must be counts, got {epoch!r} "
                f"and {position!r}; give what state_dict() returned"
            )
        if (seed is None) != (self.seed is None):
            raise ValueError(
                f"DataLoader.load_state_dict: the state's seed is {seed!r}, this loader's "
                f"{self.seed!r}; make the loader with a seed exactly if it was saved with one"
            )
        self.seed = None if seed is None else check_seed("DataLoader.load_state_dict", seed)
        if self._own_order:
            self.sampler = self._default_sampler()
        self._next_epoch, self._start, self._current = int(epoch), int(position), None  # type: ignore[arg-type]

    def _default_sampler(self) -> Sampler:
        length = len(self.dataset)
        return RandomSampler(length, self.seed) if self.shuffle else SequentialSampler(length)

    def _check_resumable(self, method: str) -> None:
        decides = self.sampler if self.batch_sampler is None else self.batch_sampler
        if not getattr(decides, "repeatable", True):
            raise ValueError(
                f"DataLoader.{method}: a shuffled order can be repeated only from a seed, got "
                f"seed=None; make the {'loader' if self.shuffle else 'sampler'} with seed=0"
            )

    def _split(self, order: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
        count = batch_count(len(order), self.batch_size, self.drop_last)
        return [order[i * self.batch_size : (i + 1) * self.batch_size] for i in range(count)]

    def _begin(self, epoch: int) -> Iterable[Sequence[int] | npt.NDArray[np.int64]]:
        """The batches of indices of this epoch; draws the permutation."""
        if self.batch_sampler is not None:
            set_epoch(self.batch_sampler, epoch)
            return self.batch_sampler
        set_epoch(self.sampler, epoch)
        if isinstance(self.sampler, (SequentialSampler, RandomSampler)):
            self.ordering = self._split(self.sampler.order())
            return self.ordering
        return BatchSampler(self.sampler, self.batch_size, self.drop_last)

    def _read(self, indices: npt.NDArray[np.int64], epoch: int) -> Any:
        """The batch of these samples as Tensors."""
        batch = None
        fetch = getattr(self.dataset, "fetch", None)
        if fetch is not None and self.collate is None and not self.transforms:
            batch = fetch(indices)
        if batch is None:
            samples = [self._sample(int(index), epoch) for index in indices]
            batch = (self.collate or default_collate)(samples)
        return to_tensors(batch, self.device)

    def _sample(self, index: int, epoch: int) -> Any:
        if self.seed is None:
            return self._transformed(self.dataset[index])
        with keyed(self.seed, epoch, index):
            return self._transformed(self.dataset[index])

    def _transformed(self, sample: Any) -> Any:
        if self.transforms is None:
            return sample
        if isinstance(sample, (tuple, list)):
            return rebuild(sample, [self.transforms(sample[0]), *sample[1:]])
        return self.transforms(sample)


class LoaderIterator:
    """One epoch's batches, by ``next()``."""

    def __init__(self, loader: DataLoader, epoch: int, start: int) -> None:
        self._loader, self.epoch, self.position = loader, epoch, start
        self.finished = False
        self._batches: Iterator[Any] = islice(loader._begin(epoch), start, None)

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        try:
            indices = next(self._batches)
        except StopIteration:
            self.finished = True
            raise
        batch = self._loader._read(np.asarray(indices, dtype=np.int64), self.epoch)
        self.position += 1
        return batch


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _check_options(loader: DataLoader, sampler: Any, batch_sampler: Any) -> None:
    """ValueError for options that cannot both hold."""
    if sampler is not None and loader.shuffle:
        raise ValueError(
            "DataLoader: sampler decides the order, got shuffle=True beside it; use "
            "RandomSampler, or leave one of them out"
        )
    if batch_sampler is None:
        return
    others = {
        "batch_size": loader.batch_size != 1,
        "shuffle": loader.shuffle,
        "sampler": sampler is not None,
        "drop_last": loader.drop_last,
    }
    clash = [name for name, given in others.items() if given]
    if clash:
        raise ValueError(
            f"DataLoader: batch_sampler decides whole batches, got {', '.join(clash)} beside it; "
            f"leave {'it' if len(clash) == 1 else 'them'} out"
        )


def _check_transforms(
    dataset: Any, transforms: Sequence[Callable[[Any], Any]] | None
) -> Compose | None:
    """The transforms as one, if they fit the axes that the dataset says its images have."""
    if not transforms:
        return None
    compose = transforms if isinstance(transforms, Compose) else Compose(transforms)
    if getattr(dataset, "layout", None) == "CHW":
        for transform in compose.transforms:
            if isinstance(transform, Transform) and transform.needs_hwc:
                name = type(dataset).__name__
                raise ValueError(
                    f"DataLoader: {type(transform).__name__} needs images (H, W, C), got "
                    f"{name} with layout='CHW'; make it with layout='HWC' and end the "
                    f"transforms with ToCHW(), or give them to {name} itself"
                )
    return compose
