"""A public name means the same in all packages, and none is removed by accident.

public_interface.txt records the names and their parameters; docs/stability.md says what may change.
Run ``python -m tests.test_public_names`` to record an intended change.
"""

import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

import needle
from needle import data, distributed, init, nn, ops, optim, testing
from needle.ops.registry import COURSE_CLASSES

HOMES = (needle, ops, nn, init, optim, data)
RECORD = Path(__file__).with_name("public_interface.txt")

COURSE_CLASHES = {"Conv", "LogSoftmax", "ReLU", "Tanh"}
"""The course gives op classes these names, layers have them too (LogSoftmax and Tanh are ours)."""


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
    names = {row.name for row in ops.REGISTRY.values()} | COURSE_CLASSES
    assert names | {"REGISTRY", "op"} == set(ops.__all__) and names < set(needle.__all__)
    assert all(getattr(needle, name) is getattr(ops, name) for name in names)


# ---- the recorded interface ------------------------------------------------------------------


def interface() -> list[str]:
    """Return one line per public name: its home, name and parameters."""
    homes = (*HOMES, distributed, testing)
    return [f"{home.__name__}.{line}" for home in homes for line in sorted(_lines(home))]


def _lines(home: ModuleType) -> list[str]:
    return [name + _parameters(getattr(home, name)) for name in home.__all__]


def _parameters(thing: object) -> str:
    """Return the parameters of a function or class, with ``=`` after optional ones."""
    if not callable(thing) or (isinstance(thing, type) and issubclass(thing, BaseException)):
        return ""  # parameters of exceptions differ between versions of Python
    found = inspect.signature(thing).parameters.values()
    return f"({', '.join(map(_parameter, found))})"


def _parameter(found: inspect.Parameter) -> str:
    star = {found.VAR_POSITIONAL: "*", found.VAR_KEYWORD: "**"}.get(found.kind, "")
    return f"{star}{found.name}{'' if found.default is found.empty else '='}"


@pytest.mark.skipif(needle.BACKEND == "np", reason="NumPy mode has NumPy's arrays")
def test_the_public_interface_is_as_recorded() -> None:
    recorded, found = RECORD.read_text("utf-8").splitlines(), interface()
    removed, added = set(recorded) - set(found), set(found) - set(recorded)
    assert not removed and not added, (
        f"removed or changed: {sorted(removed)}; added or changed: {sorted(added)}; if this is "
        "meant, tell users in CHANGELOG.md and run python -m tests.test_public_names"
    )


if __name__ == "__main__":
    RECORD.write_text("\n".join(interface()) + "\n", encoding="utf-8")
    print(f"{len(interface())} names in {RECORD.name}", file=sys.stderr)
