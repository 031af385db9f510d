"""``python -m apps.course``: the commands of the course. Exit status 2 for a request that cannot be
met, 1 where a check does not pass."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from . import pages, progress, proof
from .blocks import MarkerError, blocks_in, open_tags
from .building import LIBRARY, is_built
from .checking import check
from .edition import ROOT, EditionError, is_student_tree, put_back, solutions_of, write_edition
from .rates import rate_line
from .registry import RegistryError, exercises, needed, parts, select

Options = argparse.Namespace
VIEWS = 4
"""The part without which only NumPy's arrays work."""


def student(options: Options) -> int:
    """Writes a student tree."""
    chosen = select(options.parts)
    write_edition(ROOT, options.dir, {exercise.tag for exercise in chosen})
    print(f"{options.dir}: {len(chosen)} exercises are open in it. Begin with")
    print(f"  cd {options.dir}")
    print(f"  python -m apps.course show {chosen[0].tag}")
    if any(exercise.part == VIEWS for exercise in chosen):
        print(f"Arrays of needle's own come with part {VIEWS}. To try things before it:")
        print("  export NEEDLE_BACKEND=np")
    if find_spec("pytest") is None:
        print("  (checks need pytest: python -m pip install pytest)")
    return 0


def show(options: Options) -> int:
    """Prints one exercise."""
    return _page(options.tag, 0)


def hint(options: Options) -> int:
    """Opens the next hint of an exercise."""
    return _page(options.tag, 1)


def _page(tag: str, more: int) -> int:
    (exercise,) = select([tag])[:1]
    if more:
        hints = progress.open_hint(ROOT, exercise)
    else:
        hints = progress.load(ROOT).get(exercise.tag, progress.Entry()).hints
    done = not is_student_tree(ROOT) or progress.states(ROOT)[exercise.tag] in progress.DONE
    found = blocks_in(ROOT).get(exercise.tag, [])
    print(pages.exercise_page(exercise, found, hints, done))
    return 0


def check_answers(options: Options) -> int:
    """Runs tests and prints the score."""
    if find_spec("pytest") is None:
        raise EditionError("check needs pytest; python -m pip install pytest")
    chosen = select(options.what)
    written = [exercise for exercise in chosen if exercise.tag not in open_tags(ROOT)]
    _say_what_is_built({name for exercise in written for name in exercise.builds})
    results = check(ROOT, chosen)
    progress.remember(ROOT, results)
    print(pages.score_table(results))
    for result in results:
        if result.exercise.rate and result.fine:
            print(rate_line(ROOT, result.exercise))
    if len(results) == 1 and results[0].fine:
        print(f"\n{pages.wrapped(chosen[0].explanation)}")
        if is_student_tree(ROOT):
            print("", *progress.coming(progress.states(ROOT), chosen[0].tag), sep="\n")
    elif all(result.state == "open" and not result.first_failure() for result in results):
        print(f"\nwhat it asks, and where: python -m apps.course show {chosen[0].tag}")
    return 0 if all(result.fine for result in results) else 1


def _say_what_is_built(names: set[str]) -> None:
    """A line for what keeps one waiting."""
    new = [name for name in names if not is_built(ROOT, name)]
    if new == [LIBRARY]:
        print(f"compiling examples/{LIBRARY}; half a minute, also after each edit", file=sys.stderr)
    elif new:
        print("compiling all kernels, this once; a few minutes", file=sys.stderr)
    elif names:
        print("compiling what has changed", file=sys.stderr)


def solve(options: Options) -> int:
    """Puts solutions back."""
    tags = [exercise.tag for exercise in select(options.what)]
    if options.with_prerequisites:
        wanted = set(tags).union(*(needed(tag) for tag in tags)) & open_tags(ROOT)
        tags = [tag for tag in exercises() if tag in wanted or tag in tags]
    if not _exact(options.what):  # a part, or all: as far as it is open in this edition
        tags = [tag for tag in tags if tag in solutions_of(ROOT)]
    for path in put_back(ROOT, tags):
        print(f"your answer is kept in {path}")
    print(f"solved: {', '.join(tags)}")
    return 0


def _exact(words: Sequence[str]) -> bool:
    """Whether every word is a tag."""
    return all(word in exercises() for word in words)


def draw_progress(options: Options) -> int:
    """Draws where one is."""
    print(progress.drawn(ROOT))
    return 0


def list_exercises(options: Options) -> int:
    """Prints all exercises."""
    print(pages.list_page(parts()))
    return 0


def prove(options: Options) -> int:
    """The maintainers' proof that blocks, registry and tests fit; see ``proof``."""
    return proof.prove(ROOT, select(options.what))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m apps.course", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, run: Callable[[Options], int], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        return made

    which = {"nargs": "*", "default": ["all"], "metavar": "TAG|PART|all"}
    made = command("student", student, "write a tree with empty exercises to work in")
    made.add_argument("dir", type=Path, help="a new folder")
    made.add_argument("--parts", **which, help="which exercises to empty, such as 1-3")  # type: ignore[arg-type]
    command("list", list_exercises, "every exercise, with its time and points")
    command("show", show, "what an exercise asks, and where").add_argument("tag")
    command("hint", hint, "open the next hint of an exercise").add_argument("tag")
    made = command("check", check_answers, "test answers and print the score")
    made.add_argument("what", **which)  # type: ignore[arg-type]
    made = command("solve", solve, "put solutions back, to go on from there")
    made.add_argument("what", nargs="+", metavar="TAG|PART|all")
    made.add_argument(
        "--with-prerequisites", action="store_true", help="and what they build on, where open"
    )
    command("progress", draw_progress, "where you are")
    made = command(
        "prove", prove, "for maintainers: does every exercise fail and pass as it should?"
    )
    made.add_argument("what", **which)  # type: ignore[arg-type]
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the command line says and returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough, as head has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (EditionError, MarkerError, RegistryError, ImportError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
