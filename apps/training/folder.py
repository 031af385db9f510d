"""The folder of a run and its run.json. Called by train.py and run.py.

A folder holds one run, which is overwritten only with --force. A file lock keeps other processes
out; the system releases it when the process ends, however it ends.
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
from pathlib import Path
from typing import IO, Any

import needle
from needle.errors import NeedleError
from needle.testing.installation import facts

CHECKPOINT, BEST = "checkpoint.safetensors", "best.safetensors"
MODEL, RUN, LOCK = "model.safetensors", "run.json", ".lock"
KEPT = "checkpoint-*.safetensors"
RATE_PICTURE, RATE_TABLE = "learning_rate.png", "learning_rate.csv"
"""The files of a range test, which precedes a run and is kept."""
OWN = (
    *(
        CHECKPOINT,
        BEST,
        MODEL,
        RUN,
        "metrics.csv",
        "epochs.csv",
        "split.csv",
        "report.html",
        "*.png",
    ),
    *(KEPT, "profile.md", "trace.json", "tensorboard/events.*"),
)
"""The files that a run writes; --force removes these and no others."""
SOURCE = Path(__file__).resolve().parents[2]


class RunFolder:
    """The folder of a run, locked for this process until ``close``."""

    def __init__(
        self, path: Path, resume: bool = False, force: bool = False, writes: bool = True
    ) -> None:
        """Open the folder; create it if it is missing. Without ``writes``, do nothing.

        NeedleError if it cannot be written to, if another process writes to it, or if it holds a
        run and neither ``resume`` nor ``force`` is given.
        """
        self.path = path
        if not writes:
            self._lock: IO[str] = open(os.devnull)  # noqa: SIM115
            return
        self._lock = _locked(path)
        try:
            for each in OWN:  # this process holds the lock, so a killed writer left it
                for left in (*path.glob(f".{each}.partial"), *path.glob(f".{each}.*.partial")):
                    left.unlink()
            if not resume:
                self._make_empty(force)
        except BaseException:
            self.close()
            raise

    @property
    def checkpoint(self) -> Path:
        """The path of the latest checkpoint."""
        return self.path / CHECKPOINT

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def _make_empty(self, force: bool) -> None:
        found = sorted(each for pattern in OWN for each in self.path.glob(pattern))
        found = [each for each in found if each.name != RATE_PICTURE]
        if found and not force:
            raise NeedleError(
                f"--out: {self.path} holds a run already ({found[0].name}); continue it with "
                "--resume, give another folder, or replace it with --force"
            )
        for each in found:
            each.unlink()

    # ---- checkpoints -------------------------------------------------------------------------

    def mark_best(self) -> None:
        """Keep the latest checkpoint as the best one so far."""
        _same_file(self.checkpoint, self.path / BEST)

    def keep_last(self, epoch: int, count: int) -> None:
        """Keep the latest checkpoint under its epoch's number, at most ``count`` of them."""
        _same_file(self.checkpoint, self.path / KEPT.replace("*", f"{epoch:04}"))
        for old in sorted(self.path.glob(KEPT))[:-count]:
            old.unlink()

    # ---- run.json ----------------------------------------------------------------------------

    def write_facts(self, facts: dict[str, Any]) -> None:
        """Replace run.json as a whole."""
        partial = self.path / f".{RUN}.partial"
        partial.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        partial.replace(self.path / RUN)

    def read_facts(self) -> dict[str, Any]:
        """Return the content of run.json.

        Empty if it is missing or damaged, since no run needs it.
        """
        try:
            found = json.loads((self.path / RUN).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def new_folder(name: str, parent: Path = Path("runs")) -> Path:
    """Return the first of ``runs/name``, ``runs/name-2``, ... that holds no run."""
    numbered = (parent / (name if i == 1 else f"{name}-{i}") for i in range(1, 100_000))
    return next(path for path in numbered if not (path / RUN).exists())


def latest_folder(name: str, parent: Path = Path("runs")) -> Path:
    """Return the folder that ``new_folder`` returned last."""
    following = new_folder(name, parent)
    number = int(following.name[len(name) + 1 :] or 1) - 1
    return parent / (name if number <= 1 else f"{name}-{number}")


def facts_of_this_machine() -> dict[str, Any]:
    """Return the versions, the commit and the machine, which the numbers of a report depend on."""
    return {
        "needle": needle.__version__,
        "commit": _commit(),
        **facts([needle.default_device()]),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _commit() -> str | None:
    """Return the git commit of the source, with "+" if files have changed since."""
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
    """Create the folder if it is missing, and return its lock file, locked."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = open(path / LOCK, "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise NeedleError(
            f"--out: {path} must be a writable folder, got {error.strerror}; give another one"
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read().strip() or "another program"
        file.close()
        raise NeedleError(
            f"--out: {path} is in use by {holder}; wait until it ends, or give another folder"
        ) from error
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}")
    file.flush()
    return file


def _same_file(source: Path, target: Path) -> None:
    """Make ``target`` a hard link to ``source``, or a copy where the system has no links."""
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        os.link(source, partial)
    except OSError:
        shutil.copyfile(source, partial)
    partial.replace(target)
    partial.unlink(missing_ok=True)  # still exists if both were links to one file
