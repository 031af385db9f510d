"""Test ``needle.summary``: shapes, parameters and multiplications by layer, no side effects."""

import random

import numpy as np
import pytest

import needle as ndl
from needle import nn


def lenet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, padding=0, bias=False),
        nn.BatchNorm2d(16),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(1600, 10),
    )


def test_the_rows_have_shapes_parameters_and_multiplications() -> None:
    found = ndl.summary(lenet(), (2, 1, 28, 28))
    rows = {row.name: row for row in found.rows}
    assert [rows[name].output for name in ("", "0", "1", "2", "3", "4", "5", "7")] == [
        "(2, 10)",
        "(2, 6, 28, 28)",
        "(2, 6, 28, 28)",
        "(2, 6, 14, 14)",
        "(2, 16, 10, 10)",
        "(2, 16, 10, 10)",
        "(2, 1600)",
        "(2, 10)",
    ]
    assert [row.parameters for row in found.rows] == [0, 156, 0, 0, 2400, 32, 0, 0, 16010]
    assert rows["0"].multiplications == 2 * 6 * 28 * 28 * 25
    assert rows["3"].multiplications == 2 * 16 * 10 * 10 * 25 * 6
    assert rows["7"].multiplications == 2 * 1600 * 10
    assert found.parameters == sum(p.size for p in lenet().parameters())
    assert found.multiplications == 235_200 + 480_000 + 32_000


def test_the_table_is_the_repr() -> None:
    text = repr(ndl.summary(nn.Sequential(nn.Linear(1000, 20), nn.ReLU()), (1, 1000)))
    assert text.splitlines()[0] == "Sequential for input (1, 1000)"
    assert text.splitlines()[5].split() == ["0", "Linear", "(1,", "20)", "20,020", "20,000"]
    assert text.splitlines()[-1].split() == ["total", "20,020", "20,000"]


def multiplications(model: nn.Module, *inputs: object) -> int:
    return ndl.summary(model, *inputs).multiplications


def test_multiplications_are_those_of_the_definition() -> None:
    assert multiplications(nn.Conv2d(4, 8, 3, groups=2, stride=2, padding=1), (1, 4, 9, 9)) == (
        8 * 5 * 5 * 3 * 3 * 2
    )
    assert multiplications(nn.ConvTranspose2d(4, 8, 3, stride=2), (1, 4, 5, 5)) == (
        4 * 5 * 5 * 8 * 3 * 3
    )
    assert multiplications(nn.Linear(3, 5), (7, 2, 3)) == 7 * 2 * 3 * 5
    assert multiplications(nn.LSTM(3, 5), (7, 2, 3)) == 7 * 2 * 4 * 5 * (3 + 5)


class Twice(nn.Module):
    """A model with a layer called twice, its own matrix product, and a layer that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.unused = nn.Linear(4, 4), nn.Linear(4, 2)
        self.own = nn.Parameter(ndl.init.ones(4, 3))

    def forward(self, x: ndl.Tensor, y: ndl.Tensor) -> dict[str, ndl.Tensor]:
        return {"a": self.layer(self.layer(x)) @ self.own, "b": y}


def test_calls_outputs_and_own_parameters_of_a_module() -> None:
    whole, layer, unused = ndl.summary(Twice(), (2, 4), (5,)).rows
    assert (whole.output, whole.parameters, whole.multiplications) == ("(2, 3), (5,)", 12, 24)
    assert (layer.output, layer.calls, layer.multiplications) == ("(2, 4)", 2, 2 * 2 * 16)
    assert (unused.output, unused.calls, unused.parameters) == ("", 0, 10)


def test_shared_parameters_are_counted_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model.modules[1].weight = model.modules[0].weight
    assert [row.parameters for row in ndl.summary(model, (1, 3)).rows] == [0, 12, 3]


def test_token_numbers_are_given_as_an_array() -> None:
    found = ndl.summary(nn.Embedding(10, 3), np.array([[1, 2], [3, 9]]))
    assert [row.output for row in found.rows] == ["(2, 2, 3)"]


class Drawing(nn.Module):
    """A layer that draws random numbers in every mode and counts calls that record gradients."""

    def forward(self, x: ndl.Tensor) -> ndl.Tensor:
        assert not self.training
        np.random.rand(3)
        random.random()
        assert not (x * ndl.Tensor([1.0], device=x.device)).requires_grad
        return x


def test_modes_random_states_and_buffers_stay() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), Drawing(), nn.Dropout(0.5))
    model.modules[2].eval()
    before = {name: value.numpy() for name, value in model.state_dict().items()}
    ndl.seed(3)
    expected = np.random.rand(), random.random()
    ndl.seed(3)
    ndl.summary(model, (4, 3))
    assert (np.random.rand(), random.random()) == expected
    assert [m.training for _, m in model.named_modules()] == [True, True, True, False]
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    assert all("forward" not in vars(m) for _, m in model.named_modules())
    assert all(p.grad is None for p in model.parameters())


def test_everything_is_restored_if_the_model_fails() -> None:
    model, compute = nn.Linear(3, 2), ndl.MatMul.compute
    with pytest.raises(ndl.errors.ShapeError):
        ndl.summary(model, (1, 4))
    assert model.training and "forward" not in vars(model) and ndl.MatMul.compute is compute


def test_a_model_must_be_given_first() -> None:
    with pytest.raises(TypeError, match=r"summary: the model must be a Module, got tuple"):
        ndl.summary((1, 3), nn.Linear(3, 2))


def test_seed_makes_weights_and_python_numbers_again() -> None:
    found = []
    for _ in range(2):
        ndl.seed(7)
        found.append((nn.Linear(3, 2).weight.numpy().tolist(), random.random()))
    assert found[0] == found[1]
    np.random.seed(7)
    assert found[0][0] == nn.Linear(3, 2).weight.numpy().tolist()
    for wrong in (-1, 2**32):
        with pytest.raises(ValueError, match=r"seed: the number must be in \[0, 2\*\*32\), got"):
            ndl.seed(wrong)
