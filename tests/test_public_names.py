"""A public name has one meaning in ``needle`` and in the packages that programs import from."""

from __future__ import annotations

import needle
from needle import data, init, nn, ops, optim

HOMES = (needle, ops, nn, init, optim, data)

COURSE_CLASHES = {"Conv", "ReLU", "Tanh"}
"""The course gives an op class and a layer these names (its layer for tanh is ours)."""


def test_a_public_name_has_one_meaning() -> None:
    meanings: dict[str, set[int]] = {}
    for home in HOMES:
        for name in home.__all__:
            meanings.setdefault(name, set()).add(id(getattr(home, name)))
    clashes = {name for name, objects in meanings.items() if len(objects) > 1}
    assert clashes == COURSE_CLASHES


def test_the_layer_is_the_only_public_class_of_its_name() -> None:
    for name in ("Conv2d", "MaxPool2d", "AvgPool2d", "LayerNorm", "Embedding", "Sigmoid", "GELU"):
        assert hasattr(nn, name) and not hasattr(ops, name) and not hasattr(needle, name)


def test_the_functions_and_the_course_classes_are_flat() -> None:
    assert {row.name for row in ops.REGISTRY.values()} | ops.COURSE_CLASSES == set(ops.PUBLIC)
    for name, thing in ops.PUBLIC.items():
        assert getattr(needle, name) is getattr(ops, name) is thing
