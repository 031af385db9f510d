"""Models by name. To add one, decorate its class with ``@model("name")``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from needle import nn
from needle.errors import unknown_name

M = TypeVar("M", bound=Callable[..., nn.Module])

MODELS: dict[str, Callable[..., nn.Module]] = {}
"""Name -> class; each is called with in_channels, num_classes, device and dtype by keyword, and
has ``image_size``, the (height, width) of the images it takes."""


def model(name: str) -> Callable[[M], M]:
    """Register a model class under ``name``."""

    def register(build: M) -> M:
        MODELS[name] = build
        return build

    return register


def find_model(name: str) -> Callable[..., nn.Module]:
    """Return the class registered as ``name``; UnknownNameError lists the names and the nearest."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    return MODELS[name]


def image_size(name: str, pixels: int = 0) -> tuple[int, int]:
    """Return (height, width) of a model's images: ``pixels`` squared, or the model's own for 0."""
    own: tuple[int, int] = find_model(name).image_size  # type: ignore[attr-defined]
    return (pixels, pixels) if pixels else own


def build_model(name: str, **options: Any) -> nn.Module:
    """Return a new model: ``build_model("lenet5", in_channels=1, num_classes=10)``."""
    return find_model(name)(**options)
