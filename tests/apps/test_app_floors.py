"""The import directions of apps/, read from the sources; tests/test_architecture.py does python/.

A room is a folder, or a file that lies directly in apps/ or apps/bench/. A room imports rooms of
lower floors only, so there are no cycles.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FLOORS: tuple[tuple[str, ...], ...] = (
    ("models", "pictures", "recipes", "scalar_autograd"),
    ("profiling", "simple_ml"),
    ("training",),
    ("prediction", "plot", "upload"),
    ("bench.ladder", "bench.harness"),
    ("bench.data", "bench.against"),
    ("bench.gemm_ladder", "bench.conv_ladder", "bench.webgpu_ladder"),
    ("course",),
    ("notebook",),
    ("mlp_resnet", "train", "predict", "profile_layers", "make_digits"),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
NOT_FOR_TRAIN = ("bench", "course", "notebook")


def room_of(module: str) -> str:
    """Return the room of a module: "bench.data" of "apps.bench.data.target"."""
    parts = module.split(".")[1:]
    if parts[:1] == ["bench"]:
        return ".".join(parts[:2])
    return parts[0] if parts else ""


def modules() -> dict[str, Path]:
    """Return the modules below apps/ by name."""
    found = {}
    for path in sorted((ROOT / "apps").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports_of(module: str) -> Iterator[str]:
    """Yield the modules of apps/ that one module imports, by statement or by import_module."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("apps"))
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = node.module or "" if not node.level else ".".join([*above, node.module or ""])
            base = base.rstrip(".")
            if base.split(".")[0] == "apps":
                for alias in node.names:
                    name = f"{base}.{alias.name}"
                    yield name if name in MODULES else base
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [each.value for each in node.args if isinstance(each, ast.Constant)]
            yield from (name for name in names if name in MODULES)


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(module) for module in MODULES} - {"", "bench"}
    assert rooms <= set(FLOOR_OF), f"give these a floor: {sorted(rooms - set(FLOOR_OF))}"
    assert set(FLOOR_OF) - rooms <= {"recipes"}, "these rooms are gone"


def test_rooms_import_lower_floors_only() -> None:
    wrong = [
        f"{module} imports {target}"
        for module in MODULES
        for target in imports_of(module)
        if (here := room_of(module)) != (there := room_of(target))
        and FLOOR_OF[there] >= FLOOR_OF[here]
    ]
    assert not wrong, "\n".join(wrong)


def test_training_imports_neither_benchmarks_nor_the_course() -> None:
    seen, waiting = set(), ["apps.train"]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += imports_of(module)
    assert "apps.training.run" in seen and "apps.profiling.limits" in seen
    assert not [module for module in seen if room_of(module).split(".")[0] in NOT_FOR_TRAIN]
