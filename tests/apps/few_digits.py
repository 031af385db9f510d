"""A data source with only a few digits, for tests of the training programs."""

from pathlib import Path
from typing import Any

from apps.training import sources
from needle import data


def source(training: int, testing: int) -> sources.Source:
    """Return needle's digits, limited to a number of samples."""

    def open_few(root: Path, train: bool, download: bool) -> Any:
        whole = data.Digits(train, layout="HWC")
        count = training if train else testing
        few = data.ImageArrays(whole.images[:count], whole.labels[:count], layout="HWC", scale=16.0)
        few.classes = whole.classes  # type: ignore[attr-defined]
        return few

    digits = sources.SOURCES["digits"]
    return sources.Source(open_few, digits.size, digits.mean, digits.std, digits.recipe)
