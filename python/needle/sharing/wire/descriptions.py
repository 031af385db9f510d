"""Data sets and transforms as text and JSON, and the rule that says which transforms a server runs.

A server that is started by hand gets its data set by name: ``folder:/photos?layout=HWC`` or
``my_module:my_function``. Only needle's own transforms are sent, as a name and numbers, so a server
never executes code from a loader. A transform keeps the random streams that belong to its position
in the list.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from ...data import transforms as known
from ...data.datasets import CIFAR10, MNIST, Digits, FashionMNIST, ImageFolder
from ...data.datasets.npy_files import NpyDataset
from ...data.datasets.packed_reading import PackedDataset
from ...data.samples.random_source import LOADER_STREAM
from ...data.transforms import Compose, Normalize, OneOf, Permute, ToCHW, ToFloat, Transform
from ...data.transforms.base import Size, as_transforms, decode_size
from ...data.transforms.compile import Chain, placed
from ...errors import DataError

DATASETS: dict[str, Callable[..., Any]] = {
    "folder": ImageFolder,
    "mnist": MNIST,
    "fashion-mnist": FashionMNIST,
    "cifar10": CIFAR10,
    "packed": PackedDataset,
    "npy": NpyDataset,
    "digits": Digits,
}
_WORDS = {"true": True, "false": False, "none": None}
TRANSFORMS: dict[str, type[Transform]] = {
    name: kind
    for name, kind in vars(known).items()
    if isinstance(kind, type)
    and issubclass(kind, Transform)
    and kind not in (Compose, OneOf, Transform)
}
"""The transforms that a server can run for its loaders."""
WIDENING = (ToFloat, Normalize, ToCHW, Permute)
"""Cheap transforms that do not shrink their input; loaders run them if they come last."""
MOST_TRANSFORMS = 64


# ---- data sets -----------------------------------------------------------------------------------


def open_named(name: str) -> Any:
    """Return the data set of this name; raise DataError if there is none.

    "KIND:PATH?option=value&..." names a kind of ``DATASETS`` with its options;
    "module:function?..." names the data set that a function returns. Values are ints, true, false,
    none, or text.
    """
    head, _, options = name.partition("?")
    kind, colon, place = head.partition(":")
    values = {key: _value(text) for key, text in parse_qsl(options, keep_blank_values=True)}
    make = DATASETS.get(kind)
    if make is not None:
        return make(*([place] if place else []), **values)
    if not colon or not kind.replace(".", "").isidentifier() or not place.isidentifier():
        raise DataError(
            "server: the name of a data set must be "
            f"{', '.join(f'{kind}:PATH' for kind in DATASETS)} or module:function, got {name!r}"
        )
    try:
        make = getattr(importlib.import_module(kind), place)
    except (ImportError, AttributeError) as error:
        raise DataError(f"server: cannot find {head!r} ({error}); check PYTHONPATH") from error
    return make(**values)


def check_shareable(dataset: Any) -> None:
    """Raise ValueError for a stream, an empty data set, or one with its own augmentation."""
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise ValueError(
            "GlobalDataLoader: a data set must have __getitem__ and __len__, got "
            f"{type(dataset).__name__}; use DataLoader for a stream"
        )
    if not len(dataset):
        raise ValueError("GlobalDataLoader: the data set must have at least one sample, got none")
    for each in _with_parts(dataset):
        own = getattr(each, "transforms", None)
        if own and Chain(placed(own)).draws:
            raise ValueError(
                f"GlobalDataLoader: {type(each).__name__} has transforms that may draw random "
                "numbers, but its samples are shared; give them to the loader: transforms=[...]"
            )


def _with_parts(dataset: Any) -> list[Any]:
    """Return the data set and, recursively, the ones that it wraps."""
    inner = [getattr(dataset, "dataset", None), *(getattr(dataset, "datasets", None) or ())]
    return [dataset, *(part for each in inner if each is not None for part in _with_parts(each))]


def _value(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return _WORDS.get(text.lower(), text)


# ---- transforms ----------------------------------------------------------------------------------

Description = list[dict[str, Any]]


class Division(NamedTuple):
    """The transforms of a loader: the server runs the ``shared`` ones, the loader its ``own``.

    decode_at: the size at which JPEGs may be decoded (``transforms.base.decode_size``).
    """

    shared: Description
    own: Chain
    decode_at: Size | None


def divide(transforms: Any, share: str) -> Division:
    """Divide the transforms of a loader (a sequence, a Compose or None).

    With share "decoded", the server runs the transforms before the first that draws random numbers.
    With "prepared", it runs all; raises ValueError if one cannot be sent.
    """
    parts = placed(as_transforms("GlobalDataLoader", transforms or ()), LOADER_STREAM)
    described = [describe(part.transform) for part in parts]
    count = len(parts)
    if share == "decoded":
        local = (described[i] is None or part.transform.words for i, part in enumerate(parts))
        count = next((i for i, stays in enumerate(local) if stays), count)
        while count and type(parts[count - 1].transform) in WIDENING:
            count -= 1
    shared = [each for each in described[:count] if each is not None]
    if len(shared) < count:
        raise ValueError(
            "GlobalDataLoader: with share='prepared' all transforms run on the server and must be "
            f"needle's own, got {parts[described.index(None)].name}; use share='decoded'"
        )
    decode_at = decode_size(part.transform for part in parts)
    return Division(shared, Chain(parts[count:]), decode_at)


def describe(transform: Any) -> dict[str, Any] | None:
    """Return one of needle's transforms as JSON values; None for any other."""
    kind = type(transform)
    if TRANSFORMS.get(kind.__name__) is not kind:
        return None
    values = {each.name: getattr(transform, each.name) for each in fields(transform)}
    description = {"name": kind.__name__, "values": values}
    try:
        return description if _build(description) == transform else None
    except (DataError, TypeError, ValueError):
        return None


def build(description: Any) -> list[Transform]:
    """Return the transforms that a frame describes; raise DataError for an invalid description."""
    if not isinstance(description, list) or len(description) > MOST_TRANSFORMS:
        raise DataError(
            f"server: transforms must be a list of at most {MOST_TRANSFORMS}, got "
            f"{description!r:.60}"
        )
    return [_build(each) for each in description]


def _build(description: Any) -> Transform:
    name = description.get("name") if isinstance(description, dict) else None
    values = description.get("values") if isinstance(description, dict) else None
    if not isinstance(name, str) or name not in TRANSFORMS or not isinstance(values, dict):
        raise DataError(
            f"server: a transform must be one of {', '.join(sorted(TRANSFORMS))}, got "
            f"{description!r:.60}"
        )
    if not all(_is_plain(v) or _is_plain_list(v) for v in values.values()):
        raise DataError(f"server: {name} takes numbers and strings, got {values!r:.60}")
    given = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    try:
        return TRANSFORMS[name](**given)
    except (TypeError, ValueError) as error:
        raise DataError(f"server: cannot make {name} from {values!r:.60}: {error}") from error


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _is_plain_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) <= 64 and all(map(_is_plain, value))


def shared_names(description: Sequence[dict[str, Any]]) -> str:
    """Return readable names of described transforms; "" if there are none."""
    return ", ".join(each["name"] for each in description)
