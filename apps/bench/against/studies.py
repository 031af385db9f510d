"""The pieces of work by the names of the command line, in the order of the report."""

from __future__ import annotations

from typing import Any

from . import (
    study_conv2d,
    study_distributed,
    study_growth,
    study_inference,
    study_limits,
    study_matmul,
    study_memory,
    study_start,
)
from .settings import Settings
from .study_models import STUDIES as MODELS

__all__ = ["STUDIES", "Settings"]

STUDIES: dict[str, Any] = {
    **MODELS,
    "matmul": study_matmul,
    "conv2d": study_conv2d,
    "inference": study_inference,
    "growth": study_growth,
    "distributed": study_distributed,
    "memory": study_memory,
    "start": study_start,
    "limits": study_limits,
}
"""Each study has TITLE, cases(settings), tables(result, limits) and targets(result, limits)."""
