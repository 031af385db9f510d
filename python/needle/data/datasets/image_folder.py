"""ImageFolder: one folder a class, image files below it. Decoding itself is in decoding.py."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from ..formats.decoding import CHANNELS, MAX_PIXELS, decode, decode_float, pillow, read_file
from ..formats.string_table import StringTable
from .arrays import check_layout, check_pixels, to_chw
from .dataset import Transform
from .decode_size import ScaledDecoding
from .indexing import check_index, several

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


class ImageFolder(ScaledDecoding):
    """``root/CLASS/**/NAME.jpg``: classes and files in sorted order, whatever the file system's.

    An item is ``(image, label)``: RGB float32 in 0..1 or, with ``dtype="uint8"``, the pixels as
    they are; ``transforms`` see ``(H, W, 3)``, then ``layout`` "CHW" or "HWC"; label an int, the
    place of the class in ``classes``. extensions: endings, of any case, that count as images.
    mode: "L" makes them grey, of one channel.
    scaled_decode: a JPEG may be decoded at half its size or less where ``decode_at_least`` allows
    it, which is set where the transforms, or a loader's, begin by resizing; faster, and the pixels
    differ a little (as may the longer side of ``Resize(int)``, by one). max_pixels: larger images
    are refused. Slices give a list of items.

    Pickles as a few arrays (paths, labels), which protocol 5 moves without copying.
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
        dtype: str = "float32",
        mode: str = "RGB",
        scaled_decode: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self._set_options(transforms, layout, dtype, mode, scaled_decode, max_pixels)
        self.root = Path(root)
        self.classes: tuple[str, ...] = _class_names(self.root)
        endings = tuple(extension.lower() for extension in extensions)
        self.paths, self.labels = _scan(self.root, self.classes, endings)
        if not len(self.paths):
            raise DataError(
                f"ImageFolder: {root} has folders {', '.join(self.classes[:5])} but no file "
                f"ending in {', '.join(endings)}; give extensions="
            )

    def _set_options(
        self,
        transforms: Sequence[Transform] | None,
        layout: str,
        dtype: str,
        mode: str,
        scaled_decode: bool,
        max_pixels: int,
    ) -> None:
        """All but where the files are."""
        owner = type(self).__name__
        pillow(owner)  # says now that it is missing, not at the first image
        super().__init__(transforms, scaled_decode)
        self.layout = check_layout(owner, layout, transforms)
        self.dtype, self.max_pixels = check_pixels(owner, dtype), max_pixels
        if mode not in CHANNELS:
            raise ValueError(f"{owner}: mode must be 'RGB' or 'L', got {mode!r}")
        self.mode = mode

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        if (places := several(index, len(self))) is not None:
            return [self[i] for i in places.tolist()]
        place = check_index("ImageFolder", index, len(self))
        image = self.apply_transforms(self._decoded(place))
        return (to_chw(image) if self.layout == "CHW" else image), int(self.labels[place])

    def path(self, index: int) -> Path:
        """The file of the sample."""
        return self.root / self.paths[index]

    def encoded(self, index: int) -> tuple[bytes, int]:
        """The file's bytes as they are, and the label; for packing without decoding."""
        place = check_index("ImageFolder", index, len(self))
        return read_file(self._file(place)), int(self.labels[place])

    def _file(self, place: int) -> str:
        return os.path.join(self.root, self.paths[place])

    def _decoded(self, place: int) -> npt.NDArray[Any]:
        """uint8 or float32 ``(H, W, C)``, before any transform."""
        return self._pixels(self._file(place))

    def _pixels(self, source: bytes | str, name: str | None = None) -> npt.NDArray[Any]:
        """The image of a file, or of its content, which errors then call ``name``."""
        function = decode if self.dtype == "uint8" else decode_float
        size, limit = self.decode_at_least, self.max_pixels
        return function(source, self.mode, size, name=name, max_pixels=limit)


def _scan(
    root: Path, classes: Sequence[str], endings: tuple[str, ...]
) -> tuple[StringTable, npt.NDArray[np.int64]]:
    """The files' paths relative to ``root``, class by class, and each file's class."""
    counts = []

    def paths() -> Iterable[str]:
        for name in classes:
            found = sorted(_image_files(root, name, endings))
            counts.append(len(found))
            yield from found

    table = StringTable(paths())
    return table, np.repeat(np.arange(len(counts), dtype=np.int64), counts)


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


def _image_files(root: Path, name: str, endings: tuple[str, ...]) -> list[str]:
    """Paths below ``root/name``, relative to root; hidden files are other programs' notes.

    Links to files count, links to folders (below the class) are not followed: they may be rings.
    """
    found, folders = [], [name]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(root, folder)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(os.path.join(folder, entry.name))
                elif entry.name.lower().endswith(endings) and not entry.name.startswith("."):
                    found.append(os.path.join(folder, entry.name))
    return found
