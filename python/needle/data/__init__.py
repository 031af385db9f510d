"""Datasets, samplers, transforms and the loader that makes batches of them.

This package depends on arrays only, not on autograd or layers.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from ..backends import philox as philox
from ..torch_names import defined_names, missing_attribute
from . import datasets, transforms
from . import sampling as sampler
from .batching import collate
from .batching.collate import default_collate
from .datasets import (
    CIFAR10,
    MNIST,
    CIFAR10Dataset,
    Corpus,
    Dictionary,
    Digits,
    FashionMNIST,
    ImageFolder,
    MNISTDataset,
    batchify,
    get_batch,
)
from .datasets.arrays import ArrayDataset, ImageArrays, NDArrayDataset
from .datasets.combinations import ConcatDataset, Subset, random_split
from .datasets.dataset import Dataset
from .datasets.npy_files import NpyDataset
from .datasets.packed_reading import PackedDataset
from .datasets.packed_writing import pack
from .datasets.stream import IterableDataset
from .datasets.tar_shards import TarShards
from .formats import download, idx, pickle_reading
from .formats.idx import read_idx, write_idx
from .formats.tar_writing import write_tar_shards
from .loader.dataloader import DataLoader
from .loader.doctor import doctor
from .samples import random_source
from .sampling import (
    BatchSampler,
    DistributedSampler,
    LengthBucketBatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from .transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    CutMix,
    Cutout,
    MixUp,
    Normalize,
    OnBatch,
    OneOf,
    Pad,
    Permute,
    RandomAffine,
    RandomBrightnessContrast,
    RandomCrop,
    RandomErasing,
    RandomFlipHorizontal,
    RandomFlipVertical,
    RandomResizedCrop,
    RandomRotation,
    Resize,
    ToCHW,
    ToFloat,
    Transform,
)

_LEAVES = {
    "remote": (
        *("ObjectCache", "RemoteImageFolder", "RemotePacked", "Retry"),
        *("open_remote", "upload"),
    ),
    "sharing": ("GlobalDataLoader",),
}
"""Public names that packages above ``data`` define, keyed by package."""

__all__ = defined_names(__name__)
__all__ += ["collate", "datasets", "download", "idx", "pickle_reading"]
__all__ += ["random_source", "sampler", "transforms"]
__all__ += [each for names in _LEAVES.values() for each in names]

if find_spec("needle.course_names") is not None:
    importlib.import_module("needle.course_names").add_to(__name__)


def __getattr__(name: str) -> Any:
    """Import a leaf package's name on first use; raise ImportError if the package is missing."""
    for leaf, names in _LEAVES.items():
        if name in names:
            return getattr(importlib.import_module(f"needle.{leaf}"), name)
    raise missing_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
