"""Store: an address whose objects are got, put and listed, several at once, each answer checked.

A value that pickles: the client is made by the process that first asks, and no other uses it.
What an object means is the data sets'; what is kept on this machine is cache.py's.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ...errors import DataError
from ..samples.pytree import tag_sample
from .protocols import Answer, Client, Listed, client_for
from .retry import Changed, Patience, Unfit, persistently

T = TypeVar("T")


@dataclass(frozen=True)
class Wanted:
    """An object, or bytes ``start`` to ``end`` of it, and what is known of it.

    size: of the whole object, None where it is not known. etag: what it must still have. md5: of
    what is asked for. sample: the data set's index, for errors.
    """

    name: str
    size: int | None = None
    start: int = 0
    end: int | None = None
    etag: str = ""
    md5: str = ""
    sample: int | None = None

    def check(self, answer: Answer) -> None:
        """Unfit or Changed if the answer is not this."""
        if self.etag and answer.etag and answer.etag != self.etag:
            raise Changed(f"its ETag must be {self.etag!r}, got {answer.etag!r}")
        end = self.size if self.end is None else self.end
        length = len(answer.content)
        if end is not None and length != end - self.start:
            raise Unfit(f"it must have {end - self.start} bytes, got {length}")
        md5 = self.md5 or (answer.etag if answer.digests and self.end is None else "")
        if md5 and md5 != md5_of(answer.content):
            raise Unfit(f"its {length} bytes must have the MD5 {md5}, and have not")


class Store:
    """``s3://bucket/prefix``, ``http(s)://host/path``, or another address that fsspec knows."""

    def __init__(self, url: str | os.PathLike[str], patience: Patience | None = None) -> None:
        self.url = _checked(os.fspath(url))
        self.patience = patience or Patience()
        self._client: tuple[int, Client] | None = None

    def get(self, wanted: Sequence[Wanted]) -> list[bytes]:
        """The content of each; the first failure ends the others."""
        if not wanted:
            return []
        found: list[bytes] = self._run(lambda client: self._together(client, wanted, self._got))
        return found

    def put(
        self, objects: Sequence[tuple[str, bytes]], done: Callable[[str], Any] | None = None
    ) -> None:
        """Writes (name, content) each; ``done`` is called with the name after each one."""

        async def one(client: Client, given: tuple[str, bytes]) -> None:
            await self._persistently("put", given[0], partial(_put, client, *given))
            if done is not None:
                done(given[0])

        self._run(lambda client: self._together(client, objects, one))

    def listing(self) -> Iterator[Listed]:
        """All objects below the address, page by page."""
        after: str | None = None
        while True:

            def page(client: Client, asked: str | None = after) -> Any:
                return self._persistently("list", "", partial(client.page, asked))

            rows, after = self._run(page)
            yield from rows
            if after is None:
                return

    async def _together(
        self, client: Client, items: Sequence[Any], one: Callable[[Client, Any], Awaitable[T]]
    ) -> list[T]:
        """``one`` of each item, ``in_flight`` at once; an error ends what is under way."""
        room = asyncio.Semaphore(self.patience.in_flight)

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

    async def _got(self, client: Client, wanted: Wanted) -> bytes:
        async def attempt() -> bytes:
            asked = (wanted.name, wanted.start, wanted.end, wanted.etag)
            answer = await client.get(*asked)
            wanted.check(answer)
            return answer.content

        try:
            found: bytes = await self._persistently("get", wanted.name, attempt)
            return found
        except Exception as error:
            if wanted.sample is not None:
                tag_sample(error, wanted.sample)
            raise

    async def _persistently(self, what: str, name: str, attempt: Callable[[], Any]) -> Any:
        return await persistently(what, self.url + name, self.patience, attempt)

    # ---- the client of this process ----------------------------------------------------------

    def _run(self, work: Callable[[Client], Any]) -> Any:
        """What the coroutine ``work(client)`` returns; it ends if this thread is interrupted."""
        client = self._client_here()
        future = asyncio.run_coroutine_threadsafe(work(client), client.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _client_here(self) -> Client:
        """A client that this process has made: connections do not survive a fork."""
        if self._client is None or self._client[0] != os.getpid():
            self._client = os.getpid(), client_for(self.url, self.patience)
        return self._client[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}


async def _put(client: Client, name: str, content: bytes) -> None:
    etag = await client.put(name, content)
    md5 = md5_of(content)
    if len(etag) == len(md5) and "-" not in etag and etag != md5:
        raise Unfit(f"the store must have got {len(content)} bytes of MD5 {md5}, it says {etag}")


def store_at(where: str | os.PathLike[str] | Store, patience: Patience | None) -> Store:
    """A store for an address; one that is given already stays the one that it is."""
    return where if isinstance(where, Store) else Store(where, patience)


def md5_of(content: bytes) -> str:
    """In hexadecimal: a checksum here, no protection."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _checked(url: str) -> str:
    """The address with one "/" at its end; DataError for what would be a secret in messages."""
    scheme, mark, rest = url.partition("://")
    if mark and "@" in rest.partition("/")[0]:
        raise DataError(
            f"{scheme}://...: an address must not have credentials in it; put them into the "
            f"environment, ~/.aws/credentials or ~/.netrc"
        )
    if not mark:
        return os.path.abspath(url).rstrip("/") + "/"
    if not rest.strip("/") or any(letter in rest for letter in "?#"):
        raise DataError(
            f"an address must be s3://bucket/prefix or http://host/path, without ? and #, got "
            f"{scheme}://{rest.partition('?')[0]}"
        )
    return url.rstrip("/") + "/"
