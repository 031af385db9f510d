"""The folder of a run: one run at a time, never overwritten unasked, and its run.json.

Who is in it is said by a lock that the system drops when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import needle
from apps.profiling.limits import processor
from needle.errors import NeedleError

CHECKPOINT, BEST = "checkpoint.safetensors", "best.safetensors"
MODEL, RUN, LOCK = "model.safetensors", "run.json", ".lock"
KEPT = "checkpoint-*.safetensors"
OWN = (
    *(CHECKPOINT, BEST, MODEL, RUN, "metrics.csv", "epochs.csv", "report.html", "*.png"),
    *(KEPT, "profile.md", "trace.json", "tensorboard/events.*"),
)
"""What a run leaves; nothing else is removed by --force."""
PACKAGES = ("numpy", "safetensors", "matplotlib", "tqdm", "tensorboardX")
SOURCE = Path(__file__).resolve().parents[2]


class RunFolder:
    """An existing folder that this process alone writes a run to, until ``close``."""

    def __init__(self, path: Path, resume: bool = False, force: bool = False) -> None:
        """NeedleError if it cannot be written to, another run is in it, or it has a finished or
        unfinished run and neither ``resume`` nor ``force`` is given."""
        self.path = path
        self._lock = _locked(path)
        try:
            if not resume:
                self._make_empty(force)
        except BaseException:
            self.close()
            raise

    @property
    def checkpoint(self) -> Path:
        """The latest state of the run."""
        return self.path / CHECKPOINT

    def close(self) -> None:
        """Lets others in."""
        self._lock.close()

    def _make_empty(self, force: bool) -> None:
        found = sorted(each for pattern in OWN for each in self.path.glob(pattern))
        if found and not force:
            raise NeedleError(
                f"--out: {self.path} has a run already ({found[0].name}); go on with it by "
                "--resume, give another folder, or have it replaced by --force"
            )
        for each in found:
            each.unlink()

    # ---- checkpoints -------------------------------------------------------------------------

    def mark_best(self) -> None:
        """The latest checkpoint is the best so far."""
        _same_file(self.checkpoint, self.path / BEST)

    def keep_last(self, epoch: int, count: int) -> None:
        """Keeps the latest checkpoint under its epoch's number, and no more than ``count`` such."""
        if count:
            _same_file(self.checkpoint, self.path / KEPT.replace("*", f"{epoch:04}"))
        for old in sorted(self.path.glob(KEPT))[: -count or None]:
            old.unlink()

    # ---- run.json ----------------------------------------------------------------------------

    def write_facts(self, facts: dict[str, Any]) -> None:
        """Replaces run.json as a whole."""
        partial = self.path / f".{RUN}.partial"
        partial.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        partial.replace(self.path / RUN)

    def read_facts(self) -> dict[str, Any]:
        """run.json, or nothing where it is missing or damaged: it is a record, not a state."""
        try:
            found = json.loads((self.path / RUN).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def new_folder(name: str, parent: Path = Path("runs")) -> Path:
    """``runs/name``, or with the first number behind it that is free."""
    numbered = (parent / (name if i == 1 else f"{name}-{i}") for i in range(1, 100_000))
    return next(path for path in numbered if not (path / RUN).exists())


def latest_folder(name: str, parent: Path = Path("runs")) -> Path:
    """The one that ``new_folder`` gave last."""
    following = new_folder(name, parent)
    number = int(following.name[len(name) + 1 :] or 1) - 1
    return parent / (name if number <= 1 else f"{name}-{number}")


def facts_of_this_machine() -> dict[str, Any]:
    """Versions, commit, machine: what a number in a report has to be read with."""
    return {
        "needle": needle.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "machine": {
            "system": platform.platform(),
            "processor": processor(),
            "cores": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        },
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("NEEDLE_")},
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The git commit of the source, with "+" if files were changed since."""
    git = ["git", "-C", str(SOURCE)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True)
    except OSError:
        return None
    if commit.returncode:
        return None
    return commit.stdout.strip() + ("+" if changed.returncode else "")


def _locked(path: Path) -> IO[str]:
    """The lock file of the folder, which is made if need be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = open(path / LOCK, "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise NeedleError(
            f"--out: {path} must be a folder that can be written to, got {error.strerror}; give "
            "another one"
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read().strip() or "another program"
        file.close()
        raise NeedleError(
            f"--out: {path} is being written to by {holder}; wait for it or give another folder"
        ) from error
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}")
    file.flush()
    return file


def _same_file(source: Path, target: Path) -> None:
    """``target`` becomes another name of ``source``, or a copy where the system has no links."""
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        os.link(source, partial)
    except OSError:
        shutil.copyfile(source, partial)
    partial.replace(target)
