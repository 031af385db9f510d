"""The studies by their command-line names, in the order of the report."""

from __future__ import annotations

from types import ModuleType

from . import study_arrays, study_jpeg, study_kernels, study_multitask, study_small, study_startup

STUDIES: dict[str, ModuleType] = {
    "jpeg": study_jpeg,
    "small": study_small,
    "arrays": study_arrays,
    "kernels": study_kernels,
    "startup": study_startup,
    "multitask": study_multitask,
}
