"""TarShards: a stream of samples from tar files in the layout of WebDataset.

Consecutive members whose names agree up to the first dot form one sample: ``n01/0007.jpg``,
``n01/0007.cls``. Members are found by seeking from header to header.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from tarfile import TarInfo
from typing import IO, Any

from ...errors import DataError
from ..formats.decoding import EXTENSIONS, decode
from ..formats.files import MAX_BYTES, MAX_HEADER, check_list, is_hidden, open_file
from ..formats.npy import parse_npy
from ..formats.tar_writing import KEY
from ..transforms import Compose
from ..transforms.base import listed_transforms
from .dataset import ItemTransform
from .stream import IterableDataset

BLOCK = 512


class TarShards(IterableDataset):
    """Samples of tar files, with one shard per file, in the order of the files.

    paths: the uncompressed tar files. fields: the members that form a sample, such as ``("jpg;png",
    "cls")``, with ";" between alternatives; with None a sample is a dict of all its members by
    extension, with its name as "__key__". ``transforms`` receive the first field. The extension
    decides the type: images become uint8 ``(H, W, 3)``, "cls" an int, "txt" text, "json" its value,
    "npy" an array of numbers, everything else bytes. Links, folders, hidden files and files without
    an extension are skipped. oriented: see ``ImageFolder``.

    On resuming, earlier samples are skipped without being read. Raises DataError, naming file,
    member and byte offset, if a tar is truncated or damaged, if all its files are skipped, if a
    sample lacks a field or has two members for it, or if other members are between those of a
    sample.
    """

    _fixed = frozenset({"paths", "fields"})

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        fields: Sequence[str] | None = None,
        transforms: Sequence[ItemTransform] | None = None,
        *,
        oriented: bool = True,
    ) -> None:
        check_list("TarShards", "paths", paths)
        check_list("TarShards", "fields", fields)
        self.paths = tuple(os.path.abspath(path) for path in paths)
        if not self.paths:
            raise DataError("TarShards: needs at least one tar file, got none")
        super().__init__(len(self.paths))
        self.fields = None if fields is None else tuple(f.lower().split(";") for f in fields)
        self.transforms = listed_transforms("TarShards", transforms)
        self.layout, self.oriented = "HWC", oriented

    def __iter__(self) -> Iterator[Any]:
        for shard in range(self.num_shards):
            yield from self.iter_shard(shard, 0, 0)

    def iter_shard(self, shard: int, epoch: int, start: int) -> Iterator[Any]:
        """Yield the samples of one file from ``start`` on, in the same order in every epoch."""
        path = self.paths[shard]
        with open_file(path) as file:
            for number, (key, members) in enumerate(_groups(path, _members(path, file))):
                if number >= start:
                    yield self._sample(path, file, key, members)

    def _sample(self, path: str, file: Any, key: str, members: dict[str, TarInfo]) -> Any:
        if self.fields is None:
            if KEY in members:
                raise DataError(
                    f"{path}: {KEY!r} is reserved for the name of the sample, got the member "
                    f"{members[KEY].name!r}; rename it"
                )
            sample = {name: self._read(path, file, name, each) for name, each in members.items()}
            first = next(iter(sample))
            return {KEY: key, **sample, first: self._transformed(sample[first])}
        values = []
        for choices in self.fields:
            names = [choice for choice in choices if choice in members]
            if len(names) != 1:
                found = ", ".join(repr(each.name) for each in members.values())
                raise DataError(
                    f"{path}: sample {key!r} must have one member .{' or .'.join(choices)}, got "
                    f"{found}; give other fields"
                )
            values.append(self._read(path, file, names[0], members[names[0]]))
        return (self._transformed(values[0]), *values[1:])

    def _read(self, path: str, file: Any, extension: str, member: TarInfo) -> Any:
        """Return the content of a member, decoded according to its extension."""
        file.seek(member.offset_data)
        content = file.read(member.size)
        name = f"{path}: member {member.name!r} at byte {member.offset_data}"
        if len(content) != member.size:
            raise DataError(
                f"{name}: expected {member.size} bytes, got {len(content)}; it is truncated"
            )
        kind = extension.rpartition(".")[2]
        if f".{kind}" in EXTENSIONS:
            return decode(content, name=name, oriented=self.oriented)
        try:
            return READERS.get(kind, bytes)(content)
        except Exception as error:
            raise DataError(
                f"{name}: it cannot be read as {kind} ({type(error).__name__}: {error}); replace it"
            ) from error

    def _transformed(self, value: Any) -> Any:
        return Compose(self.transforms)(value) if self.transforms else value


def _parts(member: TarInfo) -> tuple[str, str]:
    """Return the key of the sample, and the rest of the name in lower case ("jpg", "seg.png")."""
    folder, _, base = member.name.removeprefix("./").rpartition("/")
    key, _, extension = base.partition(".")
    return (f"{folder}/{key}" if folder else key), extension.lower()


def _groups(path: str, members: Iterator[TarInfo]) -> Iterator[tuple[str, dict[str, TarInfo]]]:
    """Yield the key and members of each sample, in the order of the file."""
    key, group, firsts = "", dict[str, TarInfo](), dict[str, str]()
    for member in members:
        name, extension = _parts(member)
        if group and name != key:
            yield key, group
            group = {}
        key = name
        again = group[extension].name if extension in group else None
        if not group:
            again = firsts.get(key)
            firsts[key] = member.name
        if again is not None:
            wrong = "are one field" if group else "are apart"
            raise DataError(
                f"{path}: the members of a sample must be next to each other and have different "
                f"extensions, but {again!r} and {member.name!r} at byte {member.offset_data} "
                f"{wrong}; write the tar again, sorted by name"
            )
        group[extension] = member
    if group:
        yield key, group


class _Headers:
    """A tar file that lets tarfile read at most ``left`` bytes of headers for the next member."""

    def __init__(self, file: IO[bytes]) -> None:
        self.left = MAX_HEADER
        self.file, self.seek, self.tell = file, file.seek, file.tell

    def read(self, size: int) -> bytes:
        self.left -= size
        if self.left < 0:
            raise ValueError(f"the headers of a member have more than {MAX_HEADER} bytes")
        return self.file.read(size)


def _members(path: str, file: Any) -> Iterator[TarInfo]:
    """Yield the regular files of a tar, checked against its size; raise ValueError if damaged."""
    size = os.fstat(file.fileno()).st_size
    place, yielded, skipped = 0, 0, ""
    try:
        headers: Any = _Headers(file)
        with tarfile.open(fileobj=headers, mode="r:") as tar:
            # next() of Python 3.10 fails on an empty file, whose offset stays 0.
            while tar.offset and (found := tar.next()) is not None:
                if found.offset_data <= place or found.size < 0:
                    raise ValueError("its members overlap")
                headers.left = MAX_HEADER - sum(map(len, tar.pax_headers.values()))
                place = found.offset_data
                if place + found.size > size:
                    raise ValueError(f"member {found.name!r} of {found.size} bytes is cut short")
                tar.members = []  # type: ignore[attr-defined]  # tarfile would keep all members
                if found.issparse() or found.size > MAX_BYTES:
                    raise ValueError(
                        f"member {found.name!r} must not be a sparse file and may have at most "
                        f"{MAX_BYTES} bytes, got {found.size}"
                    )
                internal = found.name.rpartition("/")[2].startswith("__")
                usual = found.isreg() and not internal and not is_hidden(found.name)
                if usual and _parts(found)[1]:
                    yielded += 1
                    yield found
                elif not found.isdir():
                    skipped = skipped or found.name
            place = tar.offset
        _check_end(file, place)
        if skipped and not yielded:
            raise DataError(
                f"{path}: a tar must have members with an extension, got only others such as "
                f"{skipped!r}; write it with names such as 0001.jpg and 0001.cls"
            )
    except (OSError, DataError, GeneratorExit):
        raise
    except Exception as error:
        raise DataError(
            f"{path}: not a whole tar file of {size} bytes, reading stopped at byte {place} "
            f"({type(error).__name__}: {error}); fetch it again, unpacked if it is compressed"
        ) from error


def _check_end(file: Any, place: int) -> None:
    """Raise ValueError unless a block of zeros ends the tar, since tarfile stops at damage too."""
    file.seek(place)
    if file.read(BLOCK) != bytes(BLOCK):
        raise ValueError("there is neither a header nor an end mark")


READERS: dict[str, Callable[[bytes], Any]] = {
    "cls": int,
    "txt": bytes.decode,
    "json": json.loads,
    "npy": lambda content: parse_npy("member", io.BytesIO(content), content).copy(),
}
"""Functions that decode the bytes of a member, by extension."""
