"""Open files that may be damaged or malicious, and remove secrets from URLs in messages.

Called by everything that reads files in ``formats/`` and ``datasets/``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from ...errors import DataError

PathLike = str | os.PathLike[str]

MAX_BYTES = 1 << 30
"""Maximum bytes that are read or decompressed into memory at once: image, member or download."""
MAX_METADATA = 1 << 26
"""Maximum size in bytes of metadata: an index, a footer, a small file of known content."""
MAX_HEADER = 1 << 20
"""Maximum size of an array's or a member's header, in bytes."""

SYSTEM_FOLDERS = frozenset(
    ("__macosx", "@eadir", "#recycle", "@recycle", "$recycle.bin", "system volume information")
)
"""Folders that archivers, file servers and systems add to the folders of users, in lower case."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//+)([^\s'\"<>]*)")
_USER_INFO = re.compile(r"[^\s/@:'\"]+:[^\s/@'\"]*@")
_SECRET = re.compile(
    r"((?:signature|credential|token|password|secret|authorization)['\"]?\s*[=:]\s*['\"]?)"
    r"(?:(?:basic|bearer)\s+)?[^\s,;&'\"]+",
    re.IGNORECASE,
)


def check_list(op: str, name: str, given: Any) -> None:
    """Raise TypeError for a str or a path, which would be iterated character by character."""
    if isinstance(given, (str, os.PathLike)):
        raise TypeError(f"{op}: {name} must be a list, got {given!r}; put it in brackets")


def is_hidden(path: str) -> bool:
    """Return True if a part of the path begins with a dot or is one of ``SYSTEM_FOLDERS``."""
    parts = [part for part in path.split("/") if part not in (".", "..")]
    return any(part.startswith(".") or part.lower() in SYSTEM_FOLDERS for part in parts)


def find_file(folder: Path, *names: str) -> Path | None:
    """Return the file in the folder that has one of these names; None if there is none.

    Case and punctuation, which mirrors and archivers change, may differ, and the file may be in a
    folder of its own name. Exact matches take precedence.
    """
    found = _alike(folder, names)
    inside = (path for each in found if each.is_dir() for path in _alike(each, names))
    return next((path for path in (*found, *inside) if path.is_file()), None)


def contents_of(*folders: Path) -> str:
    """Return in words what is in the first folder that exists, for an error about missing files."""
    folder = next((each for each in folders if each.is_dir()), None)
    if folder is None:
        return f"{folders[-1]} does not exist"
    names = sorted(os.listdir(folder))
    return f"{folder} has {', '.join(names[:10]) or 'nothing in it'}{', ...' * (len(names) > 10)}"


def find_folder(folder: Path, name: str) -> Path:
    """Return the folder in ``folder`` called ``name``, ignoring case and punctuation.

    Return ``folder / name`` if there is none.
    """
    for part in name.split("/"):
        alike = (path for path in _alike(folder, (part,)) if path.is_dir())
        folder = next(alike, folder / part)
    return folder


def _alike(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return the folder's paths that match one of the names, comparing letters and digits only."""
    plain = [_letters(name) for name in names]
    there = os.listdir(folder) if folder.is_dir() else []
    alike = [name for name in there if _letters(name) in plain]
    alike.sort(key=lambda name: (name not in names, plain.index(_letters(name)), name))
    return [folder / name for name in alike]


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def open_file(path: PathLike, buffering: int = -1) -> IO[bytes]:
    """Return the open file; raise DataError, without blocking, if it is not a regular file.

    buffering: the argument of ``open``.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise DataError(
            f"{os.fspath(path)}: must be a regular file, got a folder, pipe, socket or device; "
            "give the path of a file, or remove it"
        )
    return open(path, "rb", buffering)


def read_file(path: PathLike, limit: int = MAX_BYTES) -> bytes:
    """Return a file's content; raise DataError as open_file does, or above ``limit`` bytes."""
    with open_file(path, buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise DataError(
                f"{os.fspath(path)}: a file read in one piece may have at most {limit} bytes, got "
                f"{size}; remove or split it"
            )
        return file.read()  # read to EOF: with a size, Python would allocate that many bytes first


def without_secrets(text: str) -> str:
    """Return the text without the user names, passwords, queries and fragments of its URLs."""
    return _SECRET.sub(r"\1...", _USER_INFO.sub("...@", _URL.sub(_plain_address, text)))


def _plain_address(found: re.Match[str]) -> str:
    scheme, slashes, rest = found.groups()
    place = re.split(r"[?#]", rest)[0]
    host, slash, path = place.partition("/")
    cut = "?..." if len(place) < len(rest) else ""
    return f"{scheme}:{slashes}{host.rpartition('@')[2]}{slash}{path}{cut}"
