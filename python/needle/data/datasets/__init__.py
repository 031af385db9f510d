"""The published data sets: one file a family, each a Dataset over files or packaged arrays."""

from .cifar10 import CIFAR10, CIFAR10Dataset
from .digits import Digits
from .image_folder import ImageFolder
from .mnist import MNIST, FashionMNIST, MNISTDataset
from .ptb import Corpus, Dictionary, batchify, get_batch

__all__ = [
    "CIFAR10",
    "MNIST",
    "CIFAR10Dataset",
    "Corpus",
    "Dictionary",
    "Digits",
    "FashionMNIST",
    "ImageFolder",
    "MNISTDataset",
    "batchify",
    "get_batch",
]
