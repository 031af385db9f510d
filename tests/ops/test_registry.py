"""Test what registering an op does: function, method, exported names, lists of names."""

import inspect

import pytest

import needle
from needle import Tensor, ops
from needle.ops import REGISTRY, stubs
from needle.ops.registry import COURSE_CLASSES, op

STUBS = stubs.files()
WITHOUT_OP = {"confusion_matrix"}
"""Functions that are computed on the host and have no gradient."""


@pytest.mark.parametrize("path", STUBS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_the_lists_are_current(path: object) -> None:
    assert path.read_text() == STUBS[path], "run python -m needle.ops.stubs"  # type: ignore


@pytest.mark.parametrize("row", REGISTRY.values(), ids=lambda row: row.name)
def test_rows(row: ops.registry.Row) -> None:
    assert getattr(needle, row.name) is row.function is getattr(ops, row.name)
    assert row.function.__doc__
    assert bool(row.classes) != (row.name in WITHOUT_OP)
    for cls in row.classes:
        assert getattr(getattr(ops, row.family), cls.__name__) is cls
        assert (getattr(ops, cls.__name__, None) is cls) == (cls.__name__ in COURSE_CLASSES)
        assert cls.__doc__ and "gradient" in dir(cls)
    for method in row.methods:
        assert inspect.getattr_static(Tensor, method) is row.function


def test_names_are_given_once() -> None:
    def exp(a: Tensor) -> Tensor:
        return a

    with pytest.raises(AssertionError, match="'exp' is registered twice"):
        op(ops.Exp)(exp)
    with pytest.raises(AssertionError, match=r"Tensor\.exp is already taken"):
        ops.registry.attach("exp", exp)
