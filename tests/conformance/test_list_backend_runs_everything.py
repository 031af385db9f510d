"""A network trains on the backend ``lists``: ten functions suffice for all of needle."""

from typing import Any

import numpy as np
import pytest

import needle
from needle.backend_selection import BACKEND
from tests.conformance import list_backend

pytestmark = pytest.mark.skipif(BACKEND == "np", reason="plain NumPy arrays have no backends")


def _train(device: Any) -> tuple[list[float], np.ndarray]:
    np.random.seed(0)
    model = needle.nn.Sequential(
        needle.nn.Conv(1, 2, 3, device=device),
        needle.nn.BatchNorm2d(2, device=device),
        needle.nn.ReLU(),
        needle.nn.Flatten(),
        needle.nn.Linear(2 * 4 * 4, 3, device=device),
    )
    optimizer = needle.optim.Adam(model.parameters(), lr=0.05)
    x = needle.Tensor(np.random.rand(4, 1, 4, 4).astype(np.float32), device=device)
    y = needle.Tensor(np.array([0, 1, 2, 1]), device=device)
    losses = []
    for _ in range(3):
        loss = needle.nn.SoftmaxLoss()(model(x), y)
        optimizer.reset_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.numpy()))
    return losses, model(x).numpy()


def test_a_small_cnn_trains_on_lists_as_on_numpy() -> None:
    losses, outputs = _train(needle.device(list_backend.ListsBackend.name))
    wanted_losses, wanted_outputs = _train(needle.cpu_numpy())
    assert losses == pytest.approx(wanted_losses, rel=1e-4)
    assert losses[-1] < losses[0]
    assert np.allclose(outputs, wanted_outputs, rtol=1e-3, atol=1e-4)


def test_array_expressions_and_indexing_run_on_lists() -> None:
    from needle import backend_ndarray as nd

    device = needle.device(list_backend.ListsBackend.name)
    host = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    a = nd.asarray(host, device=device)
    assert (
        (a[:, ::-1] * 2 - a).sum(axis=(0, 2)).numpy() == (2 * host[:, ::-1] - host).sum((0, 2))
    ).all()
    assert (a[a > 7].numpy() == host[host > 7]).all()
    assert (a[:, [2, 0]].numpy() == host[:, [2, 0]]).all()
    assert (nd.argmax(a, axis=1).numpy() == host.argmax(1)).all()
    a[1, :, 2] = -1
    host[1, :, 2] = -1
    assert (a.numpy() == host).all()
    assert str(a.device) == "lists()"
