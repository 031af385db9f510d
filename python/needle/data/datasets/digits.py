"""Digits: 1 797 real handwritten digits of 8x8 pixels, included in the package.

Origin and licence: digits-LICENSE.md next to this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .arrays import ImageArrays
from .dataset import ItemTransform
from .mnist import read_pair

FOLDER = Path(__file__).parent
IMAGES, LABELS = FOLDER / "digits-images-idx3-ubyte.gz", FOLDER / "digits-labels-idx1-ubyte.gz"
TEST_PER_CLASS = 30
MAX_PIXEL = 16


class Digits(ImageArrays):
    """Digits of 13 writers (E. Alpaydin, C. Kaynak 1998): 1 497 for training, 300 for testing.

    An image is float32 ``(1, 8, 8)`` in 0..1, or uint8 in 0..16; layout, dtype and transforms: see
    ``ImageArrays``. The split is fixed: 30 samples of each class, evenly spaced in the published
    order, form the test set.
    """

    classes = tuple("0123456789")

    def __init__(
        self,
        train: bool = True,
        transforms: Sequence[ItemTransform] | None = None,
        *,
        layout: str = "CHW",
        dtype: str = "float32",
    ) -> None:
        images, labels = read_pair(IMAGES, LABELS)
        chosen = is_test(labels) != train
        super().__init__(
            images[chosen],
            labels[chosen],
            transforms,
            layout=layout,
            scale=MAX_PIXEL,
            dtype=dtype,
        )


def is_test(labels: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return True for test samples: numbers floor((j + 1/2) n / 30), j = 0..29, of n per class."""
    mask = np.zeros(len(labels), dtype=np.bool_)
    for label in range(10):
        places = np.flatnonzero(labels == label)
        steps = (2 * np.arange(TEST_PER_CLASS) + 1) * len(places) // (2 * TEST_PER_CLASS)
        mask[places[steps]] = True
    return mask
