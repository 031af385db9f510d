"""Test the course's tool: blocks, registry and tests agree; exercises can be emptied and solved.

``make test-course`` checks every exercise.
"""

from pathlib import Path

import numpy as np
import pytest

from apps.course import __main__ as course
from apps.course import blocks, pages, progress, proof, rates, registry, wrong
from apps.course.building import PROGRAMS
from apps.course.checking import check
from apps.course.compare import WrongAnswer, expect, expect_error
from apps.course.edition import WRONG, EditionError, put_back, write_edition

ROOT = Path(__file__).resolve().parents[2]
PYTHON = """def f():
    ### BEGIN YOUR SOLUTION [record]
    return 1
    ### END YOUR SOLUTION
"""
CPP = """void f() {
  /// BEGIN SOLUTION [gemm-vectors]
  g();
  /// END SOLUTION
}
"""


def test_tags_are_the_same_in_sources_registry_tests_and_notebook() -> None:
    assert proof.sets_differ(ROOT) == []


@pytest.mark.parametrize(
    ("path", "text", "empty"),
    [
        (
            "a.py",
            PYTHON,
            '    raise NotImplementedError("record: title; python -m apps.course show record")',
        ),
        (
            "a.cc",
            CPP,
            '  ::needle::not_implemented("gemm-vectors: title; '
            'python -m apps.course show gemm-vectors");',
        ),
    ],
)
def test_a_block_is_emptied_and_filled(path: str, text: str, empty: str) -> None:
    (block,) = blocks.blocks_of(path, text)
    assert not blocks.is_open(block)
    emptied = blocks.replaced(text, [block], {block.first: blocks.emptied(block, "title")})
    (opened,) = blocks.blocks_of(path, emptied)
    assert opened.text == empty and blocks.is_open(opened)
    assert blocks.replaced(emptied, [opened], {opened.first: block.text}) == text


def test_markers_that_do_not_pair_are_told_with_their_line() -> None:
    for text in (
        PYTHON.replace("    ### END YOUR SOLUTION\n", ""),
        PYTHON + PYTHON.split("\n")[3],
    ):
        with pytest.raises(blocks.MarkerError, match=r"a\.py:\d: .*restore "):
            blocks.blocks_of("a.py", text)


def test_an_exercise_from_empty_to_solved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check a wrong answer to the exercise hooks, then the solution."""
    tree = tmp_path / "tree"
    part = registry.select(["1"])
    write_edition(ROOT, tree, {exercise.tag for exercise in part})
    with pytest.raises(EditionError, match="not empty"):
        write_edition(ROOT, tree, set())
    monkeypatch.setattr(course, "ROOT", tree)
    notebook = tree / "hw_notebook.py"
    notebook.write_text(notebook.read_text().replace('exercises("record")', 'exercises("adam")'))
    assert proof.sets_differ(tree) == [
        "hw_notebook.py: no ['record']",
        "hw_notebook.py: names adam twice",
    ]
    graph = tree / "python/needle/autograd/graph.py"
    title = registry.exercises()["hooks"].title
    empty = f'raise NotImplementedError("hooks: {title}; python -m apps.course show hooks")'
    assert graph.read_text().count(empty) == 1
    assert course.main(["hint", "hooks"]) == 0
    assert "hint 1 of 1" in capsys.readouterr().out
    graph.write_text(graph.read_text().replace(empty, "return grad"))
    exercises = registry.select(["hooks", "record"])
    record, hooks = results = check(tree, exercises)
    assert (record.state, record.points, hooks.state) == ("open", 0, "fails")
    assert "got  2." in pages.score_table(results)
    (kept,) = put_back(tree, ["hooks"])
    assert "return grad" in kept.read_text()
    assert course.main(["check", "hooks"]) == 0  # the explanation and the next exercise follow
    said = capsys.readouterr().out
    assert "solved" in said and "next: record" in said
    assert progress.states(tree)["hooks"] == "solved"
    assert "next: record" in progress.drawn(tree)
    put_back(tree, [exercise.tag for exercise in part])
    assert graph.read_bytes() == (ROOT / "python/needle/autograd/graph.py").read_bytes()


SLOPES = "return Scalar(self.value * other.value, (self, other), (self.value, other.value))"


@pytest.mark.slow
def test_wrong_answers_must_be_refused_with_their_cause(tmp_path: Path) -> None:
    """Check three wrong answers in one tree, one of which prevents all tests from running."""
    bench = proof.Workbench(ROOT, tmp_path)
    assert not (bench.tree / WRONG).exists()
    swapped = wrong.Wrong("scalar-multiply", "swapped", (SLOPES,), "it must be the other one")
    together = [
        swapped,
        wrong.Wrong("scalar-add", "unclosed", ("return (",), "the file does not parse"),
        wrong.Wrong("scalar-tanh", "constant", ("return Scalar(2.0)",), "words never said"),
    ]
    (unexplained,) = wrong.refused(bench, together)
    assert unexplained.startswith("scalar-tanh, constant: refused without the words 'words never")
    assert "got  2." in unexplained
    tests = bench.tree / "tests/exercises/test_exercises_scalar.py"
    weak = "def expect(*args, **named): pass"
    tests.write_text(tests.read_text().replace("from apps.course.compare import expect", weak))
    (accepted,) = wrong.refused(bench, [swapped])
    assert accepted.startswith("scalar-multiply, swapped: accepted")


def test_the_wrong_answers_fit_their_exercises(tmp_path: Path) -> None:
    found, shown = wrong.wrong_answers(ROOT), blocks.blocks_in(ROOT)
    assert {tag: n for tag, rows in found.items() if (n := len(rows)) < wrong.FEWEST} == {}
    texts = {(w.tag, w.mistake): len(w.answer) for rows in found.values() for w in rows}
    assert {key: n for key, n in texts.items() if n != len(shown[key[0]])} == {}
    (tmp_path / WRONG).mkdir(parents=True)
    for text, said in (
        ('[[recor]]\ncause = "x"', "recor is not an exercise"),
        ('[[record]]\ncause = "x"', r"record: expected mistake, answer and cause, got \['cause'\]"),
        ("[[record", "1_autograd.toml: "),
    ):
        (tmp_path / WRONG / "1_autograd.toml").write_text(text)
        with pytest.raises(registry.RegistryError, match=said):
            wrong.wrong_answers(tmp_path)


@pytest.mark.parametrize(
    ("word", "said"), [("1,4", "parts from 0 to 11, such as 1 4"), ("recor", "similar: record;")]
)
def test_what_is_no_exercise_says_what_there_is(word: str, said: str) -> None:
    with pytest.raises(registry.RegistryError, match=said) as caught:
        registry.select([word])
    assert "apps.course list" in str(caught.value) and len(str(caught.value)) < 250


def test_a_wrong_answer_says_its_likely_cause() -> None:
    right = np.array([[1.0, 2.0], [3.0, 5.0]])
    for got, cause in (
        (None, "return is missing"),
        (right.T, "transpose"),
        (-right, "sign"),
        (right * 3, "times a constant"),
        (right.reshape(4), "wrong shape"),
        (right * np.nan, "NaN"),
        (right.sum(0), "fewer elements"),
        (right + right.T, "both halves"),
    ):
        with pytest.raises(WrongAnswer) as caught:
            expect("f(x)", got, right, mistakes={"both halves were added": right + right.T})
        assert cause in caught.value.case.cause
    expect("f(x)", right + 1e-9, right)
    with pytest.raises(WrongAnswer) as caught:
        expect("f(n)", 3, 4, given={"n": 2})
    assert (caught.value.case.given, caught.value.case.got) == ("n = 2", "3")  # not as floats


def test_a_missing_error_names_its_input() -> None:
    def call(n: int) -> None:
        with expect_error("half(n)", ValueError, "n must be even", given={"n": n}):
            if n % 2:
                raise ValueError(f"n must be {'even' if n == 1 else 'odd'}, got {n}")

    call(1)
    for n, got in ((2, "no error"), (3, "ValueError: n must be odd, got 3")):
        with pytest.raises(WrongAnswer) as caught:
            call(n)
        case = caught.value.case
        assert (case.what, case.given, case.got) == ("half(n)", f"n = {n}", got)
        assert case.expected == "ValueError: ...n must be even..."


def test_a_large_value_is_shown_in_a_few_lines() -> None:
    right = np.arange(729.0).reshape(3, 3, 3, 3, 3, 3)
    with pytest.raises(WrongAnswer) as caught:
        expect("x", right + 1, right)
    assert len(caught.value.case.lines()) < 30


def test_what_cannot_be_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert course.main(["show", "recrd"]) == 2
    assert "record" in capsys.readouterr().err
    assert course.main(["solve", "record"]) == 2
    assert "not a student tree" in capsys.readouterr().err
    assert course.main(["list"]) == 0


def test_a_program_that_fails_while_it_is_timed_is_said(tmp_path: Path) -> None:
    timed = next(e for e in registry.exercises().values() if e.rate.startswith("gemm_ladder"))
    program = tmp_path / "build" / "course" / PROGRAMS["gemm_ladder"]
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho step 03 differs >&2\nexit 1\n")
    program.chmod(0o755)
    assert rates.rate_of(tmp_path, timed) == "not timed: gemm_ladder: step 03 differs"
