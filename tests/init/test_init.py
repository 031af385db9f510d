"""Initialisers: exact numbers from the global np.random stream, one call each; bounds; errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import needle as ndl
from needle import init
from tests.nn_devices import close


def test_rand_is_one_draw_scaled(device):
    np.random.seed(3)
    x = init.rand(4, 5, low=-2, high=3, device=device)
    y = init.randn(2, mean=1, std=2, device=device)
    np.random.seed(3)
    close(x, np.random.rand(4, 5) * 5 - 2)
    close(y, np.random.randn(2) * 2 + 1)
    assert x.dtype == "float32" and not x.requires_grad and x.device == device


def test_randb_compares_one_uniform_draw(device):
    np.random.seed(5)
    mask = init.randb(50, p=0.3, device=device, dtype="float32")
    np.random.seed(5)
    close(mask, (np.random.rand(50) <= 0.3).astype("float32"))
    assert init.randb(3, device=device).dtype == "bool"


@pytest.mark.parametrize(
    ("function", "bound"),
    [
        (lambda **k: init.xavier_uniform(30, 20, gain=1.5, **k), 1.5 * math.sqrt(6 / 50)),
        (lambda **k: init.kaiming_uniform(30, 20, **k), math.sqrt(2) * math.sqrt(3 / 30)),
        (lambda **k: init.kaiming_uniform(30, 20, nonlinearity="linear", **k), math.sqrt(3 / 30)),
    ],
)
def test_uniform_initialisers(device, function, bound):
    np.random.seed(0)
    x = function(device=device)
    np.random.seed(0)
    close(x, np.random.rand(30, 20) * 2 * bound - bound)


@pytest.mark.parametrize(
    ("function", "std"),
    [
        (lambda **k: init.xavier_normal(30, 20, gain=0.5, **k), 0.5 * math.sqrt(2 / 50)),
        (lambda **k: init.kaiming_normal(30, 20, **k), math.sqrt(2) / math.sqrt(30)),
        (lambda **k: init.kaiming_normal(30, 20, nonlinearity="tanh", **k), 5 / 3 / math.sqrt(30)),
    ],
)
def test_normal_initialisers(device, function, std):
    np.random.seed(0)
    x = function(device=device)
    np.random.seed(0)
    close(x, np.random.randn(30, 20) * std)


def test_kaiming_takes_a_shape_and_keeps_the_bound_of_the_fans():
    np.random.seed(0)
    x = init.kaiming_uniform(9 * 4, 9 * 8, shape=(3, 3, 4, 8))
    np.random.seed(0)
    bound = math.sqrt(2) * math.sqrt(3 / 36)
    close(x, np.random.rand(3, 3, 4, 8) * 2 * bound - bound)


def test_constants(device):
    close(init.ones(2, 3, device=device), np.ones((2, 3)))
    close(init.zeros(2, device=device), np.zeros(2))
    close(init.constant(2, 2, c=7.5, device=device), np.full((2, 2), 7.5))
    like = init.constant(3, c=2, device=device, dtype="float64")
    assert init.zeros_like(like).dtype == "float64" and init.ones_like(like).device == device
    assert init.ones(2, device=device, requires_grad=True).requires_grad
    assert init.ones(device=device).shape == ()


def test_one_hot(device):
    ids = ndl.Tensor([2, 0, 1], device=device)
    close(init.one_hot(3, ids, device=device), np.eye(3)[[2, 0, 1]])
    grid = ndl.Tensor([[1, 0], [0, 1]], device=device)
    close(init.one_hot(2, grid, device=device), np.eye(2)[[[1, 0], [0, 1]]])


@pytest.mark.parametrize("ids", [[0, 3], [-1, 0], [0.5, 1], [float("nan"), 0]])
def test_one_hot_refuses_what_is_no_class(ids):
    with pytest.raises(
        ndl.errors.ShapeError, match=r"one_hot: labels must be whole numbers in \[0, 3"
    ):
        init.one_hot(3, ndl.Tensor(ids))


def test_unknown_nonlinearity_lists_the_known():
    with pytest.raises(ndl.errors.UnknownNameError, match="known: linear, relu, tanh"):
        init.kaiming_uniform(3, 4, nonlinearity="rellu")
