"""Exercises inside a notebook: write an answer, check it, open hints.

``start`` registers ``%%exercise TAG``, which writes the cell into the marked block of its file.
``check`` and ``hint`` do what the commands of apps.course do; ``rebuild`` compiles the kernels of
``needle.cpu()``. Called by the notebooks that ``apps.course.notebooks`` writes.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import sysconfig
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from apps.course import pages, progress
from apps.course.blocks import Block, blocks_in, fill, is_open, replaced
from apps.course.building import build_module
from apps.course.checking import Result
from apps.course.checking import check as run_checks
from apps.course.edition import ROOT, is_student_tree
from apps.course.notebooks import as_markdown
from apps.course.outcome import open_tag
from apps.course.rates import rate_of
from apps.course.registry import Exercise, RegistryError, select
from needle import array_namespace, backends
from needle.backends import native

HEADER = "in "
"""The first word of the comment that opens an exercise's cell and is not part of the answer."""
PLACE = re.compile(r"([\w./+-]+\.(?:py|cc|h|cu)):(\d+)")
"""A line of a source file in an error: path and number."""


class Page:
    """Text in Markdown that a notebook shows, and a terminal prints."""

    def __init__(self, *paragraphs: str) -> None:
        self.text = "\n\n".join(paragraphs)

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text


class Unavailable(NotImplementedError):
    """Raised if a cell needs a part of needle that this session lacks."""


def own_arrays() -> ModuleType:
    """Return needle's own arrays, ``needle.ndarray``; Unavailable in NumPy mode."""
    if array_namespace.BACKEND != "nd":
        raise Unavailable(
            "This cell needs needle's own arrays, and this session uses NumPy's: unset "
            "NEEDLE_BACKEND; in a student tree, solve part 4 first. Then restart the kernel."
        )
    return array_namespace.array_api  # type: ignore[no-any-return]


def kernels_of(device: Any) -> Any:
    """Return the compiled kernels of a device; Unavailable if there are none."""
    own_arrays()
    if not hasattr(device.backend, "module"):
        raise Unavailable("This cell needs the compiled kernels: run make build, then restart.")
    return device.backend


def start() -> None:
    """Register ``%%exercise``, and explain open exercises instead of showing tracebacks."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    if shell is None:
        return
    shell.register_magic_function(_exercise_cell, "cell", "exercise")

    def invite(shell: Any, kind: type, error: BaseException, trace: Any, **_: Any) -> None:
        tag = open_tag(error)
        if tag:
            print(invitation(_one(tag)))
        elif isinstance(error, Unavailable):
            print(error)
        else:
            shell.showtraceback((kind, error, trace))

    shell.set_custom_exc((NotImplementedError,), invite)


def invitation(exercise: Exercise) -> str:
    """Return the text for a cell that needs an open exercise."""
    return (
        f"This cell needs the exercise {exercise.tag} ({exercise.title}), which is open: part "
        f"{exercise.part}, about {exercise.minutes} minutes."
    )


def _one(tag: str) -> Exercise:
    found = select([tag])
    if len(found) != 1:
        raise RegistryError(f"{tag}: give the tag of one exercise, such as {found[0].tag}")
    return found[0]


def _exercise_cell(line: str, cell: str) -> None:
    """Write the cell's text into the block of an exercise: ``%%exercise TAG [NUMBER]``."""
    tag, _, number = line.strip().partition(" ")
    print(write_answer(tag, cell, int(number or 1)))


def write_answer(tag: str, cell: str, number: int = 1) -> str:
    """Write an answer into block ``number`` (from 1) of an exercise; return what was done.

    A cell without an answer leaves the file as it is, so that learners can edit the file instead.
    """
    exercise = _one(tag)
    blocks = blocks_in(ROOT).get(tag, [])
    if not 1 <= number <= len(blocks):
        return f"{tag} has {len(blocks)} blocks, got number {number}"
    block = blocks[number - 1]
    place = f"{block.path}:{block.first + 1}"
    body = answer_of(cell)
    if not body:
        state = "is open" if is_open(block) else "is answered in the file"
        return f"{tag} {state}; write your answer into this cell or edit {place}"
    if not is_student_tree(ROOT):
        return f"{tag}: the full sources stay as they are; write a student tree to answer exercises"
    text = textwrap.indent(body, block.indent)
    if problem := _syntax_problem(block, text):
        return f"{tag} was not written: {problem}"
    fill(ROOT, {tag: [text if each is block else each.text for each in blocks]})
    return f"written to {place}; check({exercise.tag!r}) tests it"


def answer_of(cell: str) -> str:
    """Return the answer in a cell: dedented, without the comment that names the place."""
    lines = cell.strip("\n").split("\n")
    while lines and (not lines[0].strip() or lines[0].lstrip("#/ ").startswith(HEADER)):
        if lines[0].strip() and not lines[0].lstrip().startswith(("#", "//")):
            break
        lines.pop(0)
    return textwrap.dedent("\n".join(lines)).strip("\n")


def _syntax_problem(block: Block, text: str) -> str:
    """Return the syntax error of a Python answer as text, or "" if it parses."""
    path = ROOT / block.path
    if path.suffix != ".py":
        return ""
    whole = replaced(path.read_text("utf-8"), [block], {block.first: text})
    try:
        compile(whole, block.path, "exec")
    except SyntaxError as error:
        line = (error.lineno or block.first + 1) - block.first
        return f"line {line} of the answer: {error.msg}"
    return ""


def hint(tag: str) -> Page:
    """Open the next hint of an exercise and show all open ones."""
    exercise = _one(tag)
    opened = progress.open_hint(ROOT, exercise)
    if not is_student_tree(ROOT):
        opened = len(exercise.hints)
    numbered = enumerate(exercise.hints[:opened], 1)
    left = len(exercise.hints) - opened
    return Page(
        *(f"**Hint {number}.** {as_markdown(text)}" for number, text in numbered),
        f"{left} more: call `hint({tag!r})` again." if left else "These are all hints.",
    )


def check(tag: str) -> Page:
    """Test the answer to an exercise; show the verdict and, if it passes, what to remember.

    An answer that passes is timed, if the exercise is about speed.
    """
    exercise = _one(tag)
    results = run_checks(ROOT, [exercise])
    progress.remember(ROOT, results)
    paragraphs = verdict(results[0])
    if exercise.rate and results[0].fine:
        rate = rate_of(ROOT, exercise)
        progress.remember_rate(ROOT, tag, rate)
        paragraphs.insert(1, f"**Speed.** {str(rate).strip()}")
    return Page(*paragraphs)


def verdict(result: Result) -> list[str]:
    """Return the paragraphs that report a result to the learner."""
    exercise, count = result.exercise, len(result.records)
    marks = "".join("✓" if record["outcome"] == "passed" else "✗" for record in result.records)
    head = f"`{marks}` **{exercise.tag}: {result.passed} of {count} tests pass**"
    if result.fine:
        points = f"{result.points} of {exercise.points} points"
        return [f"{head}, {points}.", f"**Remember.** {as_markdown(exercise.explanation)}"]
    if result.state == "waits":
        return [f"{head}. It waits for {', '.join(result.waits_for)}."]
    failure = result.first_failure()
    if failure is None:
        return [f"{exercise.tag} is open: write your answer, then run this cell again."]
    case = "\n".join(pages.failing_case(failure))
    own = line_of_answer(case, [exercise.tag])
    return [f"{head}.", _shown(case), *own, f"`hint({exercise.tag!r})` opens a hint."]


def line_of_answer(text: str, tags: Iterable[str]) -> list[str]:
    """Return a paragraph on the first line of the answer that an error message names, if any.

    A compiler's errors omit the tree's folder, so paths are compared by their ends.
    """
    found = blocks_in(ROOT)
    blocks = [block for tag in tags for block in found.get(tag, [])]
    for path, number in PLACE.findall(text):
        for block in blocks:
            if path.endswith(block.path) and block.first < int(number) <= block.last:
                line = int(number) - block.first
                code = block.text.split("\n")[line - 1].strip()
                return [f"This is line {line} of the answer to {block.tag}: `{code}`"]
    return []


def _shown(text: str) -> str:
    """Return text as a block of Markdown, with paths within the tree."""
    return f"```text\n{text.replace(f'{ROOT}/', '')}\n```"


def rebuild() -> Page:
    """Compile the tree's edited C++ sources and use the new kernels on ``needle.cpu()``.

    The first call compiles all kernels, which takes minutes. Existing arrays keep the kernels that
    they were made with.
    """
    problem = build_module(ROOT)
    if problem:
        own = line_of_answer(problem, blocks_in(ROOT))
        return Page(
            "The sources do not compile; the kernels stay as they were.", _shown(problem), *own
        )
    suffix = sysconfig.get_config_var("EXT_SUFFIX")  # not a module of another Python
    use_module(ROOT / f"python/needle/backend_ndarray/ndarray_backend_cpu{suffix}")
    if array_namespace.BACKEND != "nd":
        return Page(
            "The kernels are compiled. This session uses NumPy's arrays: unset NEEDLE_BACKEND; in "
            "a student tree, solve part 4 first. Then restart the kernel."
        )
    return Page(
        "`needle.cpu()` uses the new kernels. Make devices and arrays again: existing ones keep "
        "the kernels that they were made with."
    )


def use_module(path: Path) -> None:
    """Register the compiled module at ``path`` as the backend of the device ``cpu``.

    A process loads a file, and a module name, only once, so this loads a copy under a new name; the
    last part of the name stays, because it names the function that initialises the module.
    """
    with tempfile.TemporaryDirectory() as folder:
        package, _, last = native.MODULE.rpartition(".")
        name = f"{package}.{Path(folder).name}.{last}"
        spec = importlib.util.spec_from_file_location(name, shutil.copy(path, folder))
        if spec is None or spec.loader is None:
            raise ImportError(f"{path}: not a compiled module; run rebuild() again")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    sys.modules[native.MODULE] = module
    backends.register("cpu", native.load)
