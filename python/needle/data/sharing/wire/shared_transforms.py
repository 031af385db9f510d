"""Which transforms a server runs for all, and which a loader runs for itself; the former as JSON.

Only needle's own transforms travel, by name and numbers: a server calls nothing that a loader
sends. The random streams of a transform stay those of its place in the whole list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ....errors import DataError
from ... import transforms as known
from ...samples.random_source import LOADER_STREAM
from ...transforms import Compose, Normalize, OneOf, Permute, ToCHW, ToFloat, Transform
from ...transforms.base import Size, decode_size
from ...transforms.compile import Chain, placed
from ...transforms.execute import PlacedTransform as Part

TRANSFORMS: dict[str, type[Transform]] = {
    name: kind
    for name, kind in vars(known).items()
    if isinstance(kind, type)
    and issubclass(kind, Transform)
    and not issubclass(kind, (Compose, OneOf))
    and kind is not Transform
}
"""What may travel."""
WIDENING = (ToFloat, Normalize, ToCHW, Permute)
"""Cheap, and larger or no smaller afterwards: at the end they stay with the loader."""
MOST = 64
Description = list[dict[str, Any]]


@dataclass(frozen=True)
class Division:
    """``shared``: what the server runs. ``own``: what the loader does. ``decode_at``: see there."""

    shared: Description
    own: Chain
    decode_at: Size | None


def divide(transforms: Any, share: str) -> Division:
    """The transforms of a loader (a sequence, a Compose or None) in two.

    share "decoded": the server runs those at the front that draw nothing. "prepared": all of
    them; ValueError for one that cannot travel.
    """
    parts = placed(transforms, LOADER_STREAM)
    decode_at = decode_size(part.transform for part in parts)
    if share == "prepared":
        for part in parts:
            if describe(part.transform) is None:
                raise ValueError(
                    f"GlobalDataLoader: share='prepared' has the server run the transforms, which "
                    f"must be needle's own, got {part.name}; take share='decoded'"
                )
        return Division(_described(parts), Chain(()), decode_at)
    count = _deterministic(parts)
    while count and type(parts[count - 1].transform) in WIDENING:
        count -= 1
    return Division(_described(parts[:count]), Chain(parts[count:]), decode_at)


def describe(transform: Any) -> dict[str, Any] | None:
    """A transform of needle's as JSON values; None for any other."""
    kind = type(transform)
    if TRANSFORMS.get(kind.__name__) is not kind:
        return None
    values = {each.name: getattr(transform, each.name) for each in fields(transform)}
    description = {"name": kind.__name__, "values": values}
    try:
        same = _built(description) == transform
    except (DataError, TypeError, ValueError):
        return None
    return description if same and _plain(values) else None


def build(description: Any) -> list[Transform]:
    """The transforms that a loader's frame describes; DataError for anything else."""
    if not isinstance(description, list) or len(description) > MOST:
        raise DataError(f"server: transforms are a list of at most {MOST}, got {description!r:.60}")
    return [_built(each) for each in description]


def _deterministic(parts: Sequence[Part]) -> int:
    for i, part in enumerate(parts):
        if describe(part.transform) is None or part.transform.words:
            return i
    return len(parts)


def _described(parts: Sequence[Part]) -> Description:
    return [found for part in parts if (found := describe(part.transform)) is not None]


def _built(description: Any) -> Transform:
    name = description.get("name") if isinstance(description, dict) else None
    values = description.get("values") if isinstance(description, dict) else None
    if not isinstance(name, str) or name not in TRANSFORMS or not isinstance(values, dict):
        raise DataError(
            f"server: a transform has the name of one of {', '.join(sorted(TRANSFORMS))}, got "
            f"{description!r:.60}"
        )
    if not _plain(values):
        raise DataError(f"server: {name} has numbers and texts as values, got {values!r:.60}")
    given = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    try:
        return TRANSFORMS[name](**given)
    except (TypeError, ValueError) as error:
        raise DataError(f"server: no {name} can be made of {values!r:.60}: {error}") from error


def _plain(values: dict[str, Any]) -> bool:
    """Whether all are None, bools, numbers, texts or short flat lists of these."""

    def simple(value: Any) -> bool:
        return value is None or isinstance(value, (bool, int, float, str))

    return all(
        simple(v) or (isinstance(v, (list, tuple)) and len(v) <= 64 and all(map(simple, v)))
        for v in values.values()
    )
