"""MNIST and Fashion-MNIST from IDX files, and the course's MNISTDataset.

formats/download.py downloads the files, formats/idx.py reads them.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ... import config
from ...errors import DataError
from ..formats.download import Digest, RemoteFile, download
from ..formats.files import PathLike, check_list, contents_of, find_file, find_folder
from ..formats.idx import read_idx
from .arrays import ImageArrays
from .dataset import ItemTransform

IMAGES, LABELS = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"
FILES = [f"{name.format(stem)}.gz" for stem in ("train", "t10k") for name in (IMAGES, LABELS)]


def _digests(kind: str, *values: str, of_content: bool = False) -> dict[str, Digest]:
    """Return the digests of ``FILES``."""
    return {name: Digest(kind, value, of_content) for name, value in zip(FILES, values)}


class MNISTDataset(ImageArrays):
    """The course's dataset over a pair of IDX files, gzipped or not.

    Items are ``(float32 (784,) in 0..1, int64 label)``. If there are transforms, they receive
    ``(28, 28, 1)``, and items have the shape that they return. Raises DataError if files are
    missing or damaged, or if the numbers of images and labels differ.
    """

    def __init__(
        self,
        image_filename: PathLike,
        label_filename: PathLike,
        transforms: Sequence[ItemTransform] | None = None,
    ) -> None:
        for path in (image_filename, label_filename):
            check_is_there("MNISTDataset", path, "MNIST(root, download=True)")
        images, labels = read_pair(image_filename, label_filename)
        if not transforms:
            images = images.reshape(len(images), math.prod(images.shape[1:]))
        super().__init__(images, labels, transforms, layout="HWC")


class MNIST(ImageArrays):
    """Handwritten digits (LeCun, Cortes, Burges): 60 000 for training, 10 000 for testing.

    root: a folder with the four files, directly or in ``mnist/`` or ``MNIST/raw/``; case and
    punctuation of the names do not matter; by default ``NEEDLE_DATA_DIR``. download: download
    missing files into ``root/mnist``. layout, dtype, transforms and items: see ``ImageArrays``; an
    image is ``(1, 28, 28)``. mirrors: addresses to use instead of the built-in ones. Raises
    DataError for files that are missing, damaged or from another data set.
    """

    folders: tuple[str, ...] = ("mnist", "MNIST/raw", "MNIST")
    classes: tuple[str, ...] = tuple("0123456789")
    mirrors: tuple[str, ...] = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    )
    # Digests of the uncompressed content, so that a mirror's compression does not matter.
    digests: ClassVar[Mapping[str, Digest]] = _digests(
        "sha256",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        of_content=True,
    )

    def __init__(
        self,
        root: PathLike | None = None,
        train: bool = True,
        download: bool = False,
        transforms: Sequence[ItemTransform] | None = None,
        *,
        layout: str = "CHW",
        dtype: str = "float32",
        mirrors: Sequence[str] | None = None,
    ) -> None:
        check_list(type(self).__name__, "mirrors", mirrors)
        folder = Path(config.DATA_DIR.read() if root is None else root)
        stem = "train" if train else "t10k"
        found = self._find(folder, stem)
        if found is None and download:
            self._download(folder / self.folders[0], self.mirrors if mirrors is None else mirrors)
            found = self._find(folder, stem)
        if found is None:
            name = type(self).__name__
            places = self._places(folder)
            raise DataError(
                f"{name}: needs {IMAGES.format(stem)} and {LABELS.format(stem)} (.gz or not), "
                f"got none in {', '.join(map(str, places))}; {contents_of(*places)}; give another "
                f"root, or download=True"
            )
        images, labels = read_pair(*found)
        check_labels(found[1], labels, len(self.classes))
        self._check_identity(found[1], labels)
        super().__init__(images, labels, transforms, layout=layout, dtype=dtype)

    @classmethod
    def _places(cls, root: Path) -> list[Path]:
        return [*(find_folder(root, folder) for folder in cls.folders), root]

    @classmethod
    def _find(cls, root: Path, stem: str) -> tuple[Path, Path] | None:
        for place in cls._places(root):
            names = IMAGES.format(stem), LABELS.format(stem)
            images, labels = (find_file(place, name, f"{name}.gz") for name in names)
            if images and labels:
                return images, labels
        return None

    @classmethod
    def _download(cls, folder: Path, mirrors: Sequence[str]) -> None:
        for name, digest in cls.digests.items():
            download(RemoteFile(name, tuple(mirror + name for mirror in mirrors), digest), folder)

    @classmethod
    def _check_identity(cls, path: Path, labels: npt.NDArray[np.uint8]) -> None:
        """Check the content, in subclasses that share their file names with another data set."""


class FashionMNIST(MNIST):
    """Zalando's images of clothing in MNIST's format; options and items are those of ``MNIST``.

    Its files have the same names as MNIST's, so a check of the labels rejects MNIST.
    """

    folders = ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST")
    classes = tuple(
        "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot".split(",")
    )
    mirrors = (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    )
    # The MD5 sum published by the authors; they publish no SHA-256 sum.
    digests = _digests(
        "md5",
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    )

    @classmethod
    def _check_identity(cls, path: Path, labels: npt.NDArray[np.uint8]) -> None:
        header = np.array([2049, len(labels)], dtype=">u4").tobytes()
        digest = hashlib.sha256(header + labels.tobytes()).hexdigest()
        if digest in {known.value for known in MNIST.digests.values()}:
            raise DataError(
                f"{path}: expected Fashion-MNIST, got the labels of MNIST; put Fashion-MNIST's "
                f"files into a folder {cls.folders[0]}"
            )


def check_is_there(owner: str, path: PathLike, source: str) -> None:
    """Raise DataError if the file is missing; the message names ``source``, where to get it."""
    if not os.path.isfile(path):
        name = os.path.basename(path)
        other = find_file(Path(path).parent, name, f"{name}.gz", name.removesuffix(".gz"))
        raise DataError(
            f"{owner}: needs the file {path}, got {other or 'none'}; give the path of the file, or "
            f"get it with {source}"
        )


def read_pair(
    images: PathLike, labels: PathLike
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return uint8 images ``(N, H, W, 1)`` and labels ``(N,)`` from two IDX files."""
    pixels, ids = read_idx(images, ndim=3), read_idx(labels, ndim=1)
    for path, array in ((images, pixels), (labels, ids)):
        if array.dtype != np.uint8:
            raise DataError(f"{path}: expected unsigned bytes (type 0x08), got {array.dtype}")
    if len(pixels) != len(ids):
        raise DataError(
            f"{labels}: expected {len(pixels)} labels, as many as images in {images}, got "
            f"{len(ids)}; take both from the same set"
        )
    return pixels[..., None], ids


def check_labels(path: PathLike, labels: npt.NDArray[np.uint8], classes: int) -> None:
    """Raise DataError with the index of the first label that is not below ``classes``."""
    wrong = np.flatnonzero(labels >= classes)
    if wrong.size:
        raise DataError(
            f"{path}: labels must be below {classes}, got {labels[wrong[0]]} for sample {wrong[0]}"
        )
