"""The course's name for ``needle.ndarray``, with all of its public names.

The compiled modules ``ndarray_backend_cpu`` and ``ndarray_backend_cuda`` are in this folder, from
which course programs import them.
"""

import importlib
from importlib.util import find_spec
from typing import Any

from .. import ndarray as _room
from ..ndarray import *  # noqa: F403
from ..ndarray import __array_api_version__ as __array_api_version__
from . import ndarray as ndarray
from .ndarray import full as full

__all__ = [*_room.__all__, "ndarray"]

if find_spec("needle.course_names") is not None:
    importlib.import_module("needle.course_names").add_to(__name__)


def __getattr__(name: str) -> Any:
    """Return a name of ``needle.ndarray`` that its ``__all__`` does not list."""
    return getattr(_room, name)
