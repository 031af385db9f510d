"""Downloads of published files: mirrors, resuming, digests, atomic rename, progress.

Called by archives.py and by the data sets, which list files, addresses and digests. pooch (1.9) was
considered: it has no mirrors, starts partial files again, has no limit of size, repeats final
errors such as 404, and knows no digest of unpacked content; these parts are most of this file.
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
from .files import MAX_BYTES, PathLike, without_secrets
from .progress import progress_bar

CHUNK = 1 << 16
MIN_SPEED = 1000
"""Bytes per second below which a transfer is given up."""
TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Digest:
    """An expected digest, ``kind`` "sha256" or "md5"; of_content: of the unpacked gzip."""

    kind: str
    value: str
    of_content: bool = False

    def of(self, path: Path) -> str:
        """Return the digest of the file; "unreadable: ..." if it cannot be unpacked."""
        state = hashlib.new(self.kind, usedforsecurity=False)
        try:
            with gzip.open(path) if self.of_content else open(path, "rb") as file:
                while piece := file.read(1 << 20):
                    state.update(piece)
                    if file.tell() > MAX_BYTES:
                        return f"unreadable: it unpacks to more than {MAX_BYTES} bytes"
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            return f"unreadable: {error}"
        return state.hexdigest()


@dataclass(frozen=True)
class RemoteFile:
    """A published file: its name on disk, its addresses, and its digest."""

    name: str
    urls: tuple[str, ...]
    digest: Digest


@dataclass(frozen=True)
class Policy:
    """Limits of a download.

    timeout: seconds for the connection, for the headers and for each read; later a transfer must
    have brought 1 000 bytes per second. tries: attempts per address. wait: seconds before the
    second attempt, doubled after each. progress: show a bar.
    """

    timeout: float = 30.0
    tries: int = 4
    wait: float = 1.0
    progress: bool = True


class _Refused(Exception):
    """Raised if an address cannot give the file; the message is the reason."""


class _Interrupted(Exception):
    """Raised if a transfer broke and another attempt may succeed."""


def download(file: RemoteFile, folder: PathLike, policy: Policy | None = None) -> Path:
    """Return the file in ``folder``, downloaded if it is missing or has another digest.

    The bytes go to ``NAME.part``, which a later call continues; the file gets its name once the
    digest is right. Raises DataError with the reason of each address if none gives the file, and
    if the disk cannot hold it.
    """
    policy = policy or Policy()
    target = Path(folder) / file.name
    if target.is_file() and file.digest.of(target) == file.digest.value:
        return target
    with writing(Path(folder)):
        Path(folder).mkdir(parents=True, exist_ok=True)
    reasons = []
    for url in file.urls:
        try:
            _from_address(url, file, target, policy)
            return target
        except _Refused as reason:
            reasons.append(without_secrets(f"  {url}: {reason}"))
    raise DataError(
        f"download: no address gave {file.name}; check the network, or put the file into "
        f"{folder} yourself\n" + "\n".join(reasons)
    )


def _from_address(url: str, file: RemoteFile, target: Path, policy: Policy) -> None:
    """Download the file to ``target`` and check it; _Refused if this address fails."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise _Refused("an address must not have credentials in it")
    part = target.with_name(target.name + ".part")
    reason = ""
    for attempt in range(policy.tries):
        if attempt and reason:
            time.sleep(min(30.0, policy.wait * 2 ** (attempt - 1)))
        try:
            resumed = _transfer(url, file.name, part, policy)
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
        reason = ""  # the older part may be wrong: start again at once
    raise _Refused(f"gave up after {policy.tries} tries; {reason or 'wrong content each time'}")


def _transfer(url: str, name: str, part: Path, policy: Policy) -> bool:
    """Fill ``part`` to the length that the server states; return True if it was continued."""
    have = part.stat().st_size if part.is_file() else 0
    try:
        with open_limited(_request(url, have), policy.timeout) as answer:
            start = _start_of(answer, have)
            total = _total_of(answer, start)
            _receive(answer, part, start, total, name, policy)
            return start > 0
    except HTTPError as error:
        error.close()
        if error.code == 416 and have:  # longer than the file, or complete
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


def open_limited(request: Any, timeout: float) -> Any:
    """Return the answer; see http_limits.py."""
    return _http().open_limited(request, timeout)


def _http() -> ModuleType:
    """Return http_limits.py, which the first download imports, since it takes a while."""
    return importlib.import_module(".http_limits", __package__)


def _whole_already(error: HTTPError, part: Path, have: int) -> bool:
    """Return True if ``part`` has the full length (the digest decides), else start again."""
    if error.headers.get("Content-Range") == f"bytes */{have}":
        return True
    part.unlink()
    raise _Interrupted(f"the partial file of {have} bytes does not fit what the server has")


def _start_of(answer: Any, have: int) -> int:
    """Return the position of the body in the file: 0 if the server ignored the range."""
    if answer.status != 206:
        return 0
    content_range = answer.headers.get("Content-Range", "")
    if not content_range.startswith(f"bytes {have}-"):
        raise _Refused(f"asked for bytes from {have}, got the range {content_range!r}")
    return have


def _total_of(answer: Any, start: int) -> int | None:
    """Return the length of the whole file, None if the server does not state it."""
    length = answer.headers.get("Content-Length", "")
    if not length.isdigit():
        return None
    total = start + int(length)
    if total > MAX_BYTES:
        raise _Refused(f"the server announces {total} bytes, more than {MAX_BYTES}")
    return total


def _receive(
    answer: Any, part: Path, start: int, total: int | None, name: str, policy: Policy
) -> None:
    position, begun = start, time.monotonic()
    with (
        progress_bar(
            policy.progress, total, name, "B", initial=start, unit_scale=True, disable=False
        ) as bar,
        writing(part),
        open(part, "r+b" if start else "wb") as out,
    ):
        out.seek(start)
        while piece := _read_piece(answer, position, total):
            position += len(piece)
            if position > MAX_BYTES:
                raise _Refused(f"the server sent more than {MAX_BYTES} bytes")
            seconds = time.monotonic() - begun
            if seconds > policy.timeout and position - start < MIN_SPEED * seconds:
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
    """Raise DataError for a disk that cannot hold the file, or whose permissions forbid it."""
    try:
        yield
    except gzip.BadGzipFile:  # what is read, not what is written
        raise
    except OSError as error:
        raise DataError(
            f"download: cannot write {path} ({error.strerror or error}); make room or give "
            f"another folder"
        ) from error
