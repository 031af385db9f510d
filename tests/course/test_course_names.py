"""Test that the course's module paths and names, listed in course_names.py, work in needle."""

import importlib
import pickle
import sys
from typing import Any

import pytest

import needle
from needle import nn
from needle.backend_selection import BACKEND
from needle.course_names import MODULES, NAMES
from tests.programs import python


def real(home: str, name: str) -> Any:
    return getattr(importlib.import_module(home), name)


def path_of(path: str) -> str:
    if BACKEND == "np" and path.startswith("needle.backend_ndarray"):
        pytest.skip("NumPy has no devices")
    return path


@pytest.mark.parametrize("path", MODULES)
def test_a_module_of_the_course_has_the_real_objects(path: str) -> None:
    module, (home, names) = importlib.import_module(path_of(path)), MODULES[path]
    beside = [name for each in NAMES.get(home, {}).values() for name in each.split()]
    found: dict[str, Any] = {}
    exec(f"from {path} import *", found)
    assert set(found) - {"__builtins__"} == {*names.split(), *beside}
    for name in (*names.split(), *beside):
        assert found[name] is getattr(module, name) is real(home, name)
    with pytest.raises(ImportError, match="nonsense"):
        exec(f"from {path} import nonsense")


FORMS = (
    "import {path} as m; found = m.{first}",
    "import {path}; found = {path}.{first}",
    "from {path} import {first} as found",
    "from {parent} import {last} as m; found = m.{first}",
    "import needle; found = {path}.{first}",
)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_import_finds_a_module_of_the_course(form: str) -> None:
    """Try all paths in a new process, because ``needle.data`` is loaded on first use."""
    program = "import importlib\n"
    for path in sorted(MODULES):
        if BACKEND == "nd" or not path.startswith("needle.backend_ndarray"):
            (parent, _, last), (home, names) = path.rpartition("."), MODULES[path]
            first = names.split()[0]
            program += form.format(path=path, parent=parent, last=last, first=first)
            program += f"\nassert found is importlib.import_module({home!r}).{first}, {path!r}\n"
            program += "del found\n"
    python("-c", program)


def test_data_has_the_modules_of_its_datasets() -> None:
    for name in ("cifar10", "mnist", "ndarray", "ptb"):
        module = importlib.import_module(f"needle.data.datasets.{name}_dataset")
        assert getattr(needle.data, f"{name}_dataset") is module


@pytest.mark.parametrize("place", NAMES)
def test_a_name_of_the_courses_star_imports_is_the_real_object(place: str) -> None:
    package = importlib.import_module(place)
    for home, names in NAMES[place].items():
        for name in names.split():
            assert getattr(package, name) is real(home, name)


def test_a_pickle_finds_a_class_at_its_real_path_and_at_the_courses() -> None:
    layer = importlib.import_module("needle.nn.nn_basic").Linear
    assert layer.__module__ == "needle.nn.linear"
    assert pickle.loads(pickle.dumps(layer)) is nn.Linear
    assert pickle.loads(b"cneedle.nn.nn_basic\nLinear\n.") is nn.Linear


def test_names_of_the_course_are_in_no_list_of_public_names() -> None:
    for place, sources in NAMES.items():
        public = set(getattr(importlib.import_module(place), "__all__", ()))
        kept = {"Tensor", "TensorTuple"} if place == "needle" else set()
        names = {name for each in sources.values() for name in each.split()}
        assert names & public == kept, place
    for path in MODULES:
        parent, _, last = path.rpartition(".")
        if parent in sys.modules:
            assert last not in getattr(sys.modules[parent], "__all__", ())
