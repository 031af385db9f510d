"""CIFAR-10 (Krizhevsky 2009) in its python and binary layouts, and the course's CIFAR10Dataset.

formats/pickle_reading.py reads the pickles, formats/archives.py downloads the archives.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import config
from ...errors import DataError, check_choice
from ..formats.archives import download_archive
from ..formats.download import Digest, RemoteFile
from ..formats.files import PathLike, check_list, contents_of, find_file, find_folder, read_file
from ..formats.pickle_reading import read_pickle
from .arrays import ImageArrays
from .dataset import ItemTransform
from .mnist import check_is_there, check_labels

Pixels = npt.NDArray[np.uint8]

CLASSES = tuple("airplane automobile bird cat deer dog frog horse ship truck".split())
PIXELS = 3 * 32 * 32
FOLDERS = {"python": "cifar-10-batches-py", "binary": "cifar-10-batches-bin"}
SUFFIX = {"python": "", "binary": ".bin"}
BATCHES = {True: [f"data_batch_{i}" for i in range(1, 6)], False: ["test_batch"]}
# The MD5 sums published on the data set's page, which has no SHA-256 sums.
ARCHIVES = {
    "python": ("cifar-10-python.tar.gz", Digest("md5", "c58f30108f718f92721af3b95e74349a")),
    "binary": ("cifar-10-binary.tar.gz", Digest("md5", "c32a1d4ab5d03f1284b67883e8d87530")),
}


class CIFAR10(ImageArrays):
    """50 000 training and 10 000 test photographs of ten classes, 32x32 RGB.

    root: the folder of the batch files, or its parent if the folder has its official name, apart
    from case and punctuation; by default ``NEEDLE_DATA_DIR``. file_format: "python", "binary" or
    "auto" (whichever exists). download: download and unpack the files into root if they are
    missing. layout, dtype, transforms and items: see ``ImageArrays``; an image is ``(3, 32, 32)``.
    mirrors: addresses to use instead of the built-in ones. Raises DataError for files that are
    missing, truncated, damaged or in another format.
    """

    classes = CLASSES
    mirrors: tuple[str, ...] = (
        "https://www.cs.toronto.edu/~kriz/",
        "http://www.cs.toronto.edu/~kriz/",
    )

    def __init__(
        self,
        root: PathLike | None = None,
        train: bool = True,
        download: bool = False,
        transforms: Sequence[ItemTransform] | None = None,
        *,
        file_format: str = "auto",
        layout: str = "CHW",
        dtype: str = "float32",
        mirrors: Sequence[str] | None = None,
    ) -> None:
        check_choice("CIFAR10", "file_format", file_format, ("auto", *FOLDERS))
        check_list("CIFAR10", "mirrors", mirrors)
        folder = Path(config.DATA_DIR.read() if root is None else root)
        found = find_batches(folder, train, file_format)
        if found is None and download:
            wanted = "python" if file_format == "auto" else file_format
            _download(folder, wanted, self.mirrors if mirrors is None else mirrors)
            found = find_batches(folder, train, wanted)
        if found is None:
            places = [*(find_folder(folder, name) for name in FOLDERS.values()), folder]
            raise DataError(
                f"CIFAR10: needs {' ... '.join(_ends(BATCHES[train]))} (python) or the same with "
                f".bin (binary), got none in {folder} or its folders {', '.join(FOLDERS.values())}"
                f"; {contents_of(*places)}; give another root, or download=True"
            )
        images, labels = read_batches(*found)
        super().__init__(images, labels, transforms, layout=layout, dtype=dtype)


class CIFAR10Dataset(ImageArrays):
    """The course's CIFAR-10 dataset, over the python batches in ``base_folder``.

    Items are ``(float32 (3, 32, 32) in 0..1, int64 label)``; transforms receive ``(32, 32, 3)``.
    ``p`` is part of the course's signature and has no effect.
    """

    def __init__(
        self,
        base_folder: PathLike,
        train: bool,
        p: float = 0.5,
        transforms: Sequence[ItemTransform] | None = None,
    ) -> None:
        folder = Path(base_folder)
        paths = [find_file(folder, name) or folder / name for name in BATCHES[bool(train)]]
        for path in paths:
            check_is_there("CIFAR10Dataset", path, "CIFAR10(root, download=True)")
        images, labels = read_batches(paths, "python")
        super().__init__(images, labels, transforms)


def find_batches(root: Path, train: bool, file_format: str) -> tuple[list[Path], str] | None:
    """Return the batch files and their format, preferably "python", or None."""
    for candidate, folder in FOLDERS.items():
        if file_format not in ("auto", candidate):
            continue
        inside = find_folder(root, folder)
        for place in (inside, find_folder(inside, folder), root):
            found = [find_file(place, name + SUFFIX[candidate]) for name in BATCHES[train]]
            paths = [path for path in found if path is not None]
            if len(paths) == len(found):
                return paths, candidate
    return None


def read_batches(paths: Sequence[Path], file_format: str) -> tuple[Pixels, Pixels]:
    """Return images, uint8 ``(N, 32, 32, 3)`` (a view of CHW pixels), and labels ``(N,)``."""
    read = read_python_batch if file_format == "python" else read_binary_batch
    parts = [read(path) for path in paths]
    pixels = np.concatenate([part[0] for part in parts])
    labels = np.concatenate([part[1] for part in parts])
    return pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels


def read_python_batch(path: Path) -> tuple[Pixels, Pixels]:
    """Return pixels ``(n, 3072)`` and labels ``(n,)`` of one pickled batch."""
    record = read_pickle(path)
    if not isinstance(record, dict):
        raise DataError(
            f"{path}: expected a dict with data and labels, got {type(record).__name__}"
        )
    pixels, labels = _field(path, record, "data"), _field(path, record, "labels")
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        shape = getattr(pixels, "shape", type(pixels).__name__)
        raise DataError(f"{path}: data must be a uint8 array (n, {PIXELS}), got {shape}")
    good = isinstance(labels, list) and all(
        type(label) is int and 0 <= label < len(CLASSES) for label in labels
    )
    if not good or len(labels) != len(pixels):
        got = f"{len(labels)} of them" if good else "something else"
        raise DataError(
            f"{path}: labels must be {len(pixels)} ints below {len(CLASSES)}, got {got}"
        )
    return pixels, np.asarray(labels, dtype=np.uint8)


def read_binary_batch(path: Path) -> tuple[Pixels, Pixels]:
    """Return pixels ``(n, 3072)`` and labels ``(n,)`` of a file of (label, pixels) records."""
    content = read_file(path)
    size, record = len(content), 1 + PIXELS
    if size == 0 or size % record:
        raise DataError(
            f"{path}: expected a whole number of records of {record} bytes, got {size} bytes, "
            f"{size % record} after record {size // record}; the file is truncated, fetch it again"
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, record)
    check_labels(path, rows[:, 0], len(CLASSES))
    return rows[:, 1:], rows[:, 0]


def _field(path: Path, record: dict[Any, Any], name: str) -> Any:
    for key in (name.encode(), name):
        if key in record:
            return record[key]
    raise DataError(f"{path}: expected the key {name!r}, got {sorted(map(ascii, record))[:8]}")


def _download(root: Path, file_format: str, mirrors: Sequence[str]) -> None:
    name, digest = ARCHIVES[file_format]
    suffix = SUFFIX[file_format]
    members = [batch + suffix for batch in (*BATCHES[True], *BATCHES[False])]
    members.append("batches.meta" if file_format == "python" else "batches.meta.txt")
    file = RemoteFile(name, tuple(mirror + name for mirror in mirrors), digest)
    download_archive(file, root, FOLDERS[file_format], members)


def _ends(names: list[str]) -> list[str]:
    return names if len(names) == 1 else [names[0], names[-1]]
