"""The studies by the names of the command line, in the order of the report."""

from __future__ import annotations

from types import ModuleType

from . import (
    study_arrays,
    study_batches,
    study_crops,
    study_faults,
    study_jpeg,
    study_kernels,
    study_loader,
    study_multitask,
    study_small,
    study_startup,
    study_transport,
)
from .settings import Settings

__all__ = ["STUDIES", "Settings"]

STUDIES: dict[str, ModuleType] = {
    "loader": study_loader,
    "batches": study_batches,
    "jpeg": study_jpeg,
    "crops": study_crops,
    "small": study_small,
    "arrays": study_arrays,
    "kernels": study_kernels,
    "transport": study_transport,
    "startup": study_startup,
    "faults": study_faults,
    "multitask": study_multitask,
}
