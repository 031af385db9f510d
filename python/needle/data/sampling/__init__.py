"""Samplers, and the order of an epoch. No file here reads samples.

sampler.py holds the base class; orders.py, weighted.py, distributed.py, batches.py and
bucketing.py hold the samplers; epoch_order.py turns a sampler into the tickets of an epoch. Called
by loader/.
"""

from .batches import BatchSampler, batch_count, check_batch_size
from .bucketing import LengthBucketBatchSampler
from .distributed import DistributedSampler
from .orders import RandomSampler, SequentialSampler, SubsetRandomSampler
from .sampler import Sampler, set_epoch
from .weighted import WeightedRandomSampler
