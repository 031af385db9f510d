"""Transforms of images: small picklable values with NumPy bodies, which are the definitions.

base.py says what a transform is; the others hold them by kind. Plans that run a list of them
natively for whole batches are in ../plan.py.
"""

from .base import (
    Compose,
    ImageSpec,
    OneOf,
    Step,
    Transform,
    contains,
    output_of,
    streams_of,
)
from .geometry import Normalize, Pad, RandomCrop, RandomFlipHorizontal, Resize, ToCHW

__all__ = [
    "Compose",
    "ImageSpec",
    "Normalize",
    "OneOf",
    "Pad",
    "RandomCrop",
    "RandomFlipHorizontal",
    "Resize",
    "Step",
    "ToCHW",
    "Transform",
    "contains",
    "output_of",
    "streams_of",
]
