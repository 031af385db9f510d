"""DataLoader, which yields the batches of a dataset, one epoch after another.

dataloader.py holds the class, options.py checks its arguments, iteration.py runs an epoch,
state.py saves and restores a position; statistics.py and doctor.py show where the time goes.
"""

from .dataloader import DataLoader
from .doctor import doctor

__all__ = ["DataLoader", "doctor"]
