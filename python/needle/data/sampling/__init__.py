"""Samplers: the order in which a loader visits a dataset; no sample is read here.

base.py is what a sampler is, orders.py the whole set and parts of it, weighted.py draws by weight,
distributed.py shares a set among ranks, batches.py makes lists of indices of them, bucketing.py
lists of samples of like length.
"""

from .base import Sampler, set_epoch
from .batches import BatchSampler, batch_count, check_batch_size
from .bucketing import LengthBucketBatchSampler
from .distributed import DistributedSampler
from .orders import RandomSampler, SequentialSampler, SubsetRandomSampler
from .weighted import WeightedRandomSampler

__all__ = [
    "BatchSampler",
    "DistributedSampler",
    "LengthBucketBatchSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
    "batch_count",
    "check_batch_size",
    "set_epoch",
]
