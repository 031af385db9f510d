"""Run each part's homework notebook from start to end, in an unsolved and in a solved tree."""

import re
from pathlib import Path

import pytest

import needle
from apps.course.edition import put_back, write_edition
from apps.course.notebooks import write_notebooks
from apps.course.registry import Part, exercises, parts
from tests.notebook.test_homework import code_cells, run_cells

ROOT = Path(__file__).resolve().parents[2]
every_part = pytest.mark.parametrize("part", parts(), ids=lambda part: f"part{part.number}")


def output(notebook: Path, left_out: tuple[str, ...] = ()) -> str:
    """Return the output of a notebook without the cells ``left_out``."""
    cells = [source for source in code_cells(notebook) if source not in left_out]
    return run_cells(notebook.parent, cells)


def notebook_of(tree: Path, part: Part) -> Path:
    (path,) = write_notebooks(tree, {exercise.tag for exercise in part.exercises})
    return path


@pytest.mark.slow
@every_part
def test_an_empty_notebook_invites_to_its_exercises(part: Part, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    write_edition(ROOT, tree, set(exercises()))
    out = output(notebook_of(tree, part))
    assert f"a student tree, {len(exercises())} of " in out
    assert "Traceback" not in out
    assert set(re.findall(r"^RAISED (\w+)", out, re.MULTILINE)) <= {
        "NotImplementedError",  # the cell shows an invitation to solve it
        "Unavailable",
    }
    for exercise in part.exercises:
        assert f"{exercise.tag} is open; write your answer into this cell or edit" in out
        assert f"{exercise.tag} is open: write your answer, then run this cell again." in out


@pytest.mark.slow
@every_part
def test_a_solved_notebook_passes_its_checks(part: Part, tmp_path: Path) -> None:
    """Leave out compiled exercises (make test-course checks them), and WGSL without an adapter."""
    tree = tmp_path / "tree"
    write_edition(ROOT, tree, set(exercises()))
    put_back(tree, list(exercises()))
    on_adapter = needle.webgpu().enabled()
    checked = [
        each
        for each in part.exercises
        if not each.builds and (on_adapter or not each.tag.startswith("wgsl-"))
    ]
    out = output(
        notebook_of(tree, part),
        tuple(f'check("{each.tag}")' for each in part.exercises if each not in checked),
    )
    assert "Traceback" not in out and "RAISED" not in out
    for exercise in checked:
        verdict = re.search(rf"\*\*{exercise.tag}: (\d+) of (\d+) tests pass\*\*", out)
        assert verdict and verdict[1] == verdict[2], exercise.tag


@pytest.mark.slow
def test_the_tour_stops_with_an_invitation_on_an_empty_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    write_edition(ROOT, tree, set(exercises()))
    out = output(tree / "hw_notebook.ipynb")
    until, error, _ = re.split(r"^RAISED (\w+)", out, maxsplit=1, flags=re.MULTILINE)
    assert error == "NotImplementedError"
    assert "This cell needs the exercise record (the node of an operation), which is open" in until
