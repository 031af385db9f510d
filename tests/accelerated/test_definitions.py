"""Test the definitions of the accelerated operations on small examples.

The op table compares them with NumPy, tests/torch_parity with PyTorch.
"""

import math

import numpy as np
import pytest

from needle import accelerated
from needle.errors import ShapeError


def test_cross_entropy_ignores_impossible_classes_and_checks_labels() -> None:
    logits = np.array([[0.0, -np.inf, 0.0]])
    loss = accelerated.cross_entropy(logits, np.array([0]), 0.0)
    assert loss.tolist() == pytest.approx([math.log(2)])
    for bad in (-1, 3):
        with pytest.raises(ShapeError, match=r"labels must be in \[0, 3\)"):
            accelerated.cross_entropy(logits, np.array([bad]), 0.0)
        with pytest.raises(ShapeError, match="cross_entropy_grad: labels"):
            accelerated.cross_entropy_grad(np.ones(1), logits, np.array([bad]), 0.0)


def test_max_pool_by_hand_ties_go_to_the_first_and_never_to_padding() -> None:
    x = np.full((1, 2, 2, 1), -np.inf)
    windows = ((2, 2), (1, 1), (1, 1))
    grad = np.arange(1.0, 10.0).reshape(1, 3, 3, 1)
    assert (accelerated.max_pool2d(x, *windows) == -np.inf).all()
    got = accelerated.max_pool2d_grad(grad, x, *windows)[0, :, :, 0]
    # Windows 1, 2, 4, 5 read the first pixel first; 3 and 6 the second; 7 and 8 the third.
    assert got.tolist() == [[12.0, 9.0], [15.0, 9.0]]
