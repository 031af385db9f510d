"""Test a student tree's homework notebooks: they run, accept answers and check them."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from apps.course import progress, registry
from apps.course.blocks import blocks_in
from apps.course.checking import Result
from apps.course.edition import put_back, write_edition
from apps.course.notebooks import around, as_markdown, write_notebooks
from apps.course.rates import Rate
from apps.notebook import homework

ROOT = Path(__file__).resolve().parents[2]
TAGS = {"pass-on", "hooks", "gemm-vectors"}
RIGHT = """
parts = node.op.gradient_as_tuple(grad, node)
for source, part in zip(node.inputs, parts, strict=True):
    if source.requires_grad and part is not None:
        pending.setdefault(source, []).append(part)
"""
RUN = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for source in json.load(sys.stdin):
    result = shell.run_cell(source)
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        print("RAISED", type(error).__name__)
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a student tree in which three exercises are open."""
    target = tmp_path / "tree"
    write_edition(ROOT, target, TAGS)
    monkeypatch.setattr(homework, "ROOT", target)
    return target


def run_cells(folder: Path, cells: list[str]) -> str:
    """Run cells as Jupyter does in ``folder``; return what they print, and RAISED with an error."""
    pytest.importorskip("IPython")
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(cells),
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NEEDLE_BACKEND")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def code_cells(path: Path) -> list[str]:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_a_notebook_for_each_part_with_exercises(tree: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    paths = write_notebooks(tree, TAGS)
    assert [path.name for path in paths] == ["part1_autograd.ipynb", "part5_kernels_in_Cpp.ipynb"]
    for path in paths:
        nbformat.validate(nbformat.read(path, as_version=4))
    first = code_cells(paths[0])
    found = next(cell for cell in first if cell.startswith("%%exercise pass-on"))
    assert "# in _pass_on(node: Any, grad: Any" in found
    assert "python/needle/autograd/graph.py:" in found
    assert 'check("pass-on")' in first


@pytest.mark.slow
def test_an_answer_in_a_cell_is_written_checked_and_used(tree: Path) -> None:
    (path, _) = write_notebooks(tree, TAGS)
    start = code_cells(path)[0]
    use = (
        "import needle as ndl; x = ndl.Tensor([2.0, 3.0]); (x * x).sum().backward(); print(x.grad)"
    )
    out = run_cells(path.parent, [start, use])
    assert "needs the exercise pass-on (gradients for the inputs), which is open" in out
    assert "Traceback" not in out and "RAISED NotImplementedError" in out
    wrong = "%%exercise pass-on\n" + RIGHT.replace("is not None", "is None")
    cells = [start, wrong, 'check("pass-on")', "%%exercise pass-on\n" + RIGHT]
    out = run_cells(path.parent, [*cells, 'check("pass-on")', use])
    assert "first failing case" in out and "`hint('pass-on')` opens a hint" in out
    assert "**pass-on: 3 of 3 tests pass**, 2 of 2 points." in out and "**Remember.**" in out
    assert "[4. 6.]" in out


@pytest.mark.slow
def test_an_answer_equal_to_the_solution_earns_its_points(tree: Path) -> None:
    reference = ROOT / "python/needle/autograd/graph.py"
    text = reference.read_text("utf-8").split("[pass-on]\n")[1].split("    ### END")[0]
    assert "written to python/needle/autograd/graph.py" in homework.write_answer("pass-on", text)
    assert "2 of 2 points" in repr(homework.check("pass-on"))
    put_back(tree, ["pass-on"])
    assert "2 of 2 points" in repr(homework.check("pass-on"))
    put_back(tree, ["hooks"])
    assert "0 of 2 points" in repr(homework.check("hooks")).replace(
        "0 of 1 points", "0 of 2 points"
    )


def test_an_answer_that_does_not_parse_is_not_written(tree: Path) -> None:
    before = (tree / "python/needle/autograd/graph.py").read_bytes()
    assert "line 2 of the answer" in homework.write_answer("pass-on", "a = 1\nb = = 2\n")
    assert (tree / "python/needle/autograd/graph.py").read_bytes() == before
    assert "has 1 blocks, got number 2" in homework.write_answer("pass-on", "a = 1", 2)


def test_hints_open_one_by_one(tree: Path) -> None:
    assert "**Hint 1.**" in repr(homework.hint("pass-on"))
    assert "**Hint 2.**" not in repr(homework.hint("hooks"))
    assert "**Hint 2.**" in repr(homework.hint("pass-on"))
    assert "These are all hints." in repr(homework.hint("pass-on"))


@pytest.mark.slow
def test_the_speed_of_an_answer_is_shown_and_kept(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homework, "ROOT", tree)
    exercise = registry.exercises()["gemm-loop-order"]
    passed = Result(exercise, [{"test": test, "outcome": "passed"} for test in exercise.tests])
    monkeypatch.setattr(homework, "run_checks", lambda root, chosen: [passed])
    monkeypatch.setattr(homework, "rate_of", lambda root, chosen: Rate(5.0, 50.0, 100.0))
    shown = homework.check("gemm-loop-order").text
    assert "**Speed.** 5.0 GFLOP/s, 10% of the library's kernel, 5% of this core's peak" in shown
    assert [*progress.load(tree)["gemm-loop-order"].rate] == [5.0, 50.0, 100.0]


def test_an_endless_answer_is_stopped_at_its_line(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = tree / "apps/course/recorder.py"
    recorder.write_text(recorder.read_text().replace("LONGEST = 20", "LONGEST = 1"))
    homework.write_answer("pass-on", "while True:\n    pass\n")
    said = repr(homework.check("pass-on"))
    assert "stopped after 1 s of computing; is there an infinite loop?" in said
    assert "at python/needle/autograd/graph.py:" in said


def test_a_compilers_error_names_the_line_of_the_answer(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homework.write_answer("gemm-vectors", "int a = 1;\nint b = ;\n")
    (block,) = blocks_in(tree)["gemm-vectors"]
    error = f"{tree}/{block.path}:{block.first + 2}:9: error: expected primary-expression"
    monkeypatch.setattr(homework, "build_module", lambda root: error)
    said = repr(homework.rebuild())
    assert "The sources do not compile; the kernels stay as they were." in said
    assert f"```text\n{block.path}:{block.first + 2}:9: error: expected" in said
    assert "This is line 2 of the answer to gemm-vectors: `int b = ;`" in said
    assert str(tree) not in said


@pytest.mark.slow
def test_rebuilt_kernels_are_used_at_once(tree: Path) -> None:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    built = ROOT / f"python/needle/backend_ndarray/ndarray_backend_cpu{suffix}"
    if not built.exists():
        pytest.skip("needs the compiled module")
    (path, _) = write_notebooks(tree, TAGS)
    shutil.copy(built, tree / "python/needle/backend_ndarray")
    prepare = (
        "import needle as ndl, numpy as np; from apps.notebook import homework\n"
        "homework.build_module = lambda root: ''; old = ndl.backends.get('cpu').matmul"
    )
    use = (
        "x = ndl.Tensor(np.arange(6.0).reshape(2, 3), device=ndl.cpu())\n"
        "print((x @ x.transpose()).numpy().tolist(), ndl.backends.get('cpu').matmul is old)"
    )
    cells = [code_cells(path)[0], prepare, use, "print(rebuild())", use, "print(rebuild())", use]
    out = run_cells(path.parent, cells)
    assert "[[5.0, 14.0], [14.0, 50.0]] True" in out
    assert out.count("`needle.cpu()` uses the new kernels.") == 2
    assert out.count("[[5.0, 14.0], [14.0, 50.0]] False") == 2


def test_an_exercise_names_its_question_of_the_public_course() -> None:
    page = (ROOT / "docs" / "course.md").read_text("utf-8")
    rows = re.findall(r"^\| (hw\d.*?) \| .*? \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    listed = {question: re.findall(r"`(.*?)`", tags) for question, _, tags in rows}
    answers: dict[str, list[str]] = {question: [] for question in listed}
    for tag, exercise in registry.exercises().items():
        if exercise.homework:
            answers[exercise.homework].append(tag)
    assert listed == answers
    known = registry.exercises()
    assert known["topo-sort"].counterpart == "In the public course: hw1, question 3."
    assert known["hooks"].counterpart == ""
    for _, place, _ in rows:
        for path in re.findall(r"`([\w./]+/\w*(?:\.py|\.cc)?)`", place):
            assert (ROOT / path).exists() or (ROOT / "python/needle" / path).exists(), path


def test_texts_keep_their_characters_and_lines_in_markdown() -> None:
    shown = as_markdown("N*OH*OW of `a*b`, __len__\n  p = a * b\n  q = c_d\nend")
    assert shown == (
        "N\\*OH\\*OW of `a*b`, \\_\\_len\\_\\_\n\n```text\n  p = a * b\n  q = c_d\n```\n\nend"
    )


def test_the_functions_around_an_answer_have_no_answer() -> None:
    for tag, blocks in blocks_in(ROOT).items():
        for block in blocks:
            shown = around(ROOT, block)
            assert f"[{tag}]\n" in shown and "..." in shown
            longest = max(block.text.split("\n"), key=len).strip()
            assert longest not in shown, tag


def test_what_belongs_to_the_answer() -> None:
    assert homework.answer_of("# in f(x), a.py:3\n") == ""
    assert homework.answer_of("\n// in a.cc:3\n  x();\n  y();\n") == "x();\ny();"
    assert homework.answer_of("# a comment of mine\nreturn 1") == "# a comment of mine\nreturn 1"
    assert homework.answer_of("    return 1\n") == "return 1"


def test_one_exercise_at_a_time() -> None:
    with pytest.raises(registry.RegistryError, match="give the tag of one exercise"):
        homework.hint("1")
