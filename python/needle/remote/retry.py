"""Retry: the limits on attempts of a request to a store, the back-off, and the final errors.

Every error raised here names the address, the number of attempts and the remedy. Called by
store.py. tenacity (9.2) would replace the loop in ``retried`` and its back-off, but not the table
of errors, which decides what is final and what users read. The clients' own retries (botocore's,
aiohttp-retry's) know neither responses with wrong checksums nor each other's errors.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from ..data.formats.files import without_secrets
from ..errors import DataError, NeedleError, StoreError

T = TypeVar("T")

TEMPORARY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 509})
BROKEN_CONNECTIONS = frozenset(
    {"HTTPClientError", "ConnectionError", "IncompleteReadError", "ResponseParserError"}
    | {"ResponseStreamingError", "ClientConnectionError", "ClientPayloadError"}
)
"""Classes of botocore and aiohttp, given by name since neither is imported before first use."""
NO_KEYS = frozenset({"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"})
NO_HTTP = frozenset({"HttpProcessingError"})
"""The cause of aiohttp's error for a malformed status line or header, which has status 400."""
_JITTER = random.SystemRandom()  # its own generator: the global one is reserved for transforms


@dataclass(frozen=True)
class Retry:
    """The limits and the exponential back-off of requests to a store.

    tries: attempts per request. timeout: the limit of one attempt in seconds. wait: the first pause
    in seconds, which doubles after each attempt up to ``longest_wait``. The actual pause is between
    half and all of it, at random, so that workers do not retry at the same time. With the defaults,
    requests survive an outage of one minute. in_flight: concurrent requests of each worker. Raises
    ValueError for values out of range.
    """

    tries: int = 14
    timeout: float = 60.0
    wait: float = 0.25
    longest_wait: float = 15.0
    in_flight: int = 8

    def __post_init__(self) -> None:
        if self.tries < 1 or self.in_flight < 1 or not self.timeout > 0 or self.wait < 0:
            raise ValueError(
                f"Retry: tries and in_flight must be at least 1, timeout positive and wait not "
                f"negative, got {self}"
            )

    def pause(self, attempts: int) -> float:
        """Return the pause in seconds after this number of attempts."""
        full = min(self.longest_wait, self.wait * 2.0 ** (attempts - 1))
        return full * _JITTER.uniform(0.5, 1.0)


class Damaged(Exception):
    """Raised for a response with a wrong length, checksum or format."""


class Changed(Exception):
    """Raised for an object that was replaced after the data set was opened."""


class Refused(Exception):
    """Raised for a request that cannot be served, with the reason or an alternative."""


class ObjectMissing(DataError):
    """Raised for an object that the store does not have."""


async def retried(what: str, url: str, retry: Retry, attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of ``attempt()``, retried after errors that may be temporary.

    Raises ObjectMissing for a missing object, DataError for one that has changed or is corrupt,
    StoreError if the store is unreachable, refuses, or fails in every attempt. The error has no
    ``__cause__``, since the clients' errors hold requests with their credentials.
    """
    number = 0
    while True:
        number += 1
        try:
            return await asyncio.wait_for(attempt(), retry.timeout)
        except NeedleError:
            raise
        except Exception as error:
            verdict, words = judge(error), one_line(error)
        if not verdict.again or number == retry.tries:
            raise verdict.kind(
                f"{what} {url}: {words}, attempt {number} of {retry.tries}; {verdict.remedy}"
            )
        await asyncio.sleep(retry.pause(number))


@dataclass(frozen=True)
class Verdict:
    """The classification of an error: the exception to raise, and its remedy.

    again: True for a temporary error, after which another attempt may succeed.
    """

    again: bool
    kind: type[NeedleError]
    remedy: str


_MISSING = Verdict(
    False, ObjectMissing, "check the address, or upload the data set again if it should be there"
)
_CHANGED = Verdict(False, DataError, "it has changed since the data set was opened: open it again")
_DAMAGED = Verdict(True, DataError, "the object is damaged: upload it again")
_FORBIDDEN = Verdict(
    False,
    StoreError,
    "check the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or "
    "~/.aws/credentials, for the web ~/.netrc",
)
_AWAY = Verdict(
    True,
    StoreError,
    "check the network and the address (AWS_ENDPOINT_URL for a store of your own), then run again, "
    "with a larger Retry(tries=) if outages are frequent",
)
_REFUSED = Verdict(False, StoreError, "the request cannot succeed as it is")


def judge(error: BaseException) -> Verdict:
    """Classify the error of an attempt."""
    status = status_of(error)
    if isinstance(error, Damaged):
        return _DAMAGED
    if isinstance(error, Changed) or status == 412:
        return _CHANGED
    if status in (401, 403) or isinstance(error, PermissionError) or _named(error, NO_KEYS):
        return _FORBIDDEN
    if status in (404, 410) or (status is None and isinstance(error, FileNotFoundError)):
        return _MISSING
    if status in TEMPORARY:
        return _AWAY
    broken = isinstance(error, (OSError, EOFError, asyncio.TimeoutError))
    if status is None and (broken or _named(error, BROKEN_CONNECTIONS | NO_HTTP)):
        return _AWAY
    return _AWAY if _is_garbled(error) else _REFUSED


def _named(error: BaseException | None, names: frozenset[str]) -> bool:
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _is_garbled(error: BaseException) -> bool:
    """Return True if the response was not valid HTTP."""
    return _named(error.__cause__, NO_HTTP)


def status_of(error: BaseException | None) -> int | None:
    """Return the HTTP status of a botocore or aiohttp error or of its causes."""
    while error is not None and not _is_garbled(error):
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:
            status = getattr(error, "status", None)
        if isinstance(status, int):
            return status
        error = error.__cause__
    return None


def one_line(error: BaseException) -> str:
    """Return the error as one line of text without credentials."""
    if isinstance(error, (Damaged, Changed, Refused)):
        return without_secrets(str(error))
    status = status_of(error)
    words = " ".join(without_secrets(str(error)).split()) or "no answer in time"
    prefix = f"HTTP status {status}, " if status is not None else ""
    return f"{prefix}{type(error).__name__}: {words[:300]}"
