"""RemotePacked: shards written by ``upload(packed=True)``, and open_remote for any address.

A shard is fetched into the cache when a batch first needs it, in pieces by concurrent requests. It
is then memory-mapped, and PackedDataset reads and checks its samples. If the cache folder is
unusable, shards are kept in temporary files that belong to one process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from operator import methodcaller
from typing import IO, Any, TypeVar

import numpy as np

from ..data.datasets.dataset import Dataset, ItemTransform
from ..data.datasets.decode_size import Needed, ScaledDecoding
from ..data.datasets.indexing import Indices, check_index, several
from ..data.datasets.packed_reading import GarbledSample, PackedDataset, PackedFile
from ..data.samples.pytree import flatten
from ..data.samples.ticket import check_indices
from ..errors import DataError
from .catalogue import Catalogue, read_catalogue
from .object_cache import ObjectCache
from .remote_images import RemoteImageFolder
from .retry import Retry
from .store import Store, Wanted, store_at

T = TypeVar("T")

PIECE = 8 << 20
"""Bytes per range request, enough to be limited by bandwidth at a latency of 20 ms."""
WINDOW = 16
"""Maximum number of pieces in memory that have not been written yet."""
OPEN_SHARDS = 64


class RemotePacked(ScaledDecoding):
    """The samples of all shards at ``s3://bucket/prefix`` or ``http(s)://host/path``, in order.

    Everything else is as in ``PackedDataset``. A loader fetches the shards of a slice together. The
    cache must have room for one shard, and for all shards if each is to be fetched only once.
    Corruption in the cache is detected when a sample is first read, and its shard is fetched again.
    Other options and errors are those of ``RemoteImageFolder``.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Store,
        transforms: Sequence[ItemTransform] | None = None,
        *,
        checked: bool = True,
        scaled_decode: bool = False,
        oriented: bool = True,
        cache: ObjectCache | None = None,
        retry: Retry | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        super().__init__(transforms, scaled_decode, oriented)
        self.store, self.cache = store_at(url, retry), cache or ObjectCache()
        self.catalogue = catalogue or read_catalogue(self.store)
        if self.catalogue.kind != "packed":
            raise DataError(
                f"RemotePacked: {self.store.url} must have packed files, got one "
                "object per image; open it with RemoteImageFolder or open_remote"
            )
        self.checked = checked
        self.layout, self.classes = self.catalogue.layout, self.catalogue.classes
        self.ends = np.cumsum(self.catalogue.numbers)
        self._open: dict[int, PackedDataset] = {}

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, index: Any) -> Any:
        if (places := several(index, len(self))) is not None:
            return [self[i] for i in places.tolist()]
        place = np.array([check_index("RemotePacked", index, len(self))])
        (shard,), (row,) = self._places(place)
        return self._read(int(shard), lambda packed: packed[int(row)])

    def fetch(self, indices: Indices) -> Any | None:
        """Return the batch if every field is numbers or arrays of equal shape, else None.

        In either case the shards of the samples are in the cache afterwards.
        """
        numbers, rows = self._places(check_indices("RemotePacked", indices, len(self)))
        wanted = np.unique(numbers).tolist()
        self._shards(wanted)
        parts = [
            self._read(number, methodcaller("fetch", rows[numbers == number])) for number in wanted
        ]
        if not parts or any(part is None for part in parts):
            return None
        order = np.argsort(np.argsort(numbers, kind="stable"), kind="stable")
        structure, _ = flatten(parts[0])
        leaves = zip(*(flatten(part)[1] for part in parts))
        return structure.rebuild([np.concatenate(leaf)[order] for leaf in leaves])

    def set_decoding(self, needed: Needed) -> bool:
        """See ``ScaledDecoding``; open shards are reopened."""
        self._open = {}
        return super().set_decoding(needed)

    def _places(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return the shard of each sample, and its row in the shard."""
        numbers = np.searchsorted(self.ends, indices, side="right")
        return numbers, indices - (self.ends - self.catalogue.numbers)[numbers]

    # ---- shards ------------------------------------------------------------------------------

    def _read(self, number: int, read: Callable[[PackedDataset], T]) -> T:
        """Return ``read(shard)``, fetching the shard once more if it is corrupt."""
        try:
            return read(self._shards([number])[0])
        except GarbledSample:
            self._open.pop(number, None)
            self.cache.remove(self._key(number))
            return read(self._shards([number])[0])

    def _shards(self, numbers: Sequence[int]) -> list[PackedDataset]:
        """Return these shards open, after fetching those that are not in the cache.

        Shards that no other process is fetching are fetched first, concurrently, then the others.
        """
        found = {number: self._open[number] for number in numbers if number in self._open}
        closed = [number for number in numbers if number not in found]
        found |= self._opened(closed, wait=False)
        for number in closed:
            if number not in found:
                found |= self._opened([number], wait=True)
        if closed:
            kept = [*self._open.items(), *((n, found[n]) for n in closed)]
            self._open = dict(kept[-max(OPEN_SHARDS, len(numbers)) :])
        return [found[number] for number in numbers]

    def _opened(self, numbers: Sequence[int], wait: bool) -> dict[int, PackedDataset]:
        """Return the shards in the cache, and those that this call fetches."""
        with ExitStack() as stack:
            claimed, opened = {}, {}
            for number in numbers:
                shard = self._from_cache(number)
                if shard is None:
                    claim = self.cache.claim(self._key(number), self._size(number), wait)
                    file = stack.enter_context(claim)
                    # another process may have fetched it meanwhile
                    shard = self._from_cache(number)
                    if shard is None and file is not None:
                        claimed[number] = file
                if shard is not None:
                    opened[number] = shard
            self._download(claimed)
            for number, file in claimed.items():
                self.cache.commit(self._key(number), file)
                opened[number] = self._mapped(number, file)
        return opened

    def _from_cache(self, number: int) -> PackedDataset | None:
        """Return the shard if it is in the cache; remove it if it is corrupt."""
        file = self.cache.open(self._key(number), self._size(number))
        if file is None:
            return None
        with file:
            try:
                return self._mapped(number, file)
            except DataError:
                self.cache.remove(self._key(number))
                return None

    def _mapped(self, number: int, file: IO[bytes]) -> PackedDataset:
        names = ("checked", "scaled_decode", "oriented")
        options = {name: getattr(self, name) for name in names}
        packed = PackedFile(file, self._url(number), self._size(number))
        shard = PackedDataset(packed, self.transforms, **options)
        shard.set_decoding(Needed(self.decode_at_least, self.decode_regions))
        if len(shard) != self.catalogue.numbers[number]:
            raise DataError(
                f"{self._url(number)}: must have {self.catalogue.numbers[number]} samples, got "
                f"{len(shard)}; upload the data set again"
            )
        return shard

    def _download(self, claimed: dict[int, IO[bytes]]) -> None:
        """Fill the files, again if an MD5 is wrong, since pieces have no digests of their own."""
        damaged = self._filled(self._filled(list(claimed), claimed), claimed)
        if damaged:
            raise DataError(
                f"{self._url(damaged[0])}: its bytes must have the MD5 "
                f"{self.catalogue.wanted(damaged[0]).md5}, got a different one twice; upload the "
                "data set again"
            )

    def _filled(self, numbers: list[int], files: dict[int, IO[bytes]]) -> list[int]:
        """Fill the files of these shards; return the shards with a wrong MD5."""
        hashes = {number: hashlib.md5(usedforsecurity=False) for number in numbers}
        for number in numbers:
            files[number].seek(0)
        pieces = ((number, each) for number in numbers for each in self._pieces(number))
        while window := list(islice(pieces, WINDOW)):
            for (number, _), content in zip(window, self.store.get([each for _, each in window])):
                files[number].write(content)
                hashes[number].update(content)
        expected = {number: self.catalogue.wanted(number).md5 for number in numbers}
        return [n for n, md5 in expected.items() if md5 and hashes[n].hexdigest() != md5]

    def _pieces(self, number: int) -> Iterator[Wanted]:
        whole, size = self.catalogue.wanted(number), self._size(number)
        if size <= PIECE:
            yield whole
            return
        for start in range(0, size, PIECE):
            yield replace(whole, start=start, end=min(start + PIECE, size), md5="")

    def _size(self, number: int) -> int:
        return int(self.catalogue.sizes[number])

    def _key(self, number: int) -> str:
        return self.catalogue.key(self.store.url, number)

    def _url(self, number: int) -> str:
        return self.store.url + self.catalogue.names[number]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}


def open_remote(
    url: str | os.PathLike[str],
    transforms: Sequence[ItemTransform] | None = None,
    *,
    cache: ObjectCache | None = None,
    retry: Retry | None = None,
    checked: bool = True,
    oriented: bool = True,
    **images: Any,
) -> Dataset:
    """Return RemotePacked if packed files are at ``url``, else RemoteImageFolder.

    checked: an option of RemotePacked. images: options of RemoteImageFolder alone. The other
    parameters are those of both classes.
    """
    store = Store(url, retry)
    catalogue = read_catalogue(store)
    both: dict[str, Any] = {"cache": cache, "catalogue": catalogue, "oriented": oriented}
    if catalogue.kind == "packed":
        return RemotePacked(store, transforms, checked=checked, **both)
    return RemoteImageFolder(store, transforms=transforms, **both, **images)
