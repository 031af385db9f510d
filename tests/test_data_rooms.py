"""Check which imports and names the rooms of data/ may use.

docs/internals/data.md describes the rooms.
"""

import ast
from collections import Counter

from source_tree import IMPORTS, MODULES, PACKAGE

DATA_ROOMS = (
    "samples",
    "formats",
    "transforms",
    "sampling",
    "datasets",
    "batching",
    "workers",
    "loader",
)
"""The rooms of data/, lowest first."""
DATA_FILES = {
    module: path
    for module, path in MODULES.items()
    if module.startswith(tuple(f"needle.data.{name}." for name in DATA_ROOMS))
    and path.name != "__init__.py"
}


def data_floor(module: str) -> int:
    """Return the floor of a module of data/; files outside the rooms are on the top floor."""
    name = (module.split(".") + [""])[2]
    return DATA_ROOMS.index(name) if name in DATA_ROOMS else len(DATA_ROOMS)


def test_every_folder_of_data_is_a_room() -> None:
    folders = {path.parent.name for path in (PACKAGE / "data").glob("*/__init__.py")}
    assert folders == set(DATA_ROOMS)


def test_data_imports_go_down() -> None:
    upward = {
        f"{found.source} imports {found.target}"
        for found in IMPORTS
        if found.source.startswith("needle.data.")
        and found.target.startswith("needle.data")
        and data_floor(found.target) > data_floor(found.source)
    }
    assert not upward


def test_no_two_files_of_data_have_one_name() -> None:
    names = Counter(path.stem for path in DATA_FILES.values() if path.stem != "__main__")
    twice = {f"two files named {name}" for name, number in names.items() if number > 1}
    assert not twice


def test_no_two_classes_of_data_have_one_name() -> None:
    names = Counter(
        node.name
        for path in DATA_FILES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    twice = {f"two classes named {name}" for name, number in names.items() if number > 1}
    assert not twice
