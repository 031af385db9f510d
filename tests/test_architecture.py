"""Check the layers of the code: which imports are allowed in Python and in C++.

ARCHITECTURE.md draws the same layers, which it calls floors. Nothing here runs the code that it
reads. The rooms of data/ have tests of their own (test_data_rooms.py).
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_tree import IMPORTS, MODULES, ROOT

SOURCES = ROOT / "src"

COURSE_NAMES = ("backend_ndarray", "backend_numpy", "backend_selection")
"""Aliases for programs of the course; only the roof and other aliases may import them."""

CONTEXTS = ("contexts", "interrupts")
"""The second is a compiled module, which only the first imports."""

FLOORS = {
    0: ("errors", "config", "dtypes", "shapes", *CONTEXTS, "host_steps", "torch_names"),
    1: ("backends",),
    2: ("ndarray", "accelerated", "array_namespace", *COURSE_NAMES),
    3: ("autograd",),
    4: ("ops",),
    5: ("init", "optim", "distributed"),
    6: ("nn", "testing", "io", "capture", "course_names", "onnx"),
}
FLOOR_OF = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
DATA_MAY_SEE = {0, 1, 2}
ABOVE_DATA = ("remote", "sharing")
"""Leaf rooms that may import ``data`` and everything that ``data`` may import."""
LEAVES = (*ABOVE_DATA, "backends.webgpu", "capture", "course_names", "distributed", "onnx")
"""Rooms that only some users need; only the roof may import them."""
AT_FIRST_USE = {
    ("needle.backend_ndarray", "needle.course_names"),
    ("needle.data", "needle.course_names"),
    ("needle.data", "needle.remote"),
    ("needle.data", "needle.sharing"),
}
"""Packages with names that a leaf defines, which they import on first use or if it exists."""


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def test_every_module_has_a_floor() -> None:
    rooms = {room(module) for module in MODULES} - {"", "__main__", "data", *ABOVE_DATA}
    assert rooms <= set(FLOOR_OF), f"give these a floor: {sorted(rooms - set(FLOOR_OF))}"


@pytest.mark.parametrize("source", sorted(MODULES))
def test_imports_go_down(source: str) -> None:
    if room(source) in ("", "__main__"):
        return  # the top level may import every room
    for found in (each for each in IMPORTS if each.source == source):
        there, here = room(found.target), room(source)
        where = f"{source}:{found.line} imports {found.target}"
        assert there != "", f"{where}: the roof is imported by nobody inside"
        assert there not in COURSE_NAMES or here in COURSE_NAMES, f"{where}: the course's alias"
        if (found.source, found.target) in AT_FIRST_USE:
            continue
        if here in ("data", *ABOVE_DATA):
            assert there in ("data", here) or FLOOR_OF[there] in DATA_MAY_SEE, where
        else:
            assert there != "data" and FLOOR_OF[there] <= FLOOR_OF[here], where


def test_no_room_imports_a_leaf() -> None:
    def leaf(module: str) -> str:
        return next((name for name in LEAVES if f"{module}.".startswith(f"needle.{name}.")), "")

    found = [
        f"{each.source}:{each.line} imports {each.target}"
        for each in IMPORTS
        if leaf(each.target) not in ("", leaf(each.source))
        and room(each.source) not in ("", "__main__")
        and (each.source, each.target) not in AT_FIRST_USE
    ]
    assert not found, "\n".join(found)


def test_no_import_inside_a_function() -> None:
    late = [f"{e.source}:{e.line} imports {e.target}" for e in IMPORTS if e.in_function]
    assert not late, (
        "import at the top, or move the code to the floor it belongs to:\n" + "\n".join(late)
    )


def test_no_import_cycle() -> None:
    edges: dict[str, set[str]] = {module: set() for module in MODULES}
    for found in IMPORTS:
        # A package's __init__ imports its own files by design, which is not a cycle; a file that
        # imports its own package would be one, and is kept.
        if found.target in MODULES and found.target != found.source:
            edges[found.source].add(found.target)
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, "cycle: " + " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            for target in sorted(edges[module]):
                visit(target, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


REGISTRATIONS = {
    "needle.autograd: evaluation.lazy",
    "needle: array_namespace.tensor_type",
    "needle: array_namespace.tensor_constant",
    "needle.ndarray.array: BackendDevice.array_type",
    "needle.ndarray.protocols: NDArray.__lshift__",
    "needle.ndarray.protocols: NDArray.__rlshift__",
    "needle.ndarray.protocols: NDArray.__rrshift__",
    "needle.ndarray.protocols: NDArray.__rshift__",
    "needle.ndarray.protocols: NDArray.__array_namespace__",
    "needle.ndarray.protocols: NDArray.__array_ufunc__",
    "needle.ops.tuples: TensorTuple.item_of",
    "needle.ops.tuples: TensorTuple.sum_of",
    "needle.capture: current.recorder",
}
"""The attributes that a file sets on an object of a lower floor, all of them deliberately.

Such an attribute lets the lower floor call upward without an import, so each needs a reason.
Devices and batches create objects of classes above them. NumPy and the array API standard ask an
array for its functions. Course programs set ``needle.autograd.LAZY_MODE``. TensorTuple needs two
ops for its items. A recorder listens to a thread and to reads of gradients.
"""


def own_names(tree: ast.AST) -> set[str]:
    """Return the names that a file imports from needle."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.level or (node.module or "").startswith("needle"))
        for alias in node.names
    }


def test_nothing_is_set_on_a_lower_floor_but_registrations() -> None:
    found = set()
    for module, path in MODULES.items():
        tree = ast.parse(path.read_text())
        imported = own_names(tree)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id in imported
            ):
                source = module if room(module) != "capture" else "needle.capture"
                found.add(f"{source}: {ast.unparse(node)}")
    assert found == REGISTRATIONS


def test_no_private_name_is_imported() -> None:
    """Test imported names; ruff's rule SLF001 checks attributes."""
    found = [
        f"{module}:{node.lineno} {ast.unparse(node)}"
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
        if any(re.match("_[^_]", alias.name) for alias in node.names)
    ]
    assert not found


def test_the_environment_is_read_in_config_only() -> None:
    readers = [
        str(path.relative_to(ROOT))
        for path in MODULES.values()
        if path.name != "config.py" and re.search(r"os\.(environ|getenv)", path.read_text())
    ]
    assert not readers, f"add a row to config.py instead: {readers}"


GENERATED = {"isa_list.h"}  # generated by CMakeLists.txt

INCLUDE = re.compile(r'^\s*#include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
CPP_MAY_SEE = {
    "core": {"core"},
    "cpu": {"core", "cpu"},
    "cuda": {"core", "cuda"},
    "data": {"core", "data"},
    "bindings": {"core", "cpu", "cuda", "data", "bindings"},
}


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.*")), ids=lambda p: p.name)
def test_cpp_includes_go_down(path: Path) -> None:
    if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
        return
    here = path.relative_to(SOURCES).parts[0]
    for quoted, angled in INCLUDE.findall(path.read_text()):
        if angled:
            foreign = angled == "Python.h" or angled.startswith("pybind11")
            assert not foreign or here == "bindings", f"{path.name}: {angled} outside bindings"
        elif quoted not in GENERATED:
            found = [SOURCES / quoted, path.parent / quoted, *SOURCES.glob(f"*/{quoted}")]
            target = next((p.resolve() for p in found if p.exists()), None)
            assert target is not None, f"{path.name}: {quoted} does not exist"
            there = target.relative_to(SOURCES).parts[0]
            assert there in CPP_MAY_SEE[here], f"{path.name} includes {quoted} of {there}/"


WITHOUT_STATE = {"needle.data.samples.timing"}
"""Modules whose ``__exit__`` restores nothing that outlives the call."""
WITHOUT_MODES = re.compile(
    r"needle\.(contexts|backends|data\.(datasets|formats|workers)|distributed|onnx|remote|sharing)\b"
)
"""Modules with context managers of ``contextlib``, for files, locks and errors."""


def is_uninterrupted(node: ast.FunctionDef) -> bool:
    only_self = [ast.unparse(each) for each in node.body] == ["return self"]
    return only_self or "uninterrupted" in map(ast.unparse, node.decorator_list)


def interruptible(module: str) -> Iterator[str]:
    """Yield the places where a Ctrl-C could be lost in a callback or leave a mode switched."""
    nodes = list(ast.walk(ast.parse(MODULES[module].read_text())))
    functions = [each for each in nodes if isinstance(each, ast.FunctionDef)]
    safe = {each.name for each in functions if is_uninterrupted(each)}
    for each in functions:
        mode = each.name in ("__enter__", "__exit__") and module not in WITHOUT_STATE
        if (mode or each.name == "__del__") and not is_uninterrupted(each):
            yield f"{module}:{each.lineno} {each.name} is not uninterrupted"
    references = {"weakref.ref"}
    for node in nodes:
        if isinstance(node, ast.ClassDef) and "weakref.ref" in map(ast.unparse, node.bases):
            references.add(node.name)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "weakref":
            if node.attr != "ref" and module != "needle.contexts":
                yield f"{module}:{node.lineno} weakref.{node.attr} calls Python code"
        elif isinstance(node, ast.ImportFrom) and node.module == "contextlib":
            names = {alias.name for alias in node.names}
            if "contextmanager" in names and not WITHOUT_MODES.match(module):
                yield f"{module}:{node.lineno} contextmanager: use needle.contexts.context"
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in references:
            for callback in map(ast.unparse, node.args[1:]):
                if callback not in safe and not re.match(r"partial\([\w.]+\.pop, ", callback):
                    yield f"{module}:{node.lineno} {callback} may be Python code"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_ctrl_c_is_lost_in_a_callback(module: str) -> None:
    assert not list(interruptible(module))
