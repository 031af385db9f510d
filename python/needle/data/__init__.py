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
from .idx import read_idx, write_idx
from .loader import DataLoader
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
from .transforms import (
    Compose,
    Normalize,
    Pad,
    RandomCrop,
    RandomFlipHorizontal,
    Resize,
    ToCHW,
    Transform,
)

__all__ = [
    "CIFAR10",
    "MNIST",
    "ArrayDataset",
    "BatchSampler",
    "CIFAR10Dataset",
    "Compose",
    "ConcatDataset",
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
    "NDArrayDataset",
    "Normalize",
    "Pad",
    "RandomCrop",
    "RandomFlipHorizontal",
    "RandomSampler",
    "Resize",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "SubsetRandomSampler",
    "ToCHW",
    "Transform",
    "WeightedRandomSampler",
    "collate",
    "datasets",
    "default_collate",
    "download",
    "idx",
    "pickle_reading",
    "random_source",
    "read_idx",
    "sampler",
    "transforms",
    "write_idx",
]
