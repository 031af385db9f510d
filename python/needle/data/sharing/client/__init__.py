"""A training program's side of a shared loader: batches from a server, or without one.

dataloader.py is the face; joining.py and starting.py find or start the server, session.py is the
connection, assembly.py makes batches, iteration.py and epochs.py know how far an epoch is;
status.py shows servers to people.
"""

from .global_loader import GlobalDataLoader

__all__ = ["GlobalDataLoader"]
