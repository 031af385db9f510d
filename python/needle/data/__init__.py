"""Datasets, samplers, transforms and the loader that makes batches of them.

Needs arrays only: no autograd, no layers. ``collate.set_tensor_type`` is how batches become
Tensors.
"""

from . import collate, datasets, download, idx, pickle_reading, random_source, sampler, transforms
from .collate import default_collate
from .dataset import (
    ArrayDataset,
    ConcatDataset,
    Dataset,
    ImageArrays,
    NDArrayDataset,
    Subset,
)
from .datasets import (
    CIFAR10,
    MNIST,
    CIFAR10Dataset,
    Digits,
    FashionMNIST,
    ImageFolder,
    MNISTDataset,
)
from .doctor import doctor
from .idx import read_idx, write_idx
from .loader import DataLoader
from .npy_files import NpyDataset
from .packed import PackedDataset, pack
from .sampler import (
    BatchSampler,
    DistributedSampler,
    LengthBucketBatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from .stream import IterableDataset
from .tar_shards import TarShards
from .tar_writing import write_tar_shards
from .transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    CutMix,
    Cutout,
    MixUp,
    Normalize,
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

__all__ = [
    "CIFAR10",
    "MNIST",
    "ArrayDataset",
    "BatchSampler",
    "CIFAR10Dataset",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConcatDataset",
    "CutMix",
    "Cutout",
    "DataLoader",
    "Dataset",
    "Digits",
    "DistributedSampler",
    "FashionMNIST",
    "ImageArrays",
    "ImageFolder",
    "IterableDataset",
    "LengthBucketBatchSampler",
    "MNISTDataset",
    "MixUp",
    "NDArrayDataset",
    "NpyDataset",
    "Normalize",
    "OneOf",
    "PackedDataset",
    "Pad",
    "Permute",
    "RandomAffine",
    "RandomBrightnessContrast",
    "RandomCrop",
    "RandomErasing",
    "RandomFlipHorizontal",
    "RandomFlipVertical",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSampler",
    "Resize",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "SubsetRandomSampler",
    "TarShards",
    "ToCHW",
    "ToFloat",
    "Transform",
    "WeightedRandomSampler",
    "collate",
    "datasets",
    "default_collate",
    "doctor",
    "download",
    "idx",
    "pack",
    "pickle_reading",
    "random_source",
    "read_idx",
    "sampler",
    "transforms",
    "write_idx",
    "write_tar_shards",
]
