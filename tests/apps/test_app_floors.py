"""Check the import directions in apps/; tests/test_architecture.py checks those in python/.

A room is a folder, or a file that lies directly in apps/ or apps/bench/. A room imports rooms of
lower floors only, so there are no cycles.
"""

from tests.source_tree import APPS, imports_of

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
    ("mlp_resnet", "train", "predict", "profile_layers"),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
NOT_FOR_TRAIN = ("bench", "course", "notebook")


def room_of(module: str) -> str:
    """Return the room of a module: "bench.data" of "apps.bench.data.target"."""
    parts = module.split(".")[1:]
    if parts[:1] == ["bench"]:
        return ".".join(parts[:2])
    return parts[0] if parts else ""


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(module) for module in APPS} - {"", "bench"}
    assert rooms <= set(FLOOR_OF), f"give these a floor: {sorted(rooms - set(FLOOR_OF))}"
    assert set(FLOOR_OF) - rooms <= {"recipes"}, "these rooms are gone"


def test_rooms_import_lower_floors_only() -> None:
    wrong = [
        f"{module} imports {target}"
        for module in APPS
        for target in (found.target for found in imports_of(module))
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
            waiting += [found.target for found in imports_of(module)]
    assert "apps.training.run" in seen and "apps.profiling.limits" in seen
    assert not [module for module in seen if room_of(module).split(".")[0] in NOT_FOR_TRAIN]
