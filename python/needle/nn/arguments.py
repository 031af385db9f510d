"""Check the arguments of a layer against their annotations and ranges when it is created.

``Module`` calls this for the layers of this package, so that a class, a list or a string in place
of a number raises an error where it was passed.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from ..errors import ShapeError


def _is_whole(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and isinstance(operator.index(value), int)
    except TypeError:
        return False


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) or getattr(value, "ndim", 0) == 1


def _items(value: Any) -> Sequence[Any]:
    return tuple(value) if _is_sequence(value) and not isinstance(value, str) else (value,)


def _is_flag(value: Any) -> bool:
    return value is None or (isinstance(value, (int, np.bool_, np.integer)) and value in (0, 1))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


KINDS: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "int": ("a whole number", "write int(...)", _is_whole),
    "Size": (
        "a whole number, or a tuple of them",
        "pass an int or a tuple of ints",
        lambda v: all(map(_is_whole, _items(v))),
    ),
    "float": ("a number", "write float(...)", lambda v: _is_scalar(v) or hasattr(v, "shape")),
    "init.Generator": (
        "a needle.init.Generator",
        "write needle.init.Generator(seed)",
        lambda v: hasattr(v, "draw"),
    ),
    "bool": ("True or False", "write bool(...)", _is_flag),
}
"""For each annotation: the rule for values, the remedy, and the predicate."""
RANGES = {
    **dict.fromkeys(("dropout", "label_smoothing", "momentum"), (0.0, 1.0)),
    **dict.fromkeys(("eps", "layer_norm_eps"), (0.0, np.inf)),
}
"""The minimum and maximum of arguments with these names."""
OTHERS = ("str", "Sequence[int]", "Sequence[float]")
"""Annotations beside those of ``KINDS``; the layer checks such values itself."""
SIZES = ("int", "int | None", "Size", "Size | None")
"""Annotations of arguments that may not be negative, unless they are in ``MAY_BE_NEGATIVE``."""
MAY_BE_NEGATIVE = ("dim", "ignore_index", "padding_idx")
"""Arguments that are axes or labels."""


def check_arguments(layer: type, args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    """Raise TypeError for an unknown argument or one of the wrong type.

    ShapeError for a negative size, ValueError for another value out of range.
    """
    name, signature = layer.__name__, inspect.signature(layer)
    try:
        given = signature.bind_partial(*args, **options).arguments
    except TypeError as error:
        remedy = f"create the layer with its options, then call it: {name}(...)(x)"
        if [type(value) for value in args[len(signature.parameters) :]] == [bool]:
            remedy = "leave out PyTorch's inplace, since layers return a new Tensor"
        raise TypeError(f"{name}: {error}; {remedy}") from None
    for argument, value in given.items():
        annotation = str(signature.parameters[argument].annotation)
        kind, *others = annotation.split(" | ")
        if kind not in KINDS or (value is None and "None" in others):
            continue
        if _is_sequence(value) and not {*OTHERS}.isdisjoint(others):
            continue
        must, remedy, fits = KINDS[kind]
        if not fits(value):
            raise TypeError(f"{name}: {argument} must be {must}, got {value!r:.80}; {remedy}")
        negative = annotation in SIZES and any(item < 0 for item in _items(value))
        if negative and argument not in MAY_BE_NEGATIVE:
            raise ShapeError(
                f"{name}: {argument} must not be negative, got {value}; pass a size or a count"
            )
        low, high = RANGES.get(argument, (-np.inf, np.inf))
        if _is_scalar(value) and not low <= value <= high:
            raise ValueError(f"{name}: {argument} must be in [{low:g}, {high:g}], got {value}")
