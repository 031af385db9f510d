"""Test the course's verdicts: each cause is reported once, with the learner's line of code."""

import ast
import contextlib
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.course import building, checking, pages, progress, registry
from apps.course.blocks import blocks_in, fill
from apps.course.compare import WrongAnswer
from apps.course.edition import write_edition
from apps.course.processes import Guard
from tests.exercises import native_programs

ROOT = Path(__file__).resolve().parents[2]
OPEN = ("hooks", "topo-sort", "pass-on", "backward", "no-grad", "gradients-of")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yield a student tree with short limits: 1 s of computing, 20 s of waiting."""
    target = tmp_path_factory.mktemp("verdicts") / "tree"
    write_edition(ROOT, target, set(OPEN))
    recorder = target / "apps/course/recorder.py"
    text = recorder.read_text().replace("LONGEST = 20", "LONGEST = 1")
    recorder.write_text(text.replace("STUCK = 60", "STUCK = 20"))
    return target


@pytest.fixture
def answered(tree: Path) -> Iterator[Path]:
    """Yield the tree, whose files are restored after the test."""
    names = (
        "python/needle/autograd/graph.py",
        "python/needle/autograd/tensor.py",
        "python/needle/autograd/derivative.py",
    )
    before = {name: (tree / name).read_text() for name in names}
    yield tree
    for name, text in before.items():
        (tree / name).write_text(text)


@pytest.mark.slow
def test_answers_that_end_or_block_the_process_leave_the_others_their_verdicts(
    answered: Path,
) -> None:
    answers = {
        "hooks": "    __import__('threading').Semaphore(0).acquire()",
        "gradients-of": "    __import__('os').abort()",
        "backward": "    return 1",
    }
    fill(answered, {tag: [text] for tag, text in answers.items()})
    chosen = registry.select(["scalar-tanh", "hooks", "backward", "gradients-of", "unbroadcast"])
    results = {r.exercise.tag: r for r in checking.check(answered, chosen)}
    assert results["scalar-tanh"].fine
    waits, ended = (results[tag].first_failure() for tag in ("hooks", "gradients-of"))
    assert waits and "stopped after" in waits["error"] and waits["owner"] == "hooks"
    assert ended and "ended with SIGABRT" in ended["error"] and ended["owner"] == "gradients-of"
    assert [r["error"] for r in results["hooks"].records[1:]] == [checking.NOT_RUN]
    assert "not run" not in str(results["backward"].records)


def test_an_exercise_whose_device_is_missing_is_skipped_with_the_reason(
    tree: Path,
) -> None:
    (tree / "wgpu.py").write_text("raise ImportError('not installed here')\n")
    (result,) = results = checking.check(tree, registry.select(["wgsl-naive"]))
    (tree / "wgpu.py").unlink()
    assert (result.empty, result.points) == (False, 0)
    assert result.state == "skipped" and not result.fine
    said = pages.score_table(results)
    assert "cannot run here: " in said and "pip install 'needle[webgpu]'" in said
    assert "for a hint" not in said and "failing" not in said
    left = dict.fromkeys(registry.exercises(), "own") | {"wgsl-naive": "skipped"}
    assert "All exercises are done" in progress.coming(left)[0]


def test_after_a_loop_the_tests_that_build_on_it_are_not_run(answered: Path) -> None:
    fill(answered, {"topo-sort": ["    while True:\n        pass"]})
    results = checking.check(answered, registry.select(["topo-sort", "backward"]))
    first, *others = [record["error"] for record in results[0].records]
    assert first == "TooLong: stopped after 1 s of computing; is there an infinite loop?"
    assert others and set(others) == {"TooLong: not run: a test of topo-sort had to be stopped"}
    place = results[0].records[0]
    line = (
        (answered / "python/needle/autograd/graph.py")
        .read_text()
        .split("\n")
        .index("    while True:")
    )
    assert place["place"] in {f"python/needle/autograd/graph.py:{line + n}" for n in (1, 2)}
    assert place["owner"] == "topo-sort"


def test_the_place_is_the_learners_line_though_the_library_raises(answered: Path) -> None:
    body = "        seed = output.reshape((17, 19))\n        return seed"
    fill(answered, {"backward": [body.replace("        ", "    ")]})
    (result,) = checking.check(answered, registry.select(["backward"]))
    lines = (answered / "python/needle/autograd/tensor.py").read_text().split("\n")
    line = lines.index("    seed = output.reshape((17, 19))") + 1
    failure = result.first_failure()
    assert failure and failure["place"] == f"python/needle/autograd/tensor.py:{line}"
    assert f"tensor.py:{line}, in the answer to backward" in pages.score_table([result])


def test_a_line_that_fails_many_exercises_is_shown_once(answered: Path) -> None:
    fill(answered, {"backward": ["    if output\n    return 1"], "hooks": ["    return grad"]})
    results = checking.check(answered, registry.select(["backward", "hooks", "pass-on"]))
    said = pages.score_table(results)
    assert said.count("SyntaxError: expected ':'") == said.count("first failing case") == 1
    assert ", in the answer to backward\n" in said and "it also fails" in said
    assert said.endswith("apps.course hint backward")
    # Exercises that are still open are not listed as failures.
    assert "pass-on" not in said.partition("it also fails")[2].partition("for a hint")[0]


def test_a_file_that_cannot_be_imported_does_not_stop_others(answered: Path) -> None:
    path = answered / "apps/scalar_autograd.py"
    text = path.read_text()
    path.write_text(text.replace("\n\n\nclass Scalar", "\n\nlen(3)\n\nclass Scalar", 1))
    try:
        scalar, other = checking.check(answered, registry.select(["scalar-add", "multiply-grad"]))
    finally:
        path.write_text(text)
    failure = scalar.first_failure()
    assert failure and failure["error"].startswith("TypeError: object of type 'int'")
    assert failure["place"].startswith("apps/scalar_autograd.py:")
    assert "did not run" not in str(other.records)


def test_options_of_pytest_in_the_environment_do_not_select_tests(
    answered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    (result,) = checking.check(answered, registry.select(["scalar-add"]))
    assert result.fine


def test_a_test_that_is_not_there_counts_as_failed(answered: Path) -> None:
    there, absent = "test_exercises_scalar.py::test_a_sum", "test_exercises_absent.py::test"
    names = [f"tests/exercises/{name}" for name in (there, absent)]
    records = checking.run_tests(answered, names, "np")
    outcomes = {record["test"]: record["outcome"] for record in records}
    assert outcomes[names[1]] == "failed"


def test_a_build_folder_that_came_with_a_copied_tree_is_made_anew(tmp_path: Path) -> None:
    said = tmp_path / "said"
    tell = Guard(("sh", "-c", f'echo "$@" >> {said}', "sh"))
    folder = tmp_path / "build/course"
    for place, configured in (("/elsewhere", 1), (tmp_path, 0)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "build.ninja").write_text("")
        (folder / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={place}\n")
        said.write_text("")
        assert building.build(tmp_path, ["gemm_ladder"], tell) == ""
        assert said.read_text().count(f"-S {tmp_path} ") == configured


@pytest.mark.parametrize("answer", ["while :; do :; done", "sleep 60"])
def test_a_program_that_never_ends_is_stopped_and_named(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kernels"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    monkeypatch.setattr(native_programs, "built_program", lambda root, name: program)
    monkeypatch.setattr(native_programs, "LONGEST", 1)
    with pytest.raises(WrongAnswer) as caught:
        native_programs.expect_fine("kernels", "softmax")
    case = caught.value.case
    assert case.what == "kernels softmax" and case.got.startswith("stopped after ")


def expressions(text: str) -> Iterator[str]:
    """Yield the expressions of a solution that are long enough to be recognised, without spaces."""
    with contextlib.suppress(SyntaxError):  # the text may not be a complete expression
        body = ast.parse("def f():\n" + textwrap.indent(textwrap.dedent(text), "    "))
        kinds = (ast.BinOp, ast.Call, ast.Compare, ast.Subscript)
        found = (ast.unparse(node) for node in ast.walk(body) if isinstance(node, kinds))
        yield from (shown for each in found if len(shown := "".join(each.split())) >= 14)


def test_no_docstring_contains_an_answer_that_the_task_does_not_state() -> None:
    told = []
    for tag, blocks in blocks_in(ROOT).items():
        contract = registry.exercises()[tag].contract
        if "formula in its docstring" in contract:
            continue
        stated = "".join(contract.split())
        for block in (block for block in blocks if block.path.endswith(".py")):
            tree = ast.parse((ROOT / block.path).read_text())
            kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
            texts = (ast.get_docstring(n) or "" for n in ast.walk(tree) if isinstance(n, kinds))
            docs = ["".join(text.split()).replace("`", "") for text in texts]
            for shown in expressions(block.text):
                told += [(tag, shown) for doc in docs if shown in doc and shown not in stated]
    assert told == []
