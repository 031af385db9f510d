"""The exceptions that needle raises for a caller's mistakes.

Every message names the operation, the rule, the offending value and the remedy:
``"matmul: inner dimensions must agree, got (2, 3) @ (4, 5); transpose or reshape one operand"``.
Each class also derives from the built-in exception that NumPy users would expect, so that
``except ValueError`` keeps working. Bugs of our own are ``assert``\\ s, never one of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NeedleError(Exception):
    """Base of every exception that needle raises on purpose."""


class ShapeError(NeedleError, ValueError):
    """A shape, an axis or a size breaks the operation's rule."""


class IndexingError(ShapeError, IndexError):
    """An index is out of range or of a form that arrays do not offer."""


class DTypeError(NeedleError, TypeError):
    """A dtype is unknown or not allowed for the operation."""


class DeviceError(NeedleError, RuntimeError):
    """Operands sit on different devices, or a device is missing or disabled."""


class GraphError(NeedleError, RuntimeError):
    """Differentiation is impossible: nothing was recorded, or the graph has been released."""


class UnknownNameError(NeedleError, LookupError):
    """A name (device, model, dataset, ...) is not registered; the message lists the known ones."""


class DataError(NeedleError, ValueError):
    """A data file is truncated, corrupt or of another format; the message names file and place."""


class StoreError(NeedleError, OSError):
    """An object store or web server cannot be reached or refuses, after every attempt."""


class CheckpointError(NeedleError, ValueError):
    """A checkpoint is cut short, corrupt or belongs to another model."""


class WorkerError(NeedleError, RuntimeError):
    """A loader's worker process died, could not start, or could not be given what it needs."""


class LoaderServerError(WorkerError):
    """The server of a shared loader has died, does not answer, or there is none."""


class LoaderTimeout(NeedleError, TimeoutError):
    """No batch was ready within the time that the loader was told to wait."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not in ``known``: lists them and points at the nearest.

    >>> str(unknown_name("device", "cpo", ["cpu", "cuda"]))
    "unknown device 'cpo'; known: cpu, cuda. Did you mean 'cpu'?"
    """
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, n=1)
    hint = f". Did you mean {nearest[0]!r}?" if nearest else ""
    return UnknownNameError(f"unknown {kind} {name!r}; known: {', '.join(names)}{hint}")
