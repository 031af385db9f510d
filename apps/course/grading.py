"""Grade many submissions: the answers of each one are tested in a fresh student tree.

A submission is a student tree, a part of one, or a zip file of either. Only the text of the
homework's blocks is read from it; tests, registry and all other files are the teacher's.
docs/teaching.md says what is isolated and what is not. Called by __main__.py.
"""

from __future__ import annotations

import csv
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from subprocess import DEVNULL

from .blocks import MarkerError, blocks_in, blocks_of, fill
from .building import build
from .checking import Result, check
from .edition import write_edition
from .processes import Guard
from .registry import Exercise

LARGEST = 4_000_000
"""Maximum number of bytes read from each source file of a submission."""
ISOLATED = "unshare --user --map-root-user --net --pid --fork --kill-child --mount-proc".split()
"""Linux: no network, every process ends with the first, and own mounts; needs user namespaces."""
LOCKED = "unshare --user --map-root-user --mount".split()
"""Run inside ISOLATED: a submission cannot undo the mounts that were made before this."""
PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""Environment variables that a submission gets."""


@dataclass(frozen=True)
class Rules:
    """The limits of grading.

    jobs: number of submissions that are graded at the same time. minutes: time limit of one
    submission. memory: GiB of address space of each process.
    """

    jobs: int = 1
    minutes: float = 15
    memory: float = 8


@dataclass(frozen=True)
class Grade:
    """The results of a submission, its grading time in seconds, and a note on problems."""

    name: str
    results: Sequence[Result]
    seconds: float
    note: str

    @property
    def points(self) -> int:
        """The sum of all points."""
        return sum(result.points for result in self.results)


def grade(
    root: Path, submissions: Sequence[Path], chosen: Sequence[Exercise], out: Path, rules: Rules
) -> None:
    """Grade the submissions of these exercises; write a line for each into ``out``."""
    names = _names(submissions)
    if not _isolation():
        print("grade: no namespaces here, so submissions have the network", file=sys.stderr)
    with (
        tempfile.TemporaryDirectory(prefix="needle-grade-") as place,
        out.open("w", newline="") as f,
    ):
        table = csv.writer(f)
        table.writerow(_head(chosen))
        benches: SimpleQueue[Bench] = SimpleQueue()
        for number in range(max(1, min(rules.jobs, len(submissions)))):
            benches.put(Bench(root, Path(place) / str(number), chosen, rules))

        def one(submission: Path) -> Grade:
            bench = benches.get()
            try:
                return bench.grade(names[submission], submission)
            finally:
                benches.put(bench)

        pool = ThreadPoolExecutor(benches.qsize())
        try:
            for done in pool.map(one, submissions):
                table.writerow([_plain(cell) for cell in _row(done, chosen)])
                f.flush()
                print(f"{done.name}: {done.points} points, {done.seconds:.0f} s {done.note}")
        finally:
            pool.shutdown(cancel_futures=True)


def _names(submissions: Sequence[Path]) -> dict[Path, str]:
    """Return a name for each submission: its own, or its path if two have the same."""
    own = [path.resolve().name for path in submissions]
    return {p: n if own.count(n) == 1 else str(p) for p, n in zip(submissions, own, strict=True)}


def _head(chosen: Sequence[Exercise]) -> list[str]:
    columns = [name for exercise in chosen for name in (exercise.tag, f"{exercise.tag} points")]
    return ["submission", "total", "of", "seconds", "note", *columns]


def _row(done: Grade, chosen: Sequence[Exercise]) -> list[object]:
    most = sum(exercise.points for exercise in chosen)
    found = {result.exercise.tag: result for result in done.results}
    cells: list[object] = []
    for exercise in chosen:
        result = found.get(exercise.tag)
        cells += [result.state, result.points] if result else ["not graded", 0]
    return [done.name, done.points, most, f"{done.seconds:.1f}", done.note, *cells]


def _plain(cell: object) -> object:
    """Return the text of a cell on one line, such that no spreadsheet takes it for a formula."""
    text = " ".join(cell.split()) if isinstance(cell, str) else cell
    return f"'{text}" if isinstance(text, str) and text.startswith(tuple("=+-@")) else text


class Bench:
    """A student tree in which submissions are graded one after another.

    ``tree`` is restored for each from ``fresh``, which contains the builds of the empty tree.
    """

    def __init__(self, root: Path, folder: Path, chosen: Sequence[Exercise], rules: Rules) -> None:
        self.root, self.chosen, self.rules = root, chosen, rules
        self.folder, self.tree, self.fresh = folder, folder / "tree", folder / "fresh"
        write_edition(root, self.tree, {exercise.tag for exercise in chosen}, with_solutions=False)
        problem = build(self.tree, {name for exercise in chosen for name in exercise.builds})
        if problem:
            raise OSError(f"grade: the empty tree does not build: {problem}")
        self.tree.rename(self.fresh)

    def grade(self, name: str, submission: Path) -> Grade:
        """Return the grade of a submission, with a note on any problem."""
        begun = time.monotonic()
        home = self.folder / "home"
        try:
            shutil.copytree(self.fresh, self.tree, symlinks=True)
            home.mkdir()
            note = take_answers(self.tree, submission, self.chosen)
            results = check(self.tree, self.chosen, self._guard(home))
        except Exception as error:  # whatever a submission does, the next one is graded
            results, note = [], f"{type(error).__name__}: {error}"
        finally:
            for path in (self.tree, home):
                shutil.rmtree(path, ignore_errors=True)
        return Grade(name, results, time.monotonic() - begun, note)

    def _guard(self, home: Path) -> Guard:
        """Return the limits of a submission's processes, which can see no tree but their own."""
        kept = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
        environment = {**kept, "HOME": str(home), "TMPDIR": str(home)}
        deadline = time.monotonic() + 60 * self.rules.minutes
        others = {self.fresh, *self.folder.parent.iterdir()} - {self.folder}
        hidden = [*_solutions(self.root), *others]
        return Guard(limits(hidden, self.rules.memory, self.rules.minutes), environment, deadline)


def _solutions(root: Path) -> list[Path]:
    """Return the folders of the full tree and its git, but not those of the running Python."""
    prefixes = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    used = {folder for prefix in prefixes for folder in (prefix, *prefix.parents)}
    folders = [path for path in root.iterdir() if path.is_dir() and path.resolve() not in used]
    ask = ["git", "-C", str(root), "rev-parse", "--path-format=absolute", "--git-common-dir"]
    with suppress(OSError, subprocess.CalledProcessError):  # a worktree's git data is elsewhere
        folders.append(Path(subprocess.check_output(ask, text=True, stderr=DEVNULL).strip()))
    return folders


def limits(hidden: Collection[Path], memory: float, minutes: float) -> tuple[str, ...]:
    """Return a command that runs its arguments under limits and, where Linux permits, isolated.

    hidden: folders that are then empty. memory: GiB of address space of each process. minutes: of
    processor time of each process.
    """
    isolation = _isolation()
    hidden = [*hidden, Path("/dev/shm")] if isolation else []  # a private mount
    lines = [f"mount -t tmpfs none {shlex.quote(str(path))} || exit 1" for path in hidden]
    lines += [f"ulimit -v {round(memory * 2**20)}", f"ulimit -t {round(60 * minutes)}"]
    lines += ["ulimit -c 0", "ulimit -f 4000000"]
    lines += [f'{shlex.join(LOCKED)} "$@"' if isolation else '"$@"', "exit $?"]
    return (*isolation, "sh", "-c", "\n".join(lines), "sh")


@cache
def _isolation() -> tuple[str, ...]:
    """Return ISOLATED, or nothing if the system does not permit it."""
    try:
        done = subprocess.run([*ISOLATED, *LOCKED, "true"], capture_output=True)
    except OSError:
        return ()
    return () if done.returncode else tuple(ISOLATED)


def take_answers(tree: Path, submission: Path, chosen: Collection[Exercise]) -> str:
    """Write a submission's answers into the blocks of a tree; return their faults as text.

    A Python answer that does not parse is left out, so it does not fail the others of its file.
    """
    wanted, empty = {exercise.tag for exercise in chosen}, blocks_in(tree)
    places = {block.path for tag in wanted for block in empty.get(tag, [])}
    answers: dict[str, list[str]] = {}
    problems = []
    for path, text in sorted(_sources(submission, places).items()):
        try:
            for block in blocks_of(path, text):
                answers.setdefault(block.tag, []).append(block.text)
        except MarkerError as error:
            problems.append(str(error))
    for tag in sorted(wanted & set(answers)):
        try:
            fill(tree, {tag: answers[tag]})
            for path in {block.path for block in empty[tag] if block.path.endswith(".py")}:
                compile((tree / path).read_text("utf-8"), path, "exec")
        except (MarkerError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            problems.append(f"{tag}: {error}")
            fill(tree, {tag: [block.text for block in empty[tag]]})
    missing = sorted(wanted - set(answers))
    problems += [f"no answers to {', '.join(missing)}"] if missing else []
    return "; ".join(problems)


def _sources(submission: Path, places: Collection[str]) -> Mapping[str, str]:
    """Return the text of each source file of ``places`` that the submission contains."""
    found: dict[str, str] = {}
    for name, content in _files(submission, tuple(places)):
        path = next(place for place in places if f"/{name}".endswith(f"/{place}"))
        if path in found:
            raise ValueError(f"{path} occurs twice; give a folder or zip file of one student")
        found[path] = content.decode("utf-8").replace("\r\n", "\n")
    if not found:
        raise ValueError("no source file of the homework; expected python/needle/... or src/...")
    return found


def _files(submission: Path, ends: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of a submission's files with these endings; links are not followed."""
    if submission.is_dir():
        for folder, _, names in os.walk(submission):
            for path in (Path(folder, name) for name in names):
                name = path.relative_to(submission).as_posix()
                if _is_source(name, ends) and path.is_file() and not path.is_symlink():
                    with path.open("rb") as file:
                        yield name, _bounded(name, file.read(LARGEST + 1))
        return
    with zipfile.ZipFile(submission) as archive:
        for entry in archive.infolist():
            if _is_source(entry.filename, ends):
                with archive.open(entry) as member:
                    yield entry.filename, _bounded(entry.filename, member.read(LARGEST + 1))


def _is_source(name: str, ends: Sequence[str]) -> bool:
    """Return True if a path ends like one of these, outside of hidden and build folders."""
    parts = name.split("/")
    inner = all(part != "build" and not part.startswith((".", "__MACOSX")) for part in parts)
    return inner and any(f"/{name}".endswith(f"/{end}") for end in ends)


def _bounded(name: str, content: bytes) -> bytes:
    if len(content) > LARGEST:
        raise ValueError(f"{name} has more than {LARGEST:,} bytes")
    return content
