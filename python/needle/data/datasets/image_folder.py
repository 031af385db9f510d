"""ImageFolder: one folder a class, image files below it, decoded by Pillow (an optional extra)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from ..dataset import Dataset, Transform, check_index, check_layout, to_chw

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


class PathTable:
    """Many paths in two arrays (bytes, offsets), so that processes share them without copies."""

    def __init__(self, paths: Iterable[str]) -> None:
        encoded = [os.fsencode(path) for path in paths]
        self.offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(path) for path in encoded], out=self.offsets[1:])
        self.data = np.frombuffer(b"".join(encoded), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> str:
        start, end = self.offsets[index], self.offsets[index + 1]
        return os.fsdecode(self.data[start:end].tobytes())


class ImageFolder(Dataset):
    """``root/CLASS/**/NAME.jpg``: classes and files in sorted order, whatever the file system's.

    An item is ``(image, label)``: RGB float32 in 0..1, ``transforms`` see ``(H, W, 3)``, then
    ``layout`` "CHW" or "HWC"; label an int, the place of the class in ``classes``. extensions:
    endings, of any case, that count as images. Slices give a list of items.
    Raises DataError for no class, no image or (naming it) a file that does not decode, and
    ImportError without Pillow.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        extensions: Sequence[str] = EXTENSIONS,
        transforms: Sequence[Transform] | None = None,
        *,
        layout: str = "CHW",
    ) -> None:
        _pillow()  # says now that it is missing, not at the first image
        super().__init__(transforms)
        self.root = Path(root)
        self.layout = check_layout("ImageFolder", layout, transforms)
        self.classes = _class_names(self.root)
        endings = tuple(extension.lower() for extension in extensions)
        found = [sorted(_image_files(self.root, name, endings)) for name in self.classes]
        self.paths = PathTable(path for paths in found for path in paths)
        self.labels = np.repeat(np.arange(len(found)), [len(paths) for paths in found])
        if not len(self.paths):
            raise DataError(
                f"ImageFolder: {root} has folders {', '.join(self.classes[:5])} but no file "
                f"ending in {', '.join(endings)}; give extensions="
            )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = check_index("ImageFolder", index, len(self))
        image = self.apply_transforms(decode(self.path(place)))
        return (to_chw(image) if self.layout == "CHW" else image), int(self.labels[place])

    def path(self, index: int) -> Path:
        """The file of the sample."""
        return self.root / self.paths[index]


def _pillow() -> ModuleType:
    """Pillow's Image module, imported when the first folder is opened; it is an extra."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "ImageFolder: decoding images needs Pillow, which is not installed; "
            "pip install 'needle[images]' or pip install pillow"
        ) from error
    return Image


def decode(path: Path) -> npt.NDArray[np.float32]:
    """The image file as RGB float32 ``(H, W, 3)`` in 0..1; DataError names a damaged file."""
    opener = _pillow()
    if path.exists() and not path.is_file():  # opening a pipe would wait for ever
        raise DataError(f"{path}: an image must be a file, got a folder, pipe or device; remove it")
    try:
        with opener.open(path) as image:
            return _rgb(image)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise DataError(
            f"{path}: the image cannot be decoded, it is damaged, cut short or of an unknown "
            f"format ({type(error).__name__}: {error}); replace or remove it"
        ) from error


def _rgb(image: Any) -> npt.NDArray[np.float32]:
    """Pillow's image as RGB in 0..1; its own conversion would cut 16-bit greys off at 255."""
    if image.mode.startswith("I;16"):
        grey = np.asarray(image).astype(np.float32) / np.float32(65535)
        return np.repeat(grey[..., None], 3, axis=2)
    if image.mode in ("I", "F"):
        raise ValueError("pixels of 32 bits have no range that is known")
    return np.asarray(image.convert("RGB")).astype(np.float32) / np.float32(255)


def _class_names(root: Path) -> tuple[str, ...]:
    if not root.is_dir():
        raise DataError(f"ImageFolder: root must be a folder with one folder a class, got {root}")
    with os.scandir(root) as entries:
        names = sorted(
            entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")
        )
    if not names:
        raise DataError(f"ImageFolder: {root} must have one folder a class, got no folder in it")
    return tuple(names)


def _image_files(root: Path, name: str, endings: tuple[str, ...]) -> Iterator[str]:
    """Paths below ``root/name``, relative to root; hidden files are other programs' notes."""
    for folder, _, files in os.walk(root / name):
        relative = os.path.relpath(folder, root)
        for file in files:
            if file.lower().endswith(endings) and not file.startswith("."):
                yield os.path.join(relative, file)
