"""A loader's reports about itself: stats, doctor, explain and progress bars."""

from typing import Any

import numpy as np
import pytest

from needle import data

from .programs import engines
from .sets import Numbers


@engines
def test_explain_says_who_prepares_and_what_is_native(options):
    """explain() names a transform that has no native form."""

    def mine(image: Any) -> Any:
        return image

    images = data.ArrayDataset(np.zeros((8, 6, 6, 3), np.uint8))
    made = [data.RandomCrop(1), mine, data.ToFloat()]
    with data.DataLoader(images, 4, transforms=made, seed=1, **options) as loader:
        text = loader.explain()
    assert {"inline": "in this thread", "threads": "2 threads"}.get(
        loader.engine, "2 workers (processes)"
    ) in text
    assert "RandomCrop" in text and "mine" in text and "ToFloat" in text


@engines
def test_progress_bars_know_the_length(options):
    """``tqdm(loader)`` knows its total and counts up to it."""
    tqdm = pytest.importorskip("tqdm")
    with data.DataLoader(Numbers(10), 4, **options) as loader:
        bar = tqdm.tqdm(loader, disable=None, leave=False)
        assert bar.total == 3
        assert sum(len(labels.numpy()) for _, labels in bar) == 10
