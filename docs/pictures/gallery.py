"""A picture of every augmentation: python -m docs.pictures.gallery.

Each row of a block shows one transform: a photograph, then its versions in three epochs of a
loader.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

import needle.data as data
from apps.bench.data.pictures import made_up_photo
from needle.data.formats.decoding import decode

SIDE, LABEL, GAP = 96, 13, 3
COLUMNS, EPOCHS, COLOURS = 3, 3, 64
MIXED = 6  # number of photographs in a batch for MixUp and CutMix

AUGMENTATIONS: dict[str, list[Any]] = {
    "RandomCrop(padding=16)": [data.RandomCrop(padding=16)],
    "RandomCrop(size=64)": [data.RandomCrop(size=64)],
    "CenterCrop(64)": [data.CenterCrop(64)],
    "Pad(12, fill=128)": [data.Pad(12, fill=128)],
    "RandomResizedCrop(96)": [data.RandomResizedCrop(96)],
    "Resize(24)": [data.Resize(24)],
    "Resize(24, nearest)": [data.Resize(24, method="nearest")],
    "RandomFlipHorizontal()": [data.RandomFlipHorizontal()],
    "RandomFlipVertical()": [data.RandomFlipVertical()],
    "Permute((1, 0, 2))": [data.Permute((1, 0, 2))],
    "RandomBrightnessContrast": [data.RandomBrightnessContrast(0.4, 0.4, p=1)],
    "ColorJitter(0.3, 0.3, 0.5)": [data.ColorJitter(0.3, 0.3, 0.5)],
    "ColorJitter(hue=0.5)": [data.ColorJitter(hue=0.5)],
    "RandomRotation(30)": [data.RandomRotation(30)],
    "RandomAffine(...)": [data.RandomAffine(15, 0.1, (0.7, 1.2), 15)],
    "RandomErasing(p=1)": [data.RandomErasing(p=1)],
    "Cutout(40)": [data.Cutout(40)],
    "OneOf([flip, hue, erase])": [
        data.OneOf([data.RandomFlipVertical(p=1), data.ColorJitter(hue=0.5), data.Cutout(40)])
    ],
    "Normalize, shown / 4 + 1/2": [data.ToFloat(), data.Normalize(0.45, 0.25)],
}
MIXING: dict[str, Any] = {
    "MixUp(alpha=2)": data.MixUp(alpha=2.0, classes=MIXED),
    "CutMix(alpha=1)": data.CutMix(alpha=1.0, classes=MIXED, layout="HWC"),
}


def photographs() -> list[Any]:
    """Return square pictures, all but the first generated: uint8 (SIDE, SIDE, 3)."""
    found = [decode(made_up_photo(seed, (150, 200))) for seed in range(MIXED)]
    portrait = sample_photograph()
    return [square(image) for image in ([portrait, *found[1:]] if portrait is not None else found)]


def sample_photograph() -> Any | None:
    """Return the US Navy's portrait of Grace Hopper (public domain); None without matplotlib."""
    try:
        from matplotlib.cbook import get_sample_data
    except ImportError:
        return None
    with get_sample_data("grace_hopper.jpg", asfileobj=True) as file:
        return decode(file.read())


def square(image: Any) -> Any:
    """Return the central square, resized."""
    side = min(image.shape[:2])
    return data.Compose([data.CenterCrop(side), data.Resize((SIDE, SIDE))])(image)


def gallery(photos: list[Any]) -> bytes:
    """Return a PNG of all rows, arranged in blocks side by side."""
    rows = [(name, augmented(photos[0], steps)) for name, steps in AUGMENTATIONS.items()]
    rows += [(name, mixed(photos, step)) for name, step in MIXING.items()]
    deep = -(-len(rows) // COLUMNS)
    wide = (EPOCHS + 1) * (SIDE + GAP) + 2 * GAP
    canvas = np.full((deep * (SIDE + LABEL + GAP), COLUMNS * wide, 3), 255, np.uint8)
    labels = []
    for number, (name, pictures) in enumerate(rows):
        top, left = number % deep * (SIDE + LABEL + GAP), number // deep * wide
        labels.append((left, top, name))
        for i, picture in enumerate([photos[0], *pictures]):
            place(canvas, picture, top + LABEL, left + i * (SIDE + GAP))
    return encoded(canvas, labels)


def augmented(photo: Any, steps: list[Any]) -> list[Any]:
    """Return the photograph as a loader augments it in three epochs."""
    pictures = data.ImageArrays(photo[None], np.zeros(1, np.int64), dtype="uint8", layout="HWC")
    loader = data.DataLoader(pictures, 1, seed=5, transforms=steps)
    return [shown(batch[0].numpy()[0]) for _ in range(EPOCHS) for batch in loader]


def mixed(photos: list[Any], step: Any) -> list[Any]:
    """Return the first photograph of a mixed batch, as a loader yields it in three epochs."""
    pictures = data.ImageArrays(np.stack(photos), np.arange(MIXED), dtype="uint8", layout="HWC")
    loader = data.DataLoader(pictures, MIXED, seed=8, transforms=[data.ToFloat(), step])
    batches = [batch[0].numpy()[0] for _ in range(EPOCHS) for batch in loader]
    return [(image * 255).round().astype(np.uint8) for image in batches]


def shown(image: Any) -> Any:
    """Return bytes unchanged, and normalised values scaled to the visible range."""
    if image.dtype == np.uint8:
        return image
    return ((image / 4 + 0.5).clip(0, 1) * 255).round().astype(np.uint8)


def place(canvas: Any, picture: Any, top: int, left: int) -> None:
    """Put the picture in the middle of its cell; enlarge tiny ones and shrink large ones."""
    if max(picture.shape[:2]) > SIDE:
        picture = data.Resize((SIDE, SIDE))(picture)
    if max(picture.shape[:2]) * 3 <= SIDE:
        picture = picture.repeat(3, axis=0).repeat(3, axis=1)
    height, width = picture.shape[:2]
    top, left = top + (SIDE - height) // 2, left + (SIDE - width) // 2
    canvas[top : top + height, left : left + width] = picture


def encoded(canvas: Any, labels: list[tuple[int, int, str]]) -> bytes:
    """Return a PNG with a palette, which is a third of the size."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(canvas)
    pen = ImageDraw.Draw(image)
    for left, top, name in labels:
        pen.text((left, top), name, fill=(0, 0, 0), font=ImageFont.load_default(11))
    file = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    Path(__file__).with_name("gallery.png").write_bytes(gallery(photographs()))
