"""One client per protocol (S3, HTTP, others): get bytes, put an object, list a page.

Each uses a file system of fsspec with its retries turned off; retry.py repeats requests. Addresses
end with "/", names of objects are relative to them. Called by store.py.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import quote

from .retry import Refused, Retry

MD5 = re.compile(r"[0-9a-f]{32}")
PAGE = 1000


@dataclass(frozen=True)
class Answer:
    """The bytes, the ETag of the object ("" if there is none) and its whole size, if known.

    digests: True if the ETag is the MD5 of the content.
    """

    content: bytes
    etag: str = ""
    total: int | None = None
    digests: bool = False


@dataclass(frozen=True)
class Listed:
    """One object of a listing."""

    name: str
    size: int
    etag: str = ""


class Client(Protocol):
    """The requests of a protocol; ``loop`` runs its coroutines."""

    loop: Any

    async def get(self, name: str, start: int, end: int | None, etag: str) -> Answer:
        """Return bytes ``start`` to ``end`` (None: all) of the object, if it has that ETag."""

    async def put(self, name: str, content: bytes) -> str:
        """Write the whole object; return its ETag."""

    async def page(self, after: str | None) -> tuple[list[Listed], str | None]:
        """Return a page of objects, and the mark of the next page or None."""


class S3:
    """``s3://bucket/prefix/``; endpoint, region and credentials as in botocore."""

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
                # Older servers know MD5 only, which the caller checks.
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
        )
        self.fs.retries = 1
        self.loop = self.fs.loop

    async def get(self, name: str, start: int, end: int | None, etag: str) -> Answer:
        """See Client."""
        asked = {"IfMatch": f'"{etag}"'} if etag else {}
        if end is not None:
            asked["Range"] = f"bytes={start}-{end - 1}"
        found = await self._call("get_object", Key=self.prefix + name, **asked)
        try:
            content = await found["Body"].read()
        finally:
            found["Body"].close()
        tag = found.get("ETag", "").strip('"')
        own_key = "SSECustomerAlgorithm" in found
        plain = found.get("ServerSideEncryption") in (None, "AES256") and not own_key
        total = _total(found.get("ContentRange"), found.get("ContentLength"))
        return Answer(content, tag, total, plain and MD5.fullmatch(tag) is not None)

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
    """``http://`` and ``https://``, read-only.

    Proxies and credentials come from the environment and ~/.netrc.
    """

    def __init__(self, url: str, retry: Retry) -> None:
        self.url = url
        package("aiohttp")  # raises now if it is missing
        self.fs = package("fsspec").filesystem(
            "http", skip_instance_cache=True, encoded=True, client_kwargs={"trust_env": True}
        )
        self.loop = self.fs.loop

    async def get(self, name: str, start: int, end: int | None, etag: str) -> Answer:
        """See Client."""
        headers = {"Accept-Encoding": "identity"}
        if etag:
            headers["If-Match"] = f'"{etag}"'
        if end is not None:
            headers["Range"] = f"bytes={start}-{end - 1}"
        session = await self.fs.set_session()
        where = self.fs.encode_url(self.url + quote(name))
        async with session.get(where, headers=headers) as found:
            found.raise_for_status()
            content = await found.read()
        tag = found.headers.get("ETag", "")
        tag = "" if tag.startswith("W/") else tag.strip('"')
        total = _total(found.headers.get("Content-Range"), found.headers.get("Content-Length"))
        if end is not None and found.status == 200:  # a server without ranges
            content = content[start:end]
        return Answer(content, tag, total)

    async def put(self, name: str, content: bytes) -> str:
        """See Client."""
        raise Refused("a web server is not written to; give s3://bucket/prefix or a folder")

    async def page(self, after: str | None) -> tuple[list[Listed], str | None]:
        """See Client."""
        raise Refused(
            "a web server lists nothing, and needle-index.json is not there; data.upload() to a "
            "folder writes it, and the folder can then be served"
        )


class Other:
    """Every other protocol of fsspec, and local folders; each request runs in a thread."""

    def __init__(self, url: str, retry: Retry) -> None:
        fsspec = package("fsspec")
        self.fs, self.root = fsspec.url_to_fs(url)
        self.root = self.root.rstrip("/") + "/"
        self.loop = importlib.import_module("fsspec.asyn").get_loop()

    async def get(self, name: str, start: int, end: int | None, etag: str) -> Answer:
        """See Client."""
        place = self.root + name
        content = await asyncio.to_thread(self.fs.cat_file, place, start=start or None, end=end)
        return Answer(content)

    async def put(self, name: str, content: bytes) -> str:
        """See Client."""
        await asyncio.to_thread(self._put, self.root + name, content)
        return ""

    async def page(self, after: str | None) -> tuple[list[Listed], str | None]:
        """See Client."""
        found = await asyncio.to_thread(self.fs.find, self.root, detail=True)
        start = len(self.root)
        return [Listed(name[start:], int(info["size"])) for name, info in found.items()], None

    def _put(self, place: str, content: bytes) -> None:
        self.fs.makedirs(place.rpartition("/")[0], exist_ok=True)
        self.fs.pipe_file(place, content)


def client_for(url: str, retry: Retry) -> Client:
    """Return a client for the protocol of the address."""
    kinds: dict[str, type[S3] | type[Web]] = {"s3": S3, "http": Web, "https": Web}
    return kinds.get(url.partition("://")[0], Other)(url, retry)


def package(name: str) -> ModuleType:
    """Return a library of the extra ``remote``; ImportError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"data sets in a store need {name}, which is not installed; "
            f"pip install 'needle[remote]'"
        ) from error


def _total(content_range: str | None, length: Any) -> int | None:
    """Return the size of the whole object from "bytes 0-9/100", else the length received."""
    if content_range:
        whole = content_range.rpartition("/")[2]
        return int(whole) if whole.isdigit() else None
    return None if length is None else int(length)
