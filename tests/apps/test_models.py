"""Test the models: names, published sizes, and training on both devices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from apps.models import MODELS, MLPResNet, ResNet, ResNet9, build_model, find_model
from apps.models.resnet import ZeroPadShortcut
from needle import nn
from needle.errors import UnknownNameError
from needle.nn import torch_mapping

ROOT = Path(__file__).resolve().parents[2]


def size(model: nn.Module) -> int:
    return sum(int(np.prod(p.shape)) for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "options", "parameters"),
    [
        ("lenet5", {}, 61_706),
        ("lenet5", {"in_channels": 3, "num_classes": 100}, 61_706 + 2 * 150 + 90 * 85),
        ("resnet9", {}, 431_946),
        ("resnet20", {}, 269_722),
        ("resnet32", {}, 464_154),
        ("resnet56", {}, 853_018),
        ("resnet110", {}, 1_727_962),
        ("resnet18", {}, 11_173_962),
        ("resnet34", {}, 21_282_122),
        ("resnet50", {}, 23_520_842),
        ("resnet18_imagenet", {"num_classes": 1000}, 11_689_512),
        ("resnet34_imagenet", {"num_classes": 1000}, 21_797_672),
        ("resnet50_imagenet", {"num_classes": 1000}, 25_557_032),
        ("vgg11", {}, 9_231_114),
        ("mobilenet", {}, 3_217_226),
        ("mobilenet", {"num_classes": 1000}, 4_231_976),
        ("mlp_resnet", {}, 78_500 + 3 * (5_050 + 100 + 5_100 + 200) + 1_010),
    ],
)
def test_sizes(name: str, options: dict[str, int], parameters: int) -> None:
    assert size(build_model(name, **options)) == parameters


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_step_lowers_the_loss(name: str, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    np.random.seed(0)
    channels, (height, width) = 2, find_model(name).image_size
    # the same architecture, but shallow and for small images
    if issubclass(find_model(name), ResNet):
        height = width = {32: 8, 224: 48}[height]
        stages = len(find_model(name).depths)
        monkeypatch.setattr(find_model(name), "depths", (2, *[1] * (stages - 1)))
    model = build_model(name, in_channels=channels, num_classes=4, device=device)
    images = needle.Tensor(
        np.random.randn(6, channels, height, width), device=device, dtype="float32"
    )
    labels = needle.Tensor(np.arange(6) % 4, device=device, dtype="int64")
    optimizer = needle.optim.SGD(model.parameters(), lr=0.001)
    losses = []
    for _ in range(3):
        logits = model(images)
        assert tuple(logits.shape) == (6, 4)
        loss = nn.CrossEntropyLoss()(logits, labels)
        optimizer.reset_grad()
        loss.backward()
        assert all(p.grad is not None for p in model.parameters())
        optimizer.step()
        losses.append(loss.numpy().item())
    assert losses[2] < losses[0]


@pytest.mark.parametrize("name", ["vgg11", "mobilenet"])
def test_vgg_and_mobilenet_see_the_whole_image_at_the_end(name: str, device: Any) -> None:
    model = build_model(name, device=device)
    model.eval()
    x = needle.Tensor(np.zeros((1, 3, 32, 32)), device=device, dtype="float32")
    with needle.no_grad():
        last = tuple(model.features(x).shape)
    assert last == {"vgg11": (1, 512, 1, 1), "mobilenet": (1, 1024, 2, 2)}[name]


def test_resnets_have_the_names_of_torchvision() -> None:
    names = list(build_model("resnet50_imagenet").state_dict())
    norm = ["weight", "bias", "running_mean", "running_var"]
    stem = ["conv1.weight", *(f"bn1.{n}" for n in norm)]
    block = [name for i in (1, 2, 3) for name in (f"conv{i}.weight", *(f"bn{i}.{n}" for n in norm))]
    shortcut = ["downsample.0.weight", *(f"downsample.1.{n}" for n in norm)]
    expected = [*stem]
    for layer, depth in enumerate((3, 4, 6, 3), start=1):
        for i in range(depth):
            expected += [f"layer{layer}.{i}.{n}" for n in (*block, *(shortcut if i == 0 else []))]
    assert sorted(names) == sorted([*expected, "fc.weight", "fc.bias"])


def test_the_shortcut_of_option_a(device: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 4)).astype(np.float32)
    shortcut = ZeroPadShortcut(2, 2)
    y = shortcut(needle.Tensor(x, device=device)).numpy()
    assert y.shape == (2, 5, 3, 2)
    np.testing.assert_array_equal(y[:, :3], x[:, :, ::2, ::2])
    assert not y[:, 3:].any()
    assert shortcut.parameters() == []


@pytest.mark.parametrize("name", ["lenet5", "resnet9", "resnet20", "resnet18", "resnet50"])
def test_models_are_those_of_the_comparison_with_pytorch(name: str, device: Any) -> None:
    """Compare logits and gradients with PyTorch's model after loading its state."""
    torch = pytest.importorskip("torch")
    from apps.bench.against.torch_models import MODELS as TORCH_MODELS

    torch.manual_seed(0)
    torch.set_num_threads(1)
    theirs = TORCH_MODELS[name]().double()
    channels = 1 if name == "lenet5" else 3
    ours = build_model(name, in_channels=channels, device=device, dtype="float64")
    state = {key: value.numpy() for key, value in theirs.state_dict().items()}
    torch_mapping.from_torch_state_dict(ours, state)
    assert size(ours) == sum(p.numel() for p in theirs.parameters())
    side = 8 if issubclass(find_model(name), ResNet) else 32
    x = np.random.default_rng(0).standard_normal((3, channels, side, side))
    expected = theirs(torch.from_numpy(x))
    logits = ours(needle.Tensor(x, device=device, dtype="float64"))
    np.testing.assert_allclose(logits.numpy(), expected.detach().numpy(), rtol=1e-7, atol=1e-9)
    expected.square().sum().backward()
    (logits**2).sum().backward()
    first = ours.parameters()[0].grad.numpy().transpose(3, 2, 0, 1)
    wanted = next(theirs.parameters()).grad.numpy()
    np.testing.assert_allclose(first, wanted, rtol=1e-6, atol=1e-7 * np.abs(wanted).max())


def test_the_course_calls_them_by_position() -> None:
    assert size(ResNet9(needle.cpu(), "float32")) == 431_946
    small = MLPResNet(10, 8, 2, 3, nn.LayerNorm1d, 0.0)
    assert tuple(small(needle.Tensor(np.ones((2, 10)), device=needle.cpu())).shape) == (2, 3)


def test_unknown_model() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model 'lenet'; known: .*'lenet5'"):
        build_model("lenet")
