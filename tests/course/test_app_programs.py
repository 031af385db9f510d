"""Test the homework's modules simple_ml and mlp_resnet on files like the published ones."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle as ndl
import needle.nn as nn
from apps import mlp_resnet, simple_ml
from apps.models import MLPResNet as FromModels
from tests.course.reference import digits, nn_epoch_by_hand, softmax_loss
from tests.programs import python

ROOT = Path(__file__).resolve().parents[2]


def write_mnist(folder: Path, train: int = 200, test: int = 50) -> Path:
    """Write images with one bright stripe for each class, under MNIST's file names."""
    random = np.random.RandomState(0)
    for name, count in (("train", train), ("t10k", test)):
        y = random.randint(10, size=count).astype("uint8")
        X = random.randint(60, size=(count, 28, 28)).astype("uint8")
        for row, label in enumerate(y):
            X[row, 2 * label + 2 : 2 * label + 5] += 150
        ndl.data.write_idx(folder / f"{name}-images-idx3-ubyte.gz", X)
        ndl.data.write_idx(folder / f"{name}-labels-idx1-ubyte.gz", y)
    return folder


def files(folder: Path, name: str) -> list[str]:
    return [str(folder / f"{name}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1")]


# ---- simple_ml -----------------------------------------------------------------------------------


def test_parse_mnist(tmp_path: Path) -> None:
    X, y = simple_ml.parse_mnist(*files(write_mnist(tmp_path), "t10k"))
    assert X.shape == (50, 784) and X.dtype == np.float32 and X.min() >= 0 and X.max() <= 1
    assert y.shape == (50,) and y.dtype == np.uint8
    raw = ndl.data.read_idx(files(tmp_path, "t10k")[0])
    np.testing.assert_array_equal(X, raw.reshape(50, 784).astype("float32") / 255)


def test_softmax_loss_and_its_gradient() -> None:
    logits, ids = np.random.RandomState(0).randn(6, 4) * 3, np.array([0, 3, 1, 1, 2, 0])
    for shift in (0.0, 1e4):  # large logits do not overflow
        Z = ndl.Tensor(logits + shift)
        loss = simple_ml.softmax_loss(Z, ndl.Tensor(np.eye(4)[ids]))
        expected, slope = softmax_loss(Z.numpy().astype("float64"), ids)
        np.testing.assert_allclose(loss.numpy(), expected, rtol=2e-3 if shift else 1e-5)
        loss.backward()
        np.testing.assert_allclose(Z.grad.numpy(), slope, atol=1e-3 if shift else 1e-6)


def test_nn_epoch_and_loss_err(device: Any) -> None:
    X, y = digits(210)
    random = np.random.RandomState(0)
    weights = random.randn(100, 20) / np.sqrt(20), random.randn(20, 10) / np.sqrt(10)
    W1, W2 = (ndl.Tensor(w, device=device, dtype="float32") for w in weights)
    old, by_hand = W1.numpy().copy(), weights
    for _ in range(6):
        W1, W2 = simple_ml.nn_epoch(X, y, W1, W2, lr=0.2, batch=50)
        by_hand = nn_epoch_by_hand(X.astype("float64"), y, *by_hand, lr=0.2, batch=50)
    np.testing.assert_allclose(W1.numpy(), by_hand[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(W2.numpy(), by_hand[1], rtol=1e-4, atol=1e-5)
    assert W1.requires_grad and W1.is_leaf() and not np.array_equal(old, W1.numpy())
    logits = ndl.relu(ndl.Tensor(X, device=device, dtype="float32") @ W1) @ W2
    loss, error = simple_ml.loss_err(logits, y)
    wanted = softmax_loss(logits.numpy().astype("float64"), y.astype(int))[0]
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    assert error == np.mean(logits.numpy().argmax(1) != y) < 0.5


def cifar(folder: Path) -> ndl.data.CIFAR10Dataset:
    random = np.random.RandomState(0)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        labels = random.randint(10, size=12).tolist()
        pixels = random.randint(100, size=(12, 3, 32, 32)).astype("uint8")
        for row, label in enumerate(labels):
            pixels[row, label % 3, 3 * label : 3 * label + 3] += 150
        content = {b"data": pixels.reshape(12, 3072), b"labels": labels}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return ndl.data.CIFAR10Dataset(str(folder), train=True)


def test_training_on_images(tmp_path: Path, device: Any) -> None:
    """Compare seeds, order, Adam's defaults, accuracy and loss with a loop by hand."""
    dataset = cifar(tmp_path)
    loader = ndl.data.DataLoader(dataset=dataset, batch_size=25, shuffle=True)

    def build() -> nn.Module:
        np.random.seed(7)
        return nn.Sequential(
            nn.Conv(3, 4, 3, stride=2, device=device),
            nn.BatchNorm2d(4, device=device),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(4 * 16 * 16, 10, device=device),
        )

    model = build()
    result = simple_ml.train_cifar10(model, loader, n_epochs=2)
    twin = build()
    opt = ndl.optim.Adam(twin.parameters(), lr=0.001, weight_decay=0.001)
    for _ in range(2):
        np.random.seed(4)
        right, total = 0, 0.0
        for X, y in loader:
            out = twin(ndl.Tensor(X, device=device))
            labels = y.numpy().astype(int)
            total += softmax_loss(out.numpy().astype("float64"), labels)[0] * len(labels)
            right += int((out.numpy().argmax(1) == labels).sum())
            opt.reset_grad()
            nn.SoftmaxLoss()(out, ndl.Tensor(y, device=device)).backward()
            opt.step()
    np.testing.assert_allclose(result, (right / 60, total / 60), rtol=1e-5)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())

    test = ndl.data.DataLoader(ndl.data.CIFAR10Dataset(str(tmp_path), train=False), 5)
    accuracy, loss = simple_ml.evaluate_cifar10(model, test, loss_fn=nn.SoftmaxLoss)
    assert not model.training and 0 <= accuracy <= 1 and loss > 0
    assert (accuracy, loss) == simple_ml.epoch_general_cifar10(test, model, nn.SoftmaxLoss())


# ---- mlp_resnet ----------------------------------------------------------------------------------


def test_the_models_of_mlp_resnet_are_those_of_models() -> None:
    assert mlp_resnet.MLPResNet is FromModels
    np.random.seed(1)
    block = mlp_resnet.ResidualBlock(6, 4, norm=nn.LayerNorm1d, drop_prob=0.2)
    kinds = [type(layer) for layer in block[0].fn]
    assert kinds == [nn.Linear, nn.LayerNorm1d, nn.ReLU, nn.Dropout, nn.Linear, nn.LayerNorm1d]
    assert isinstance(block[0], nn.Residual) and isinstance(block[1], nn.ReLU)
    model = mlp_resnet.MLPResNet(6, hidden_dim=8, num_blocks=2, num_classes=3, norm=OwnNorm)
    widths = [layer.width for layer in model._children() if isinstance(layer, OwnNorm)]
    assert widths == [4, 8, 4, 8]


class OwnNorm(nn.Identity):
    """A module that a program may pass instead of a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width


def test_epochs_of_the_mlp(device: Any) -> None:
    X, y = digits(120)
    loader = ndl.data.DataLoader(ndl.data.NDArrayDataset(X, y), batch_size=30, shuffle=True)
    outcomes = []
    for seed in (5, 6):
        np.random.seed(1)
        model = mlp_resnet.MLPResNet(100, 20, 1, device=device)
        np.random.seed(seed)  # epoch() itself seeds with 4
        opt = ndl.optim.SGD(model.parameters(), lr=0.1)
        trained = [mlp_resnet.epoch(loader, model, opt) for _ in range(8)]
        assert model.training
        outcomes.append([*trained, mlp_resnet.epoch(loader, model)])
        assert not model.training
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0][1] > 2 * outcomes[0][7][1] and outcomes[0][-1][0] < 0.1


def test_train_mnist_is_what_the_course_spells_out(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    options = {"optimizer": ndl.optim.Adam, "lr": 0.01, "weight_decay": 0.01, "hidden_dim": 16}
    result = mlp_resnet.train_mnist(20, 2, **options, data_dir=str(tmp_path))
    np.random.seed(4)
    model = mlp_resnet.MLPResNet(784, hidden_dim=16)
    opt = ndl.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.01)
    sets = [ndl.data.MNISTDataset(*files(tmp_path, name)) for name in ("train", "t10k")]
    train = ndl.data.DataLoader(sets[0], batch_size=20, shuffle=True)
    for _ in range(2):
        error, loss = mlp_resnet.epoch(train, model, opt)
    test = mlp_resnet.epoch(ndl.data.DataLoader(sets[1], batch_size=20), model)
    assert result == (error, loss, *test)
    assert all(isinstance(number, float) for number in result) and result[2] < 0.5


# ---- both ways to import -------------------------------------------------------------------------

PROGRAM = """
import numpy as np
{imports}
import needle as ndl
np.random.seed(0)
model = LanguageModel(4, 6, 5, seq_model="lstm")
columns = ndl.data.batchify(list(range(6)) * 5, 2, None, "float32")
accuracy, loss = simple_ml.train_ptb(model, columns, seq_len=4)
assert 0 <= accuracy <= 1 and np.isfinite(loss)
assert issubclass(mlp_resnet.MLPResNet, ndl.nn.Module) and ResNet9().parameters()
print("done", ndl.autograd.BACKEND)
"""
STYLES = {
    "flat": ("import simple_ml, mlp_resnet\nfrom models import LanguageModel, ResNet9", "apps"),
    "package": (
        "from apps import simple_ml, mlp_resnet\nfrom apps.models import LanguageModel, ResNet9",
        ".",
    ),
}


@pytest.mark.parametrize("backend", ["nd", "np"])
@pytest.mark.parametrize("style", STYLES)
def test_imports(style: str, backend: str) -> None:
    imports, folder = STYLES[style]
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT / folder)])
    code = PROGRAM.format(imports=imports)
    done = python("-c", code, cwd="/", PYTHONPATH=path, NEEDLE_BACKEND=backend)
    assert done.stdout == f"done {backend}\n"
