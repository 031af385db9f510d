"""The course and its exercises: python -m apps.course

Exit status: 1 if a check fails, 2 for an invalid request.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from . import grading, pages, portrait, progress, proof
from .blocks import MarkerError, blocks_in, open_tags
from .building import LIBRARY, is_built
from .checking import check
from .edition import ROOT, EditionError, is_student_tree, put_back, solutions_of, write_edition
from .notebooks import FOLDER, write_notebooks
from .rates import rate_of
from .registry import RegistryError, exercises, needed, parts, select
from .tree import VIEWS
from .wrong import prove_wrong

Options = argparse.Namespace


def student(options: Options) -> int:
    """Write a student tree."""
    chosen = select(options.parts)
    tags = {exercise.tag for exercise in chosen}
    write_edition(ROOT, options.dir, tags, not options.without_solutions)
    first = write_notebooks(options.dir.resolve(), tags)[0]
    print(f"{options.dir}: a student tree with {len(chosen)} open exercises. Open a notebook")
    print(f"  jupyter lab {options.dir / FOLDER / first.name}")
    print("or work in a terminal:")
    print(f"  cd {options.dir}")
    print(f"  python -m apps.course show {chosen[0].tag}")
    if any(exercise.part == VIEWS for exercise in chosen):
        print(f"needle's own arrays work from part {VIEWS} on. To experiment before it:")
        print("  export NEEDLE_BACKEND=np")
    if find_spec("pytest") is None:
        print("  (check needs pytest: python -m pip install pytest)")
    return 0


def show(options: Options) -> int:
    """Print one exercise."""
    return _page(options.tag, 0)


def hint(options: Options) -> int:
    """Open the next hint of an exercise."""
    return _page(options.tag, 1)


def _page(tag: str, more: int) -> int:
    (exercise,) = select([tag])[:1]
    if more:
        hints = progress.open_hint(ROOT, exercise)
    else:
        hints = progress.load(ROOT).get(exercise.tag, progress.Entry()).hints
        progress.begin(ROOT)
    done = not is_student_tree(ROOT) or progress.states(ROOT)[exercise.tag] in progress.DONE
    found = blocks_in(ROOT).get(exercise.tag, [])
    print(pages.exercise_page(exercise, found, hints, done))
    return 0


def check_answers(options: Options) -> int:
    """Run tests and print the score."""
    if find_spec("pytest") is None:
        raise EditionError("check: needs pytest; python -m pip install pytest")
    chosen = select(options.what)
    written = [exercise for exercise in chosen if exercise.tag not in open_tags(ROOT)]
    _announce_builds({name for exercise in written for name in exercise.builds})
    results = check(ROOT, chosen)
    progress.remember(ROOT, results)
    print(pages.score_table(results))
    for result in results:
        if result.exercise.rate and result.fine:
            rate = rate_of(ROOT, result.exercise)
            progress.remember_rate(ROOT, result.exercise.tag, rate)
            print(f"{result.exercise.tag:<22} {rate}")
    if len(results) == 1 and results[0].fine:
        print(f"\n{pages.explanation(chosen[0])}")
        if is_student_tree(ROOT):
            print("", *progress.coming(progress.states(ROOT), chosen[0].tag), sep="\n")
    elif all(result.state == "open" and not result.first_failure() for result in results):
        print(f"\ntask and place: python -m apps.course show {chosen[0].tag}")
    return 0 if all(result.fine for result in results) else 1


def _announce_builds(names: set[str]) -> None:
    """Print a line about a build that takes time."""
    new = [name for name in names if not is_built(ROOT, name)]
    if new == [LIBRARY]:
        print(f"compiling examples/{LIBRARY}: half a minute, after each edit", file=sys.stderr)
    elif new:
        print("compiling all kernels, once: a few minutes", file=sys.stderr)
    elif names:
        print("compiling changed files", file=sys.stderr)


def solve(options: Options) -> int:
    """Restore solutions."""
    tags = [exercise.tag for exercise in select(options.what)]
    if options.with_prerequisites:
        wanted = set(tags).union(*(needed(tag) for tag in tags)) & open_tags(ROOT)
        tags = [tag for tag in exercises() if tag in wanted or tag in tags]
    if not _exact(options.what):  # for a part or "all": only those that were open in this tree
        tags = [tag for tag in tags if tag in solutions_of(ROOT)]
    for path in put_back(ROOT, tags):
        print(f"your answer was saved in {path}")
    print(f"solved: {', '.join(tags)}")
    return 0


def _exact(words: Sequence[str]) -> bool:
    """Return True if every word is a tag."""
    return all(word in exercises() for word in words)


def draw_progress(options: Options) -> int:
    """Print the progress, or write it as a page."""
    if options.html is None:
        print(progress.drawn(ROOT))
    else:
        portrait.write(ROOT, options.html)
        print(f"written to {options.html}; open it in a browser")
    return 0


def list_exercises(options: Options) -> int:
    """Print all exercises."""
    print(pages.list_page(parts()))
    return 0


def grade(options: Options) -> int:
    """Grade submissions and write a table."""
    rules = grading.Rules(options.jobs, options.minutes, options.memory)
    grading.grade(ROOT, options.submissions, select(options.parts), options.out, rules)
    return 0


def prove(options: Options) -> int:
    """Check that blocks, registry and tests are consistent; see ``proof``."""
    proof_of = prove_wrong if options.wrong else proof.prove
    return proof_of(ROOT, select(options.what))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m apps.course", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, run: Callable[[Options], int], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        return made

    which = {"nargs": "*", "default": ["all"], "metavar": "TAG|PART|all"}
    made = command("student", student, "write a tree with empty exercises")
    made.add_argument("dir", type=Path, help="a new folder")
    made.add_argument("--parts", **which, help="which exercises to empty, such as 1-3")  # type: ignore[arg-type]
    made.add_argument(
        "--without-solutions", action="store_true", help="for a graded homework: no solve"
    )
    command("list", list_exercises, "list every exercise with its time and points")
    command("show", show, "show the task of an exercise and its place").add_argument("tag")
    command("hint", hint, "open the next hint of an exercise").add_argument("tag")
    made = command("check", check_answers, "test answers and print the score")
    made.add_argument("what", **which)  # type: ignore[arg-type]
    made = command("solve", solve, "restore solutions")
    made.add_argument("what", nargs="+", metavar="TAG|PART|all")
    made.add_argument(
        "--with-prerequisites", action="store_true", help="also solve what they build on"
    )
    made = command("progress", draw_progress, "show your progress")
    made.add_argument(
        "--html",
        nargs="?",
        type=Path,
        const=Path("progress.html"),
        metavar="FILE",
        help="write a page of what you have built, with the filters of your own LeNet",
    )
    made = command("grade", grade, "for teachers: grade submissions into a CSV file")
    made.add_argument("submissions", nargs="+", type=Path, metavar="FOLDER|ZIP")
    made.add_argument("--parts", **which, help="the exercises of the homework")  # type: ignore[arg-type]
    made.add_argument("--out", type=Path, default=Path("grades.csv"), metavar="FILE")
    made.add_argument("--jobs", type=int, default=1, help="submissions at the same time")
    made.add_argument("--minutes", type=float, default=15, help="time limit of a submission")
    made.add_argument("--memory", type=float, default=8, help="GiB of address space of a process")
    made = command(
        "prove", prove, "for maintainers: check that exercises fail and pass as they should"
    )
    made.add_argument("what", **which)  # type: ignore[arg-type]
    made.add_argument(
        "--wrong", action="store_true", help="that wrong answers are refused with their cause"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (EditionError, MarkerError, RegistryError, ImportError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
