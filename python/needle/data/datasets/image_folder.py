"""ImageFolder: image files in one folder per class, decoded by formats/decoding.py."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError, check_choice, warn_caller
from ..formats.decoding import CHANNELS, EXTENSIONS, MAX_PIXELS, decode, pillow
from ..formats.files import check_list, is_hidden, read_file
from ..formats.string_table import StringTable
from .arrays import PIXELS, check_layout, to_chw
from .dataset import ItemTransform
from .decode_size import Needed, ScaledDecoding
from .indexing import check_index, several

OTHER_IMAGES = (".heic", ".heif", ".avif", ".jfif", ".jxl", ".jp2")
"""Extensions of images that are not read unless they are asked for."""
SPLITS = frozenset(("train", "training", "test", "testing", "val", "valid", "validation"))


class ImageFolder(ScaledDecoding):
    """Images ``root/CLASS/**/NAME.jpg``; classes and files are sorted by name.

    Each folder directly below root is a class, so pass the folder of one split
    (``ImageFolder("data/train")``), not the folder that contains the splits. Hidden files and
    folders are left out at every depth. Left out with a UserWarning are links to folders below a
    class, since they may be cyclic, broken links in place of a class, images directly in root, and
    images in formats such as HEIC that ``extensions`` does not name. An item is ``(image,
    label)``: the image as RGB float32 in 0..1 or, with ``dtype="uint8"``, as bytes; the label is
    the index in ``classes``. ``transforms`` receive ``(H, W, 3)``; the result is returned in
    ``layout`` "CHW" or "HWC". extensions: file extensions of images, case-insensitive. mode: "L"
    gives grey images of one channel. scaled_decode: decode a JPEG at half its size or less if the
    transforms of the dataset or the loader begin by resizing; this is faster but changes the
    pixels slightly (and may change the longer side of ``Resize(int)`` by one). max_pixels: larger
    images raise an error. oriented: turn photographs as their EXIF orientation says, as viewers do;
    False keeps them as stored. Transparent images are composited on white. Slices and index arrays
    return a list of items. Warns with UserWarning if the classes look like the names of splits.

    With ``layout="HWC"``, a loader whose transforms crop decodes only the part of a JPEG that the
    crop reads, with the same pixels, if libjpeg-turbo was found when needle was built. Damage
    below that part then goes unnoticed unless the file is truncated.

    It pickles as a few arrays (paths, labels), which protocol 5 transfers without copying. Raises
    DataError if there is no class, a class has no image, or a file cannot be decoded, and
    ImportError if Pillow is not installed.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        extensions: Sequence[str] = EXTENSIONS,
        transforms: Sequence[ItemTransform] | None = None,
        *,
        layout: str = "CHW",
        dtype: str = "float32",
        mode: str = "RGB",
        scaled_decode: bool = False,
        max_pixels: int = MAX_PIXELS,
        oriented: bool = True,
    ) -> None:
        self._set_options(transforms, layout, dtype, mode, scaled_decode, max_pixels, oriented)
        check_list("ImageFolder", "extensions", extensions)
        self.root = Path(root).absolute()
        endings = tuple(extension.lower() for extension in extensions)
        self.classes: tuple[str, ...] = _class_names(self.root, endings)
        self.paths, self.labels = _scan(self.root, self.classes, endings)

    def _set_options(
        self,
        transforms: Sequence[ItemTransform] | None,
        layout: str,
        dtype: str,
        mode: str,
        scaled_decode: bool,
        max_pixels: int,
        oriented: bool,
    ) -> None:
        """Set all attributes except the files."""
        owner = type(self).__name__
        pillow(owner)  # raises an error now, not at the first image, if Pillow is missing
        super().__init__(transforms, scaled_decode, oriented)
        self.layout = check_layout(owner, layout, self.transforms)
        check_choice(owner, "dtype", dtype, PIXELS)
        check_choice(owner, "mode", mode, CHANNELS)
        self.dtype, self.mode, self.max_pixels = dtype, mode, max_pixels

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        if (places := several(index, len(self))) is not None:
            return [self[i] for i in places.tolist()]
        place = check_index(type(self).__name__, index, len(self))
        image = self.apply_transforms(self._pixels(place, self._contents([place])[0]))
        return (to_chw(image) if self.layout == "CHW" else image), int(self.labels[place])

    def set_decoding(self, needed: Needed) -> bool:
        """Set what is needed of each image, which in layout CHW is always the whole image."""
        return super().set_decoding(needed if self.layout == "HWC" else Needed(needed.size))

    def path(self, index: int) -> Path:
        """Return the path of a sample's file."""
        return self.root / self.paths[index]

    def encoded(self, index: int) -> tuple[bytes, int]:
        """Return the undecoded bytes of the file and the label, for packing."""
        place = check_index(type(self).__name__, index, len(self))
        return self._contents([place])[0], int(self.labels[place])

    def _file(self, place: int) -> str:
        return os.path.join(self.root, self.paths[place])

    def _contents(self, places: Sequence[int]) -> list[bytes]:
        """Return the content of each of these files."""
        return [_read(self._file(place)) for place in places]

    def _pixels(self, place: int, content: bytes) -> npt.NDArray[Any]:
        """Return the image before any transform, uint8 or float32 ``(H, W, C)``."""
        return decode(
            content,
            self.mode,
            self.decode_at_least,
            name=self._file(place),
            max_pixels=self.max_pixels,
            dtype=self.dtype,
            region=self.region_of(self.mode, self.dtype),
            oriented=self.oriented,
        )


def _read(path: str) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        raise DataError(
            f"{path}: the image no longer exists, or is a broken link; restore or remove it"
        ) from error


def _scan(
    root: Path, classes: Sequence[str], endings: tuple[str, ...]
) -> tuple[StringTable, npt.NDArray[np.int64]]:
    """Return the paths relative to ``root``, class by class, and the class of each file."""
    counts = []

    def paths() -> Iterable[str]:
        for name in classes:
            found = image_files(root, name, endings)
            counts.append(len(found))
            yield from found

    table = StringTable(paths())
    check_classes("ImageFolder", root, [n for n, k in zip(classes, counts) if not k], endings)
    return table, np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def check_classes(owner: str, root: Any, empty: Sequence[str], endings: Sequence[str]) -> None:
    """Raise DataError, which names the ``empty`` classes (without an image file), if any."""
    if empty:
        raise DataError(
            f"{owner}: each class of {root} must have images, got no file ending in "
            f"{', '.join(endings)} in the folders {', '.join(empty[:5])}; remove these folders, or "
            f"convert their files (extensions= names other files)"
        )


def _class_names(root: Path, endings: tuple[str, ...]) -> tuple[str, ...]:
    if not root.is_dir():
        raise DataError(f"ImageFolder: root must be a folder with one folder per class, got {root}")
    with os.scandir(root) as entries:
        seen = [entry for entry in entries if not is_hidden(entry.name)]
        names = sorted(entry.name for entry in seen if entry.is_dir())
        broken = sorted(e.name for e in seen if e.is_symlink() and not os.path.exists(e.path))
        loose = [e.name for e in seen if e.is_file() and e.name.lower().endswith(endings)]
    if broken:
        warn_caller(
            f"ImageFolder: broken links in {root} are ignored as classes, got "
            f"{', '.join(broken[:5])}; restore what they link to, or remove them",
        )
    if not names:
        raise DataError(f"ImageFolder: {root} must have one folder per class, got no folder in it")
    if loose:
        warn_caller(
            f"ImageFolder: {len(loose)} images of {root} are in no class, such as {min(loose)}; "
            "move them into the folder of their class",
        )
    if len(names) > 1 and all(name.lower() in SPLITS for name in names):
        warn_caller(
            f"ImageFolder: the classes of {root} are {', '.join(names)}, which look like names of "
            f"splits; give the folder of one split, such as {root / names[-1]}",
        )
    return tuple(names)


def image_files(root: Path, name: str, endings: tuple[str, ...]) -> list[str]:
    """Return the sorted paths of the images below ``root/name``, relative to root.

    Hidden files and folders are ignored. Links to files are followed; links to folders, and files
    in ``OTHER_IMAGES`` formats, are skipped with a UserWarning.
    """
    found: list[str] = []
    links: list[str] = []
    others: list[str] = []
    for place, folders, files in os.walk(os.path.join(root, name), onerror=_reraise):
        inside = os.path.relpath(place, root)
        if inside == os.curdir:
            inside = ""
        folders[:] = [each for each in folders if not is_hidden(each)]
        linked = (each for each in folders if os.path.islink(os.path.join(place, each)))
        links.extend(os.path.join(inside, each) for each in linked)
        for each in files:
            kind = None if is_hidden(each) else each.lower()
            if kind and kind.endswith(endings):
                found.append(os.path.join(inside, each))
            elif kind and kind.endswith(OTHER_IMAGES):
                others.append(os.path.join(inside, each))
    if found:  # without any image, the caller raises an error instead
        warn_of_others(root, others)
    if links:
        warn_caller(
            f"{root}: links to folders below a class are not followed, got {', '.join(links[:5])}; "
            f"link the class or the files",
        )
    return sorted(found)


def _reraise(error: OSError) -> None:
    raise error


def warn_of_others(root: Any, others: Sequence[str]) -> None:
    """Warn of ``others``, images in formats that are ignored."""
    if others:
        warn_caller(
            f"{root}: {len(others)} images are ignored, such as {min(others)}; convert them, or "
            "add their extension to extensions=",
        )
