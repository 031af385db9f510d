"""The studies by their command-line names, in the order of the report."""

from __future__ import annotations

from typing import Any

from . import study_conv2d, study_inference, study_limits, study_matmul, study_memory, study_start
from .study_models import STUDIES as MODELS

STUDIES: dict[str, Any] = {
    **MODELS,
    "matmul": study_matmul.STUDY,
    "conv2d": study_conv2d.STUDY,
    "inference": study_inference.STUDY,
    "memory": study_memory.STUDY,
    "start": study_start,
    "limits": study_limits,
}
