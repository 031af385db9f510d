"""The course's module of the array type; its home is ``needle.ndarray``."""

from ..ndarray import *  # noqa: F403
from ..ndarray import __all__ as __all__
