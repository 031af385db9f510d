"""Download a tar archive and extract named files from it, either all or none of them.

Called by datasets/cifar10.py. pooch's Untar is unsuitable, because it extracts members one by one
under their final names and requires the archive to be kept.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from ...errors import DataError
from .download import RemoteFile, download, writing
from .files import MAX_BYTES, PathLike


def download_archive(
    file: RemoteFile,
    root: PathLike,
    folder: str,
    members: Sequence[str],
) -> Path:
    """Return ``root/folder`` with the named files of its tar archive; download it if missing.

    Other members are ignored, whatever their path. The folder appears only once it is complete,
    and the archive is then deleted.
    """
    target = Path(root) / folder
    if all((target / name).is_file() for name in members):
        return target
    archive = download(file, root)
    with tempfile.TemporaryDirectory(dir=root, prefix=f".{folder}-") as temporary:
        unpacked = Path(temporary) / folder
        unpacked.mkdir()
        _unpack(archive, folder, members, unpacked)
        if target.is_dir():
            for name in members:
                os.replace(unpacked / name, target / name)
        else:
            os.replace(unpacked, target)
    archive.unlink()
    return target


def _unpack(archive: Path, folder: str, members: Sequence[str], target: Path) -> None:
    wanted = {f"{folder}/{name}": name for name in members}
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                source = tar.extractfile(member) if member.isfile() else None
                name = wanted.pop(member.name.removeprefix("./"), None) if source else None
                if source is not None and name is not None:
                    if member.size > MAX_BYTES:
                        raise tarfile.TarError(f"{name} has more than {MAX_BYTES} bytes")
                    with source, writing(target / name), open(target / name, "wb") as out:
                        shutil.copyfileobj(source, out, 1 << 20)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{archive}: not a whole tar archive ({error}); remove it") from error
    if wanted:
        raise DataError(
            f"{archive}: the archive must have the files {sorted(wanted)}, got one without"
        )
