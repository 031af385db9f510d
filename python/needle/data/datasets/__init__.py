"""Datasets: the base class, arrays, combinations, readers of files, and published data sets.

Called by users, by the pipeline in ``batching/`` and by ``needle.remote``. dataset.py has the base
class; each published data set has its own file.
"""

from .cifar10 import CIFAR10, CIFAR10Dataset
from .digits import Digits
from .image_folder import ImageFolder
from .mnist import MNIST, FashionMNIST, MNISTDataset
from .ptb import Corpus, Dictionary, batchify, get_batch
