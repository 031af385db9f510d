"""The exceptions that needle raises for a user's mistakes.

Every message names the operation, the rule, the offending value and the remedy:
``"matmul: inner dimensions must agree, got (2, 3) @ (4, 5); transpose or reshape one operand"``.
Each class also derives from the built-in exception that NumPy users would expect, so that
``except ValueError`` works. ``assert`` is for bugs of needle itself.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class NeedleError(Exception):
    """Base class of the exceptions that needle raises."""


class ShapeError(NeedleError, ValueError):
    """A shape, an axis or a size is invalid for the operation."""


class IndexingError(ShapeError, IndexError):
    """An index or an axis is out of range, or an index has an unsupported form."""


class DTypeError(NeedleError, TypeError):
    """A dtype is unknown or not allowed for the operation."""


class PrecisionWarning(UserWarning):
    """Integers were rounded, because the default dtype float32 cannot hold them."""


class DeviceError(NeedleError, RuntimeError):
    """Operands are on different devices, or a device is missing or disabled."""


class DeviceMemoryError(DeviceError, MemoryError):
    """The memory of a device is exhausted, or an array is larger than its largest buffer."""


class DeviceLostError(DeviceError):
    """The driver reported a device as lost, and its arrays are gone."""


class GraphError(NeedleError, RuntimeError):
    """A gradient cannot be computed: no graph was recorded, or it has been released."""


class UnknownNameError(NeedleError, LookupError):
    """A name (of a device, model, dataset, ...) is not registered; the message lists the names."""


class DataError(NeedleError, ValueError):
    """A data file is truncated, corrupt or in another format; the message says where."""


class StoreError(NeedleError, OSError):
    """An object store or web server is unreachable or refuses the request, after every retry."""


class CheckpointError(NeedleError, ValueError):
    """A checkpoint is truncated, corrupt or from another model."""


class WorkerError(NeedleError, RuntimeError):
    """A worker process of a loader died, could not start, or could not receive its data."""


class LoaderServerError(WorkerError):
    """The server of a shared loader does not exist, has died or does not answer."""


class DistributedError(NeedleError, RuntimeError):
    """The processes of a distributed run disagree, or one of them does not answer."""


class LoaderTimeout(NeedleError, TimeoutError):
    """No batch was ready within the loader's ``timeout``."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error for a name not in ``known``, which lists these and suggests the nearest.

    >>> str(unknown_name("device", "cpo", ["cpu", "cuda"]))
    "unknown device 'cpo'; known: cpu, cuda. Did you mean 'cpu'?"
    """
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, n=1)
    hint = f". Did you mean {nearest[0]!r}?" if nearest else ""
    return UnknownNameError(f"unknown {kind} {name!r}; known: {', '.join(names)}{hint}")


def check_callables(op: str, kind: str, given: Iterable[Any]) -> None:
    """Raise TypeError for an object that is not callable, or for a class (not an instance).

    >>> check_callables("Compose", "transforms", [abs, float])
    """
    for each in given:
        if inspect.isclass(each) and any("__call__" in vars(base) for base in each.__mro__):
            raise TypeError(f"{op}: {each.__name__} is a class; write {each.__name__}()")
        if not callable(each):
            raise TypeError(
                f"{op}: each of the {kind} must be callable, got {each!r:.80}; unpack lists with "
                "*, and leave None out"
            )


def check_choice(
    op: str, name: str, value: Any, known: Iterable[str], kind: type[Exception] = ValueError
) -> None:
    """Raise an error of ``kind`` unless ``value`` is one of the two or more strings in ``known``.

    >>> check_choice("decode", "mode", "RGB", ["RGB", "L"])
    """
    *others, last = known
    if value not in (*others, last):
        texts = f"{', '.join(map(repr, others))} or {last!r}"
        raise kind(f"{op}: {name} must be {texts}, got {value!r}; choose one of them")


def check_at_least(op: str, name: str, value: Any, least: int) -> None:
    """Raise ValueError if ``value`` is below ``least``.

    >>> check_at_least("DataLoader", "batch_size", 4, 1)
    """
    if value < least:
        raise ValueError(f"{op}: {name} must be at least {least}, got {value}")


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the program that called needle."""
    package, level = str(Path(__file__).parent), 1
    frame: Any = inspect.currentframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
