"""Recipes: small TOML files with the options of a run, the expected accuracy and its source.

A recipe in apps/recipes/ is found by name, any other one by its path. The keys are the fields of
Settings; the table [expected] has the accuracy and where it was published. Called by train.py.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from needle import data
from needle.errors import DataError, unknown_name

from .settings import Settings

try:
    import tomllib
except ImportError:  # Python 3.10
    try:
        import tomli as tomllib  # type: ignore[no-redef]
    except ImportError:
        tomllib = None  # type: ignore[assignment]

FOLDER = Path(__file__).resolve().parents[1] / "recipes"


@dataclass(frozen=True)
class Recipe:
    """Options by the names of Settings; the expected accuracy (0 to 1) and its source, if known."""

    name: str
    options: dict[str, Any]
    accuracy: float | None = None
    source: str = ""


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with needle."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_recipe(name: str) -> Recipe:
    """Return the recipe with that name or path; UnknownNameError if there is none."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        if name.endswith(".toml"):
            raise DataError(f"recipe: there is no file {path}; check the path")
        raise unknown_name("recipe", name, recipe_names())
    return read_recipe(path)


def read_recipe(path: Path) -> Recipe:
    """Read a recipe file; DataError names the file and the mistake."""
    if tomllib is None:
        raise ImportError("recipes need tomli on Python 3.10; pip install 'needle[train]'")
    try:
        options = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"recipe {path}: not a TOML file ({error}); correct it") from error
    expected = options.pop("expected", {})
    known = {field.name: field.type for field in fields(Settings) if field.name != "recipe"}
    unknown = sorted(set(options) - set(known)) + sorted(set(expected) - {"accuracy", "source"})
    missing = sorted({"model", "data"} - set(options))
    if unknown or missing:
        raise DataError(
            f"recipe {path}: needs model and data, and may have {', '.join(known)} and [expected] "
            f"with accuracy and source; missing {missing}, unknown {unknown}; correct the file"
        )
    for key, value in options.items():
        if not _fits(value, known[key]):
            raise DataError(f"recipe {path}: {key} must be {known[key]}, got {value!r}; correct it")
    augmentations(options.get("augment", []))  # to report mistakes now, not when the run starts
    return Recipe(path.stem, options, expected.get("accuracy"), expected.get("source", ""))


def augmentations(rows: list[dict[str, Any]]) -> list[data.Transform]:
    """Return the transforms of rows such as ``{"transform": "RandomCrop", "padding": 4}``."""
    made = []
    for row in rows:
        options = dict(row)
        name = options.pop("transform", "")
        known = [each for each in data.__all__ if _is_transform(getattr(data, each))]
        if name not in known:
            raise unknown_name("transform", name, known)
        listed = {key: tuple(v) if isinstance(v, list) else v for key, v in options.items()}
        try:
            made.append(getattr(data, name)(**listed))
        except TypeError as error:
            raise DataError(f"recipe: {name} does not accept {options} ({error})") from error
    return made


def _is_transform(value: Any) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, data.Transform)
        and value.__init__ is not (object.__init__)
    )


def _fits(value: Any, kind: Any) -> bool:
    """Return True if a TOML value has the type of a field, given by its name."""
    kinds: dict[str, Any] = {"str": str, "int": int, "float": (int, float), "bool": bool}
    if kind not in kinds:
        return isinstance(value, list)
    return isinstance(value, kinds[kind]) and (kind == "bool" or not isinstance(value, bool))
