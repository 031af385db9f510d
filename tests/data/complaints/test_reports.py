"""Test explain(), a loader's report about itself."""

from typing import Any

import numpy as np

from needle import data

from .programs import engines


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
