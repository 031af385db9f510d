"""Clients for the protocols (S3, HTTP, others) that get bytes, put an object and list a page.

Each uses a file system of fsspec with its retries turned off, since retry.py retries requests. No
response is read beyond its maximum size. Addresses end with "/", and object names are relative to
them. Called by store.py.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import netrc
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from .. import config
from ..data.formats.files import open_file
from ..errors import DataError
from .retry import Damaged, Refused, Retry

MD5 = re.compile(r"[0-9a-f]{32}")
PAGE = 1000
MAX_PAGE = 1 << 26
"""Maximum size of a listing's page or of an error's body, in bytes."""
MAX_REDIRECTS = 10
REDIRECTS = (301, 302, 303, 307, 308)
CHUNK = 1 << 18


@dataclass(frozen=True)
class Answer:
    """Response body and ETag of an object; the ETag is "" if the store sends none.

    digests: True if the ETag is the MD5 of the content.
    """

    content: bytes
    etag: str = ""
    digests: bool = False


@dataclass(frozen=True)
class Listed:
    """One object of a listing."""

    name: str
    size: int
    etag: str = ""


class Client(Protocol):
    """The requests of a protocol, as coroutines that ``loop`` runs."""

    loop: Any

    async def get(self, name: str, start: int, end: int | None, etag: str, most: int) -> Answer:
        """Return bytes ``start`` to ``end`` (None: the last) of an object with the ETag ``etag``.

        At most ``most + 1`` bytes of a response are read.
        """

    async def put(self, name: str, content: bytes) -> str:
        """Write a whole object; return its ETag."""

    async def page(self, after: str | None) -> tuple[list[Listed], str | None]:
        """Return a page of objects, and the token of the next page or None."""


class S3:
    """A client of ``s3://bucket/prefix/``, with botocore's endpoint, region and credentials."""

    def __init__(self, url: str, retry: Retry) -> None:
        self.bucket, _, self.prefix = url.removeprefix("s3://").partition("/")
        self.fs = package("s3fs").S3FileSystem(
            skip_instance_cache=True,
            use_listings_cache=False,
            config_kwargs={
                "connect_timeout": retry.timeout,
                "read_timeout": retry.timeout,
                "max_pool_connections": max(10, retry.in_flight),
                "retries": {"total_max_attempts": 1, "mode": "standard"},
                # Older servers support only MD5, which the caller checks.
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
                "http_session_cls": _bounded_session(),
            },
        )
        self.fs.retries = 1
        self.loop = self.fs.loop

    async def get(self, name: str, start: int, end: int | None, etag: str, most: int) -> Answer:
        """See Client."""
        asked = {"IfMatch": f'"{etag}"'} if etag else {}
        if end is not None:
            asked["Range"] = f"bytes={start}-{end - 1}"
        found = await self._call("get_object", Key=self.prefix + name, **asked)
        try:
            content = await _read(found["Body"].read, most)
        finally:
            found["Body"].close()
        tag = found.get("ETag", "").strip('"')
        own_key = "SSECustomerAlgorithm" in found
        plain = found.get("ServerSideEncryption") in (None, "AES256") and not own_key
        return Answer(content, tag, plain and MD5.fullmatch(tag) is not None)

    async def put(self, name: str, content: bytes) -> str:
        """See Client."""
        made = await self._call("put_object", Key=self.prefix + name, Body=content)
        return str(made.get("ETag", "")).strip('"')

    async def page(self, after: str | None) -> tuple[list[Listed], str | None]:
        """See Client."""
        token = {} if after is None else {"ContinuationToken": after}
        found = await self._call("list_objects_v2", Prefix=self.prefix, MaxKeys=PAGE, **token)
        rows = [
            Listed(each["Key"][len(self.prefix) :], int(each["Size"]), each["ETag"].strip('"'))
            for each in found.get("Contents", ())
        ]
        return rows, found.get("NextContinuationToken") if found.get("IsTruncated") else None

    async def _call(self, method: str, **arguments: Any) -> Any:
        return await self.fs._call_s3(method, Bucket=self.bucket, **arguments)


class Web:
    """A read-only client of ``http://`` and ``https://``.

    Proxies and credentials come from the environment and ~/.netrc. Credentials are sent only to the
    host and port of the address, never to the target of a redirect.
    """

    def __init__(self, url: str, retry: Retry) -> None:
        self.url = url
        package("aiohttp")  # raises an error now if the package is missing
        self.fs = package("fsspec").filesystem("http", skip_instance_cache=True, encoded=True)
        self.loop = self.fs.loop
        self.credentials = _credentials(url)

    async def get(self, name: str, start: int, end: int | None, etag: str, most: int) -> Answer:
        """See Client."""
        headers = {"Accept-Encoding": "identity"}
        if etag:
            headers["If-Match"] = f'"{etag}"'
        if end is not None:
            headers["Range"] = f"bytes={start}-{end - 1}"
        found = await self._answer(self.url + quote(name), headers)
        try:
            found.raise_for_status()
            place = found.headers.get("Content-Range", "")
            if found.status == 206 and not place.startswith(f"bytes {start}-"):
                raise Damaged(f"asked for bytes from {start}, got the range {place!r}")
            ignored = found.status != 206 and end is not None  # a server without ranges
            if ignored:
                await _read(found.content.read, start - 1, keep=False)
            content = await _read(found.content.read, most)
            content = content[:most] if ignored else content
        finally:
            found.release() if found.content.at_eof() else found.close()
        tag = found.headers.get("ETag", "")
        tag = "" if tag.startswith("W/") else tag.strip('"')
        return Answer(content, tag)

    async def _answer(self, url: str, headers: dict[str, str]) -> Any:
        """Return the response after redirects, with its body unread."""
        session = await self.fs.set_session()
        session._retry_connection = False  # retry.py counts the attempts
        for _ in range(MAX_REDIRECTS + 1):
            own = dict(self.credentials) if _origin(url) == _origin(self.url) else {}
            proxy, permit = _proxy(url)
            # https sends them to the proxy through CONNECT instead
            own |= permit if url.lower().startswith("http:") else {}
            found = await session.get(
                self.fs.encode_url(url),
                headers={**headers, **own},
                proxy=proxy,
                proxy_headers=permit,
                allow_redirects=False,
            )
            target = found.headers.get("Location")
            if found.status not in REDIRECTS or not target:
                return found
            found.close()
            url = urljoin(url, target)
            if not url.lower().startswith(("http://", "https://")):
                raise Refused("it redirects to an address that is not http or https")
        raise Refused(f"it redirects more than {MAX_REDIRECTS} times")

    async def put(self, name: str, content: bytes) -> str:
        """See Client."""
        raise Refused("a web server cannot be written to; give s3://bucket/prefix or a folder")

    async def page(self, after: str | None) -> tuple[list[Listed], str | None]:
        """See Client."""
        raise Refused(
            "a web server has no listings, and needle-index.json is missing; data.upload() to a "
            "folder writes it, and the folder can then be served"
        )


class Other:
    """A client for local folders and other fsspec protocols; its requests run in threads."""

    def __init__(self, url: str, retry: Retry) -> None:
        try:
            self.fs, self.root = package("fsspec").url_to_fs(url)
        except ValueError as error:
            raise DataError(f"an address must have a protocol that fsspec knows: {error}") from None
        self.local = "://" not in url
        self.root = self.root.rstrip("/") + "/"
        self.loop = importlib.import_module("fsspec.asyn").get_loop()

    async def get(self, name: str, start: int, end: int | None, etag: str, most: int) -> Answer:
        """See Client."""
        end = start + most + 1 if end is None else end
        return Answer(await asyncio.to_thread(self._read, self.root + name, start, end))

    async def put(self, name: str, content: bytes) -> str:
        """See Client."""
        await asyncio.to_thread(self._put, self.root + name, content)
        return ""

    async def page(self, after: str | None) -> tuple[list[Listed], str | None]:
        """See Client."""
        found = await asyncio.to_thread(self.fs.find, self.root, detail=True)
        start = len(self.root)
        return [Listed(name[start:], int(info["size"])) for name, info in found.items()], None

    def _read(self, place: str, start: int, end: int) -> bytes:
        if not self.local:
            return bytes(self.fs.cat_file(place, start=start or None, end=end))
        with open_file(place) as file:
            file.seek(start)
            return file.read(end - start)

    def _put(self, place: str, content: bytes) -> None:
        self.fs.makedirs(place.rpartition("/")[0], exist_ok=True)
        self.fs.pipe_file(place, content)


def client_for(url: str, retry: Retry) -> Client:
    """Return a client of the address's protocol."""
    kinds: dict[str, type[S3] | type[Web]] = {"s3": S3, "http": Web, "https": Web}
    return kinds.get(url.partition("://")[0], Other)(url, retry)


def package(name: str) -> ModuleType:
    """Import a package of the extra ``remote``; raise ImportError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"data sets in a store need {name}, which is not installed; "
            f"pip install 'needle[remote]'"
        ) from error


async def _read(read: Callable[[int], Awaitable[bytes]], most: int, keep: bool = True) -> bytes:
    """Read at most ``most + 1`` bytes with ``read``, and return or (keep=False) discard them."""
    pieces, left = [], most + 1
    while left and (piece := await read(min(CHUNK, left))):
        left -= len(piece)
        if keep:
            pieces.append(piece)
    return b"".join(pieces)


def _bounded_session() -> Any:
    """Return a class of aiobotocore sessions that read at most ``MAX_PAGE`` bytes of a response."""
    aiohttp = package("aiohttp")
    base: Any = importlib.import_module("aiobotocore.httpsession").AIOHTTPSession

    class BoundedAnswer(aiohttp.ClientResponse):  # type: ignore[misc, name-defined]
        async def read(self) -> bytes:
            body = await _read(self.content.read, MAX_PAGE)
            if len(body) > MAX_PAGE:
                self.close()
                raise aiohttp.ClientPayloadError(f"the response has more than {MAX_PAGE} bytes")
            self._body: bytes | None = self._body or body
            return await super().read()  # type: ignore[no-any-return]

    class BoundedSession(base):  # type: ignore[misc]
        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            session._response_class = BoundedAnswer
            session._retry_connection = False  # retry.py counts the attempts
            return session

    return BoundedSession


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _credentials(url: str) -> dict[str, str]:
    """Return the header with the host's credentials from ~/.netrc; {} if there are none."""
    try:
        found = netrc.netrc(os.path.expanduser(config.NETRC.read())).authenticators(
            urlsplit(url).hostname or ""
        )
    except (OSError, ValueError, netrc.NetrcParseError):
        return {}
    return _basic("Authorization", f"{found[0]}:{found[2]}") if found else {}


def _basic(header: str, words: str) -> dict[str, str]:
    return {header: "Basic " + base64.b64encode(words.encode()).decode()}


def _proxy(url: str) -> tuple[str | None, dict[str, str]]:
    """Return the proxy named in the environment, and the header with its credentials."""
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None, {}
    found = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    user_info, _, place = found.netloc.rpartition("@")
    permit = _basic("Proxy-Authorization", unquote(user_info)) if user_info else {}
    return f"{found.scheme}://{place}", permit
