"""The course's name for ``needle.array_namespace``, chosen by ``NEEDLE_BACKEND``."""

from .array_namespace import *  # noqa: F403
from .array_namespace import __all__ as __all__

if BACKEND == "nd":  # noqa: F405
    from . import backend_ndarray as array_api  # noqa: F401
