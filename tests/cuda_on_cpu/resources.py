"""Registers, shared memory and spills of every CUDA kernel, as ptxas reports them for each target.

If nvcc is installed, ``make test-all`` compiles src/cuda for all targets, which takes minutes,
unless the table already belongs to these sources (``resources.sha256``). ``keep_ptxas.py`` stores
the reports. ``python -m tests.cuda_on_cpu.resources`` writes them to ``resources.csv``, and the
instructions of the loops with tensor cores (``sass.py``) to ``loops.csv``. Both files are in the
repository, so a diff shows what a change does to them, and a test rejects large increases.
"""

from __future__ import annotations

import csv
import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cuda_on_cpu import sass

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
KEPT, KEPT_DIGEST = HERE / "resources.csv", HERE / "resources.sha256"
BUILD = ROOT / "build"


NVCC = "13.0"
"""The release that produced the table; another one may use a few registers more."""


class Row(NamedTuple):
    """Maxima of a kernel family (one template) on a target, in bytes per thread or (shared) per
    block.
    """

    file: str
    kernel: str
    target: str
    kernels: int
    registers: int
    shared: int
    stack: int
    spilled: int


_COMPILING = re.compile(r"Compiling entry function '(\w+)' for '(sm_\d+)a?'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")
_LENGTH = re.compile(r"(?=(\d+))")


def reports() -> list[Path]:
    """Return the newest build's reports."""
    pattern = "**/needle_cuda.dir/**/*.cu.o.ptxas"
    found = sorted(BUILD.glob(pattern), key=lambda path: path.stat().st_mtime)
    return [path for path in found if _objects(path) == _objects(found[-1])]


def _objects(report: Path) -> Path:
    """Return the folder of the build's objects."""
    return report.parent.parent if report.parent.name == "sm90" else report.parent


def _family(mangled: str) -> str:
    """Return the template's name: of the names behind a length, the shortest ending in _kernel.

    Longer ones start in nvcc's hash of the file's path, whose last digits may look like a length.
    """
    named = (mangled[at.end(1) :][: int(at[1])] for at in _LENGTH.finditer(mangled))
    return min((name for name in named if name.endswith("_kernel")), key=len, default=mangled)


def _kernels(
    text: str, named: Callable[[str], str]
) -> Iterator[tuple[str, str, int, int, int, int]]:
    kernel = target = ""
    stack = spilled = 0
    for line in text.splitlines():
        if match := _COMPILING.search(line):
            kernel, target = named(match[1]), match[2]
        elif match := _SPILLS.search(line):
            stack, spilled = int(match[1]), int(match[2]) + int(match[3])
        elif (match := _USED.search(line)) and kernel:
            yield kernel, target, int(match[1]), int(match[2] or 0), stack, spilled
            kernel = ""


def table() -> list[Row]:
    """Return one row per family and target."""
    rows: dict[tuple[str, str, str], Row] = {}
    for path in reports():
        file = path.name.removesuffix(".o.ptxas")
        for kernel, target, *used in _kernels(path.read_text(), _family):
            before = rows.get((file, kernel, target), Row(file, kernel, target, 0, 0, 0, 0, 0))
            most = [max(pair) for pair in zip(before[4:], used, strict=True)]
            rows[file, kernel, target] = Row(file, kernel, target, before.kernels + 1, *most)
    return [rows[key] for key in sorted(rows)]


def loops() -> list[sass.Row]:
    """Return a row for each kernel with tensor cores on sm_90, sorted."""
    rows = []
    for path in reports():
        used = {
            mangled: (registers, shared)
            for mangled, target, registers, shared, *_ in _kernels(path.read_text(), str)
            if target == "sm_90"
        }
        for loop in sass.loops(path.with_suffix("")):
            rows.append(sass.row(_family(loop.kernel), loop, *used[loop.kernel]))
    return sorted(set(rows))


def kept() -> dict[tuple[str, str, str], Row]:
    """Return the table in the repository."""
    with KEPT.open() as lines:
        rows = [Row(*row[:3], *map(int, row[3:])) for row in list(csv.reader(lines))[1:]]
    return {row[:3]: row for row in rows}


def digest() -> str:
    """Return the SHA-256 of all sources of the kernels, without comments."""
    files = [*ROOT.glob("src/cuda/**/*.*"), *ROOT.glob("src/core/*.h"), *ROOT.glob("src/data/*.h")]
    whole = hashlib.sha256()
    for path in sorted(files):
        lines = (line.split(b"//")[0].strip() for line in path.read_bytes().splitlines())
        code = b"\n".join(line for line in lines if line)
        whole.update(path.name.encode() + b"\0" + code)
    return whole.hexdigest()


def target() -> str:
    """Return the target that make build-tests builds, with or without the GPU module."""
    known = KEPT_DIGEST.is_file() and KEPT_DIGEST.read_text().strip() == digest()
    return "cuda_on_cpu" if known else "cuda_tests"


if __name__ == "__main__":
    if sys.argv[1:] == ["target"]:
        print(target())
    else:
        with KEPT.open("w", newline="") as to:
            csv.writer(to, lineterminator="\n").writerows([Row._fields, *table()])
        with sass.KEPT.open("w", newline="") as to:
            csv.writer(to, lineterminator="\n").writerows([sass.Row._fields, *loops()])
        KEPT_DIGEST.write_text(f"{digest()}\n")
