"""The options of a loader: their values, and checks that they do not contradict each other.

Every error names the remedy. Called by dataloader.py and sharing/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import unknown_name
from ..datasets.stream import shards_of
from ..transforms import BatchTransform, Compose, Transform
from ..transforms.base import as_transforms
from ..workers import engine_names

FIXED = frozenset(
    "dataset batch_size shuffle sampler batch_sampler num_workers engine prefetch collate "
    "transforms augment drop_last seed device timeout on_error".split()
)
"""The options, which cannot be set once a loader has been created."""
AUGMENT = ("worker", "main", "device")
ON_ERROR = ("raise", "skip")
PREFETCH = 2


def is_stream(dataset: Any) -> bool:
    """Return True if the dataset is a stream; raise TypeError if it can be iterated only once."""
    if hasattr(dataset, "__getitem__"):
        return False
    if isinstance(dataset, (set, frozenset)):
        raise TypeError("DataLoader: a set has no fixed order; give sorted(dataset)")
    if not hasattr(dataset, "__iter__"):
        raise TypeError(
            "DataLoader: a dataset must have __getitem__ and __len__, or __iter__, got "
            f"{type(dataset).__name__}"
        )
    if hasattr(dataset, "__next__"):
        raise TypeError(
            f"DataLoader: a {type(dataset).__name__} can be iterated only once; write an "
            "IterableDataset whose __iter__ starts again, or make a list of it"
        )
    return True


def worker_count(num_workers: Any) -> int:
    """Return ``num_workers`` as an int of at least 0."""
    if isinstance(num_workers, bool) or not isinstance(num_workers, (int, np.integer)):
        raise TypeError(
            f"DataLoader: num_workers must be an int, got {num_workers!r}; give a number, or 'auto'"
        )
    if num_workers < 0:
        raise ValueError(
            f"DataLoader: num_workers must not be negative, got {num_workers}; 0 prepares batches "
            "in this process"
        )
    return int(num_workers)


def engine_name(engine: str | None, workers: int) -> str:
    """Return the engine's name; the default is "inline" without workers, else "processes"."""
    name = one_of("engine", engine or ("processes" if workers else "inline"), engine_names())
    if name == "inline" and workers:
        raise ValueError(
            f"DataLoader: engine='inline' has no workers, got num_workers={workers}; use 0, or "
            "engine='threads' or 'processes'"
        )
    if name != "inline" and not workers:
        raise ValueError(
            f"DataLoader: engine={name!r} needs workers, got num_workers=0; give num_workers=2"
        )
    return name


def prefetch_count(engine: str, prefetch: int | None, timeout: float | None) -> int:
    """Return ``prefetch`` (default 2); ValueError for it or ``timeout`` without workers."""
    for name, value in (("prefetch", prefetch), ("timeout", timeout)):
        if value is not None and not value > 0:
            raise ValueError(f"DataLoader: {name} must be positive, got {value}")
        if value is not None and engine == "inline":
            raise ValueError(
                f"DataLoader: {name} requires workers, got {name}={value} with num_workers=0; "
                "leave it out, or give num_workers"
            )
    return PREFETCH if prefetch is None else int(prefetch)


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return ``value`` if it is in ``choices``, else raise UnknownNameError, which lists them."""
    if value not in choices:
        raise unknown_name(name, str(value), choices)
    return str(value)


def check_order(stream: bool, batch_sampler: bool, sampler: bool, **others: bool) -> None:
    """Raise ValueError if options that set the order conflict; True: the user gave this option.

    others: "shuffle", "batch_size" and "drop_last".
    """
    shuffle = others["shuffle"]
    if stream:
        _refuse_beside(
            "a stream decides its own order",
            ", and shuffle within iter_shard",
            shuffle=shuffle,
            sampler=sampler,
            batch_sampler=batch_sampler,
        )
    if sampler:
        _refuse_beside("sampler decides the order", " or use RandomSampler", shuffle=shuffle)
    if batch_sampler:
        _refuse_beside("batch_sampler decides whole batches", "", sampler=sampler, **others)


def check_shards(dataset: Any, num_workers: int) -> None:
    """Raise ValueError if a stream has fewer shards than workers."""
    shards = shards_of(dataset)
    if num_workers > shards:
        raise ValueError(
            "DataLoader: each worker of a stream needs its own shard, got "
            f"num_workers={num_workers} for num_shards={shards}; use at most {shards}, or write "
            "the stream with more shards (num_shards, iter_shard)"
        )


def _refuse_beside(rule: str, remedy: str = "", **options: bool) -> None:
    """Raise ValueError if one of ``options`` is given although ``rule`` excludes it."""
    clash = [name for name, given in options.items() if given]
    if clash:
        raise ValueError(
            f"DataLoader: {rule}, got {', '.join(clash)} as well; leave "
            f"{'it' if len(clash) == 1 else 'them'} out{remedy}"
        )


def check_mask(masked: bool, on_error: str) -> None:
    """Raise ValueError if a mask is requested although rows may be missing."""
    if masked and on_error == "skip":
        raise ValueError(
            "DataLoader: valid_mask has a value for every requested sample, got on_error='skip', "
            "which leaves some out; use one of the two"
        )


def divided(
    transforms: Sequence[Callable[[Any], Any]] | None,
) -> tuple[Sequence[Callable[[Any], Any]], tuple[BatchTransform, ...]]:
    """Return the transforms of samples, and the transforms of whole batches that follow them."""
    found = as_transforms("DataLoader", transforms or ())
    whole = tuple(each for each in found if isinstance(each, BatchTransform))
    count = len(found) - len(whole)
    if found[count:] != whole:
        names = ", ".join(type(each).__name__ for each in found)
        raise ValueError(
            f"DataLoader: transforms of whole batches must come after those of samples, got "
            f"{names}; put {type(whole[0]).__name__} last"
        )
    return found[:count], whole


def composed(dataset: Any, transforms: Sequence[Callable[[Any], Any]]) -> Compose | None:
    """Return the transforms as one; ValueError if they need another layout than the dataset's."""
    if not transforms:
        return None
    if getattr(dataset, "layout", None) == "CHW":
        for transform in transforms:
            if isinstance(transform, Transform) and transform.needs_hwc:
                name = type(dataset).__name__
                raise ValueError(
                    f"DataLoader: {type(transform).__name__} needs images (H, W, C), got "
                    f"{name} with layout='CHW'; make it with layout='HWC' and end the "
                    f"transforms with ToCHW(), or give them to {name} itself"
                )
    return Compose(transforms)
