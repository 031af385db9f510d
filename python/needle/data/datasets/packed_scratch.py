"""A hidden folder beside a file that is being written, so that the file appears at once."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """A hidden folder next to ``target`` that is gone afterwards, whatever happens."""
    start = f".{target.name}.packing~{socket.gethostname()}~"
    for left in target.parent.glob(f"{_literal(start)}*"):
        if not _lives(left.name[len(start) :].split("~")[0]):
            shutil.rmtree(left, ignore_errors=True)
    folder = target.parent / f"{start}{os.getpid()}~{os.urandom(4).hex()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _literal(name: str) -> str:
    """``name`` for glob, with nothing in it a pattern."""
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in name)


def _lives(process: str) -> bool:
    """Whether the process of this number runs (or belongs to somebody else)."""
    if os.name == "nt":  # where asking would end it
        return True
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:
        return True
    return True


def sync(folder: Path) -> None:
    """Makes a new name in ``folder`` last; systems that cannot open folders do it themselves."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
