"""ptxas's reports on every CUDA kernel, and the decision whether nvcc must compile the sources.

If nvcc is installed, ``make test-all`` compiles src/cuda for all targets, which takes minutes,
unless ``resources.sha256`` belongs to these sources: its test has passed for them.
``keep_ptxas.py`` stores the reports. ``python -m tests.cuda_on_cpu.resources`` writes the digest.
"""

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DIGEST = HERE / "resources.sha256"
BUILD = ROOT / "build"
_COMPILING = re.compile(r"Compiling entry function '(\w+)' for '(sm_\d+)a?'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


class Kernel(NamedTuple):
    """A kernel compiled for a target, and the bytes of registers that each thread spills."""

    file: str
    name: str
    target: str
    spilled: int


def reports() -> list[Path]:
    """Return the reports of the newest build."""
    pattern = "**/needle_cuda.dir/**/*.cu.o.ptxas"
    found = sorted(BUILD.glob(pattern), key=lambda path: path.stat().st_mtime)
    return [path for path in found if _objects(path) == _objects(found[-1])]


def _objects(report: Path) -> Path:
    """Return the folder of the build's objects."""
    return report.parent.parent if report.parent.name == "sm90" else report.parent


def kernels() -> Iterator[Kernel]:
    """Yield every kernel of the reports."""
    for path in reports():
        name = target = ""
        for line in path.read_text().splitlines():
            if compiling := _COMPILING.search(line):
                name, target = compiling.groups()
            elif spills := _SPILLS.search(line):
                yield Kernel(path.name, name, target, sum(map(int, spills.groups())))


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
    known = DIGEST.is_file() and DIGEST.read_text().strip() == digest()
    return "cuda_on_cpu" if known else "cuda_tests"


if __name__ == "__main__":
    if sys.argv[1:] == ["target"]:
        print(target())
    else:
        DIGEST.write_text(f"{digest()}\n")
