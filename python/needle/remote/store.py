"""Store: concurrent requests that get, put and list objects, with checked responses.

A Store can be pickled: every process makes its own client at its first request. Called by
remote_images.py, remote_packed.py, catalogue.py and uploading.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ..data.formats.files import MAX_BYTES
from ..data.samples.pytree import tag_sample
from ..errors import DataError
from .protocols import Answer, Client, Listed, client_for
from .retry import Changed, Damaged, Retry, retried

T = TypeVar("T")
MAX_PAGES = 100_000
"""Maximum number of pages in a listing, with a thousand objects each."""


@dataclass(frozen=True)
class Wanted:
    """A request for an object, or for bytes ``start`` to ``end`` of it, with values to check.

    size: the bytes of the whole object, None if unknown. etag: the ETag it must have. md5: the
    digest of the requested bytes. sample: an index in the data set, for error messages. most: the
    maximum size in bytes of an object of unknown size. parse: converts the bytes; raises Damaged if
    they are invalid.
    """

    name: str
    size: int | None = None
    start: int = 0
    end: int | None = None
    etag: str = ""
    md5: str = ""
    sample: int | None = None
    most: int = MAX_BYTES
    parse: Callable[[bytes], Any] = bytes

    @property
    def length(self) -> int | None:
        """The required length of the response in bytes; None if the size is unknown."""
        end = self.size if self.end is None else self.end
        return None if end is None else end - self.start

    def check(self, answer: Answer) -> None:
        """Raise Damaged or Changed if the response does not match the request."""
        if self.etag and answer.etag and answer.etag != self.etag:
            raise Changed(f"its ETag must be {self.etag!r}, got {answer.etag!r}")
        wanted, length = self.length, len(answer.content)
        if length > (self.most if wanted is None else wanted):
            limit = f"have {wanted}" if wanted is not None else f"have at most {self.most}"
            raise Damaged(f"it must {limit} bytes, got more")
        if wanted is not None and length != wanted:
            raise Damaged(f"it must have {wanted} bytes, got {length}")
        md5 = self.md5 or (answer.etag if answer.digests and self.end is None else "")
        if md5 and md5 != md5_of(answer.content):
            raise Damaged(f"its {length} bytes must have the MD5 {md5}, got a different one")


class Store:
    """A store at ``s3://bucket/prefix``, ``http(s)://host/path`` or another address of fsspec."""

    def __init__(self, url: str | os.PathLike[str], retry: Retry | None = None) -> None:
        self.url = _checked(os.fspath(url))
        self.retry = retry or Retry()
        self._client: tuple[int, Client] | None = None

    def get(self, wanted: Sequence[Wanted]) -> list[Any]:
        """Return the parsed content of each object; the first error cancels all other requests."""
        if not wanted:
            return []
        found: list[Any] = self._run(lambda client: self._together(client, wanted, self._got))
        return found

    def put(
        self, objects: Sequence[tuple[str, bytes]], done: Callable[[str], Any] | None = None
    ) -> None:
        """Write each (name, content), and then call ``done`` with its name."""

        async def one(client: Client, given: tuple[str, bytes]) -> None:
            await self._retried("put", given[0], partial(_put, client, *given))
            if done is not None:
                done(given[0])

        self._run(lambda client: self._together(client, objects, one))

    def listing(self) -> Iterator[Listed]:
        """Yield all objects below the address, page by page."""
        after: str | None = None
        for _ in range(MAX_PAGES):

            def page(client: Client, asked: str | None = after) -> Any:
                return self._retried("list", "", partial(client.page, asked))

            rows, after = self._run(page)
            yield from rows
            if after is None:
                return
        raise DataError(f"list {self.url}: the listing must end after {MAX_PAGES} pages, got more")

    async def _together(
        self, client: Client, items: Sequence[Any], one: Callable[[Client, Any], Awaitable[T]]
    ) -> list[T]:
        """Await ``one`` for each item, ``in_flight`` at a time; an error cancels the others."""
        room = asyncio.Semaphore(self.retry.in_flight)

        async def with_room(item: Any) -> T:
            async with room:
                return await one(client, item)

        tasks = [asyncio.ensure_future(with_room(item)) for item in items]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _got(self, client: Client, wanted: Wanted) -> Any:
        most = wanted.most if wanted.length is None else wanted.length

        async def attempt() -> Any:
            asked = (wanted.name, wanted.start, wanted.end, wanted.etag)
            answer = await client.get(*asked, most)
            wanted.check(answer)
            return wanted.parse(answer.content)

        try:
            return await self._retried("get", wanted.name, attempt)
        except Exception as error:
            if wanted.sample is not None:
                tag_sample(error, wanted.sample)
            raise

    async def _retried(self, what: str, name: str, attempt: Callable[[], Any]) -> Any:
        return await retried(what, self.url + name, self.retry, attempt)

    # ---- the client of this process ----------------------------------------------------------

    def _run(self, work: Callable[[Client], Any]) -> Any:
        """Run the coroutine ``work(client)`` and return its result; cancel it on an interrupt."""
        client = self._client_here()
        future = asyncio.run_coroutine_threadsafe(work(client), client.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _client_here(self) -> Client:
        """Return this process's client, since connections do not survive a fork."""
        if self._client is None or self._client[0] != os.getpid():
            self._client = os.getpid(), client_for(self.url, self.retry)
        return self._client[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}


async def _put(client: Client, name: str, content: bytes) -> None:
    etag = await client.put(name, content)
    md5 = md5_of(content)
    if len(etag) == len(md5) and "-" not in etag and etag != md5:
        raise Damaged(f"the store must have {len(content)} bytes with MD5 {md5}, got ETag {etag}")


def store_at(where: str | os.PathLike[str] | Store, retry: Retry | None) -> Store:
    """Return a Store for an address; a Store is returned unchanged."""
    return where if isinstance(where, Store) else Store(where, retry)


def md5_of(content: bytes) -> str:
    """Return the MD5 in hexadecimal; it is a checksum, not used for security."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


USER_INFO = re.compile(r"[^/]*:[^/]*@|//[^/]*@")
NETWORK = re.compile(r"(https?|s3):", re.IGNORECASE)
PLACE = re.compile(r"\w+://([^/@:?#\[\]]+|\[[\da-f:.]+\])(:\d+)?(/[^?#]*)?", re.IGNORECASE)


def _checked(url: str) -> str:
    """Return the address with one trailing "/"; raise DataError, without secrets, if invalid."""
    scheme, mark, rest = url.partition("://")
    head = f"{scheme}://..." if mark and scheme.isalnum() else "the address"
    if USER_INFO.search(url):
        raise DataError(
            f"{head}: an address must not have credentials in it; put them into the environment, "
            f"~/.aws/credentials or ~/.netrc"
        )
    whole = PLACE.fullmatch(url) if NETWORK.match(url) else rest.strip("/") or not mark
    if not whole or (mark and re.search("[?#]", rest)):
        raise DataError(
            f"{head}: an address must be s3://bucket/prefix or http://host/path, without a query "
            "(?) or fragment (#)"
        )
    return (url if mark else os.path.abspath(url)).rstrip("/") + "/"
