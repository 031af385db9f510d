"""Data sets by name, for servers started by hand; and what tells their contents apart.

``folder:/photos?layout=HWC&dtype=uint8`` or ``my_module:my_function``: a name before the colon,
what it is made with behind it.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from ....errors import DataError
from ...datasets import CIFAR10, MNIST, Digits, FashionMNIST, ImageFolder
from ...datasets.npy_files import NpyDataset
from ...datasets.packed_reading import PackedDataset
from ...samples.pytree import flatten
from ...samples.random_source import keyed
from ...transforms.compile import Chain, placed

MAKERS: dict[str, Callable[..., Any]] = {
    "folder": ImageFolder,
    "mnist": MNIST,
    "fashion-mnist": FashionMNIST,
    "cifar10": CIFAR10,
    "packed": PackedDataset,
    "npy": NpyDataset,
    "digits": Digits,
}
_WORDS = {"true": True, "false": False, "none": None}
_PROBED = 3  # samples


def open_named(name: str) -> Any:
    """The data set of this name; DataError where there is none.

    "KIND:PATH?option=value&...": a kind of ``MAKERS``, with its options. "module:function?...":
    what that function returns. Values: ints, true, false, none, or text.
    """
    head, _, options = name.partition("?")
    kind, colon, place = head.partition(":")
    values = {key: _value(text) for key, text in parse_qsl(options, keep_blank_values=True)}
    make = MAKERS.get(kind)
    if make is not None:
        return make(*([place] if place else []), **values)
    if not colon or not kind.replace(".", "").isidentifier() or not place.isidentifier():
        raise DataError(
            f"server: a data set is named {', '.join(f'{kind}:PATH' for kind in MAKERS)} or "
            f"module:function, got {name!r}"
        )
    try:
        make = getattr(importlib.import_module(kind), place)
    except (ImportError, AttributeError) as error:
        raise DataError(f"server: there is no {head!r} ({error}); look at PYTHONPATH") from error
    return make(**values)


def check_shareable(dataset: Any) -> None:
    """ValueError for what can not be shared: a stream, or a data set that augments by itself."""
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise ValueError(
            f"GlobalDataLoader: a data set needs __getitem__ and __len__, got "
            f"{type(dataset).__name__}; take DataLoader for a stream"
        )
    if not len(dataset):
        raise ValueError("GlobalDataLoader: the data set must not be empty, got no sample")
    for each in _all(dataset):
        own = getattr(each, "transforms", None)
        if own and Chain(placed(own)).draws:
            raise ValueError(
                f"GlobalDataLoader: {type(each).__name__} has transforms that draw random numbers "
                "or may, and its samples are shared; give them to the loader: transforms=[...]"
            )


def fingerprint(dataset: Any) -> str:
    """Letters that equal data sets share: of the length, and of a few samples' bytes."""
    told = hashlib.blake2b(digest_size=12)
    length = len(dataset)
    told.update(f"{length}".encode())
    for index in sorted({0, length // 2, length - 1})[:_PROBED]:
        try:
            with keyed(0, 0, index):
                _, leaves = flatten(dataset[index])
        except DataError:
            told.update(b"unreadable")
            continue
        for leaf in leaves:
            array = np.asarray(leaf)
            told.update(f"{array.dtype.str}{array.shape}".encode())
            told.update(repr(leaf).encode() if array.dtype.hasobject else array.tobytes())
    return told.hexdigest()


def _all(dataset: Any) -> list[Any]:
    """The data set and those that it is made of."""
    inner = [getattr(dataset, "dataset", None), *(getattr(dataset, "datasets", None) or ())]
    return [dataset, *(deeper for each in inner if each is not None for deeper in _all(each))]


def _value(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return _WORDS.get(text.lower(), text)
