"""Download published files: mirrors, resuming, digests, atomic rename, progress bars.

Called by archives.py and by the data sets, which list files, URLs and digests. pooch (1.9) is
unsuitable: it has no mirrors, restarts partial downloads, has no size limit, retries permanent
errors such as 404, and does not support digests of decompressed content.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import HTTPError, URLError

from ...errors import DataError
from .files import MAX_BYTES, MAX_METADATA, PathLike, without_secrets
from .progress import progress_bar

CHUNK = 1 << 16
TIMEOUT = 30.0
"""Seconds for the connection, for the headers and for each read."""
MIN_SPEED = 1000
"""Bytes per second that a transfer must have averaged after ``TIMEOUT``, or it is aborted."""
TRIES, WAIT = 4, 1.0
"""Attempts per URL, and seconds before the second; the back-off doubles after each attempt."""
TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Digest:
    """An expected digest; ``kind`` is "sha256" or "md5".

    of_content: the digest is that of the decompressed content (at most ``MAX_METADATA`` bytes).
    """

    kind: str
    value: str
    of_content: bool = False

    def of(self, path: Path) -> str:
        """Return the digest of the file, or "unreadable: ..." if decompression fails."""
        state = hashlib.new(self.kind, usedforsecurity=False)
        limit = MAX_METADATA if self.of_content else MAX_BYTES
        try:
            with gzip.open(path) if self.of_content else open(path, "rb") as file:
                while piece := file.read(1 << 20):
                    state.update(piece)
                    if file.tell() > limit:
                        return f"unreadable: it unpacks to more than {limit} bytes"
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            return f"unreadable: {error}"
        return state.hexdigest()


@dataclass(frozen=True)
class RemoteFile:
    """A published file: its name on disk, its URLs and its digest."""

    name: str
    urls: tuple[str, ...]
    digest: Digest


class _Refused(Exception):
    """An error raised if a URL cannot provide the file; its message gives the reason."""


class _Interrupted(Exception):
    """An error raised if a transfer was interrupted and another attempt may succeed."""


def download(file: RemoteFile, folder: PathLike) -> Path:
    """Return the file in ``folder``; download it if it is missing or has another digest.

    The bytes are written to ``NAME.part``, which a later call resumes; the file is renamed to
    ``NAME`` once the digest matches. Raises DataError if no URL provides the file, with the reason
    for each URL, or if the file cannot be written.
    """
    target = Path(folder) / file.name
    if target.is_file() and file.digest.of(target) == file.digest.value:
        return target
    with writing(Path(folder)):
        Path(folder).mkdir(parents=True, exist_ok=True)
    reasons = []
    for url in file.urls:
        try:
            _from_address(url, file, target)
            return target
        except _Refused as reason:
            reasons.append(without_secrets(f"  {url}: {reason}"))
    raise DataError(
        f"download: no address provided {file.name}; check the network, or put the file into "
        f"{folder} yourself\n" + "\n".join(reasons)
    )


def _from_address(url: str, file: RemoteFile, target: Path) -> None:
    """Download the file to ``target`` and verify it; raise _Refused if this URL fails."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise _Refused("an address must not have credentials in it")
    part = target.with_name(target.name + ".part")
    reason = ""
    for attempt in range(TRIES):
        if attempt and reason:
            time.sleep(min(30.0, WAIT * 2 ** (attempt - 1)))
        try:
            resumed = _transfer(url, file.name, part)
        except _Interrupted as interruption:
            reason = str(interruption)
            continue
        got = file.digest.of(part)
        if got == file.digest.value:
            os.replace(part, target)
            return
        part.unlink()
        reason = f"wrong {file.digest.kind}: expected {file.digest.value}, got {got}"
        if not resumed:
            raise _Refused(reason)
        reason = ""  # the older part may be corrupt: retry immediately
    raise _Refused(f"gave up after {TRIES} tries; {reason or 'wrong content each time'}")


def _transfer(url: str, name: str, part: Path) -> bool:
    """Complete ``part`` from the server; return True if an older part was resumed."""
    have = part.stat().st_size if part.is_file() else 0
    try:
        with _http().open_limited(_request(url, have), TIMEOUT) as answer:
            start = _start_of(answer, have)
            total = _total_of(answer, start)
            _receive(answer, part, start, total, name)
            return start > 0
    except HTTPError as error:
        error.close()
        if error.code == 416 and have:  # the part is complete, or longer than the file
            return _whole_already(error, part, have)
        message = f"HTTP status {error.code} {error.reason}"
        raise (_Interrupted if error.code in TEMPORARY else _Refused)(message) from error
    except (URLError, _http().HTTPException, TimeoutError, ConnectionError) as e:
        raise _Interrupted(f"{type(e).__name__}: {getattr(e, 'reason', e)}") from e
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise _Refused(f"not an address: {error}") from error


def _request(url: str, have: int) -> Any:
    headers = {"User-Agent": "needle", "Accept-Encoding": "identity"}
    return _http().Request(
        url, headers={**headers, **({"Range": f"bytes={have}-"} if have else {})}
    )


def _http() -> ModuleType:
    """Return http_limits.py, which is imported only for the first download, since that is slow."""
    return importlib.import_module(".http_limits", __package__)


def _whole_already(error: HTTPError, part: Path, have: int) -> bool:
    """Return True if ``part`` may be complete; else delete it and raise _Interrupted."""
    if error.headers.get("Content-Range") == f"bytes */{have}":
        return True
    part.unlink()
    raise _Interrupted(f"the partial file of {have} bytes does not match the server's file")


def _start_of(answer: Any, have: int) -> int:
    """Return the offset of the body in the file, which is 0 if the server ignored the range."""
    if answer.status != 206:
        return 0
    content_range = answer.headers.get("Content-Range", "")
    if not content_range.startswith(f"bytes {have}-"):
        raise _Refused(f"asked for bytes from {have}, got the range {content_range!r}")
    return have


def _total_of(answer: Any, start: int) -> int | None:
    """Return the length of the whole file, or None if the server does not state it."""
    length = answer.headers.get("Content-Length", "")
    if not length.isdigit():
        return None
    total = start + int(length)
    if total > MAX_BYTES:
        raise _Refused(f"the server announces {total} bytes, more than {MAX_BYTES}")
    return total


def _receive(answer: Any, part: Path, start: int, total: int | None, name: str) -> None:
    position, begun = start, time.monotonic()
    with (
        progress_bar(True, total, name, "B", initial=start, unit_scale=True, disable=False) as bar,
        writing(part),
        open(part, "r+b" if start else "wb") as out,
    ):
        out.seek(start)
        while piece := _read_piece(answer, position, total):
            position += len(piece)
            if position > MAX_BYTES:
                raise _Refused(f"the server sent more than {MAX_BYTES} bytes")
            seconds = time.monotonic() - begun
            if seconds > TIMEOUT and position - start < MIN_SPEED * seconds:
                raise _Interrupted(f"slower than {MIN_SPEED} bytes a second")
            out.write(piece)
            out.flush()
            if bar is not None:
                bar.update(len(piece))
        out.truncate(position)
    if total is not None and position != total:
        raise _Interrupted(f"expected {total} bytes, the connection ended after {position}")


def _read_piece(answer: Any, position: int, total: int | None) -> bytes:
    try:
        piece: bytes = answer.read1(CHUNK)
    except OSError as error:
        raise _Interrupted(
            f"expected {total} bytes, the connection broke after {position} ({error})"
        ) from error
    return piece


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise DataError if writing fails because of disk space or permissions."""
    try:
        yield
    except gzip.BadGzipFile:  # a read error, not a write error
        raise
    except OSError as error:
        raise DataError(
            f"download: cannot write {path} ({error.strerror or error}); free some space or give "
            "another folder"
        ) from error
