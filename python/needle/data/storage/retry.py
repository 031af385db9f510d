"""How long a store is waited for: attempts, pauses between them, and what is not tried again.

Every failure that leaves here names the address, how many attempts were made, and the remedy.
What an attempt is, is the caller's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from ...errors import DataError, NeedleError, StoreError

T = TypeVar("T")

TEMPORARY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 509})
BROKEN_CONNECTIONS = frozenset(
    {"HTTPClientError", "ConnectionError", "IncompleteReadError", "ResponseParserError"}
    | {"ClientConnectionError", "ClientPayloadError"}
)
"""Classes of botocore and aiohttp, by name, since neither is imported before a store is used."""
_DRAWS = random.SystemRandom()  # the global generator belongs to the data set's transforms


@dataclass(frozen=True)
class Patience:
    """How often, how long and how many at once.

    tries: attempts for a request. timeout: seconds one may take. wait: the first pause, doubled
    up to ``longest_wait``; of each a random share between a half and all is waited, so that
    workers do not come back together. As it is, a store may be away for a minute. in_flight:
    requests under way at once, for each worker. ValueError for values that make no sense.
    """

    tries: int = 14
    timeout: float = 60.0
    wait: float = 0.25
    longest_wait: float = 15.0
    in_flight: int = 8

    def __post_init__(self) -> None:
        if self.tries < 1 or self.in_flight < 1 or not self.timeout > 0 or self.wait < 0:
            raise ValueError(
                f"Patience: tries and in_flight must be at least 1, timeout positive and wait not "
                f"negative, got {self}"
            )

    def pause(self, attempts: int) -> float:
        """Seconds to wait after so many attempts."""
        full = min(self.longest_wait, self.wait * 2.0 ** (attempts - 1))
        return full * _DRAWS.uniform(0.5, 1.0)


class Unfit(Exception):
    """An answer that is not what was asked for: shorter, or of other bytes."""


class Changed(Exception):
    """The object is no longer the one that the data set was opened with."""


class Refused(Exception):
    """This kind of store cannot do that; the message says what can."""


class ObjectMissing(DataError):
    """The store has no such object."""


async def persistently(
    what: str, url: str, patience: Patience, attempt: Callable[[], Awaitable[T]]
) -> T:
    """What ``attempt()`` returns, tried again where that may help.

    ObjectMissing, or DataError for an object that has changed or is damaged; StoreError where
    the store cannot be reached, refuses, or fails in every attempt.
    """
    for number in range(1, patience.tries + 1):
        try:
            return await asyncio.wait_for(attempt(), patience.timeout)
        except Exception as error:
            verdict = judge(error)
            if not verdict.again or number == patience.tries:
                raise verdict.kind(
                    f"{what} {url}: {said(error)}, attempt {number} of {patience.tries}; "
                    f"{verdict.remedy}"
                ) from error
        await asyncio.sleep(patience.pause(number))
    raise AssertionError("the last attempt returns or raises")


@dataclass(frozen=True)
class Verdict:
    """Whether trying again may help; else which error it becomes, and what to do."""

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
    "check the network and the address (AWS_ENDPOINT_URL for a store of your own), then go on, "
    "with a larger Patience(tries=) if it is often away",
)
_REFUSED = Verdict(False, StoreError, "the request cannot succeed as it is")


def judge(error: BaseException) -> Verdict:
    """What an attempt's error means."""
    status = status_of(error)
    if isinstance(error, Unfit):
        return _DAMAGED
    if isinstance(error, Changed) or status == 412:
        return _CHANGED
    if status in (401, 403) or isinstance(error, PermissionError) or _named(error, _NO_KEYS):
        return _FORBIDDEN
    if status in (404, 410) or (status is None and isinstance(error, FileNotFoundError)):
        return _MISSING
    if status in TEMPORARY:
        return _AWAY
    if status is None and _is_broken_connection(error):
        return _AWAY
    return _REFUSED


_NO_KEYS = frozenset({"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"})


def _is_broken_connection(error: BaseException) -> bool:
    broken = (OSError, EOFError, asyncio.TimeoutError)
    return isinstance(error, broken) or _named(error, BROKEN_CONNECTIONS)


def _named(error: BaseException, names: frozenset[str]) -> bool:
    return any(kind.__name__ in names for kind in type(error).__mro__)


def status_of(error: BaseException | None) -> int | None:
    """The HTTP status in an error of botocore or aiohttp, or in what it was raised from."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:
            status = getattr(error, "status", None)
        if isinstance(status, int):
            return status
        error = error.__cause__
    return None


def said(error: BaseException) -> str:
    """The error in a line."""
    if isinstance(error, (Unfit, Changed, Refused)):
        return str(error)
    status = status_of(error)
    words = " ".join(str(error).split()) or "no answer in time"
    prefix = f"HTTP status {status}, " if status is not None else ""
    return f"{prefix}{type(error).__name__}: {words[:300]}"
