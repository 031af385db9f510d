"""Transforms of images: small picklable objects whose NumPy bodies define the result.

base.py defines the interface; the other modules group the transforms by kind. compile.py and
execute.py run a list of them natively for whole batches.
"""

from .affine import RandomAffine, RandomRotation
from .axes import Permute, RandomFlipHorizontal, RandomFlipVertical, ToCHW
from .base import Compose, ImageSpec, OneOf, Step, Transform, contains, output_of, streams_of
from .colour import ColorJitter, RandomBrightnessContrast
from .erasing import Cutout, RandomErasing
from .mixing import BatchTransform, CutMix, MixUp, OnBatch
from .resize import RandomResizedCrop, Resize
from .values import Normalize, ToFloat
from .windows import CenterCrop, Pad, RandomCrop
