"""Tests of pretrained weights: torchvision's files load unchanged and give PyTorch's logits.

torchvision is not needed: the same networks are written here in PyTorch with its names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from apps.models import build_model, load_weights
from needle.errors import CheckpointError

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
t = torch.nn


class Block(t.Module):
    """torchvision's BasicBlock (two 3 x 3) or Bottleneck (1 x 1, 3 x 3 with the stride, 1 x 1)."""

    def __init__(self, inputs: int, channels: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = channels * 4 if bottleneck else channels
        sizes = [1, 3, 1] if bottleneck else [3, 3]
        strides = [1, stride, 1] if bottleneck else [stride, 1]
        widths = [inputs, *[channels] * (len(sizes) - 1), outputs]
        self.count = len(sizes)
        for i, (size, step) in enumerate(zip(sizes, strides, strict=True), start=1):
            conv = t.Conv2d(widths[i - 1], widths[i], size, step, size // 2, bias=False)
            setattr(self, f"conv{i}", conv)
            setattr(self, f"bn{i}", t.BatchNorm2d(widths[i]))
        self.downsample = None
        if stride != 1 or inputs != outputs:
            shortcut = t.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = t.Sequential(shortcut, t.BatchNorm2d(outputs))

    def forward(self, x: Any) -> Any:
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.count:
                y = torch.relu(y)
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class TorchResNet(t.Module):
    def __init__(self, depths: tuple[int, ...], bottleneck: bool, classes: int) -> None:
        super().__init__()
        self.conv1 = t.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = t.BatchNorm2d(64)
        inputs = 64
        for stage, depth in enumerate(depths):
            blocks, channels = [], 64 << stage
            for i in range(depth):
                blocks.append(Block(inputs, channels, 2 if stage and not i else 1, bottleneck))
                inputs = channels * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", t.Sequential(*blocks))
        self.fc = t.Linear(inputs, classes)

    def forward(self, x: Any) -> Any:
        x = t.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in (1, 2, 3, 4):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}


def torch_resnet(depth: int, classes: int = 1000) -> Any:
    torch.manual_seed(0)
    model = TorchResNet(DEPTHS[depth], depth == 50, classes)
    for module in model.modules():  # statistics as after training, other than 0 and 1
        if isinstance(module, t.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.8, 1.2)
    return model.eval()


@pytest.mark.parametrize("depth", [18, 34, 50])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_files_of_torchvision_give_pytorchs_logits(tmp_path: Path, depth: int, suffix: str) -> None:
    if suffix == ".pth" and depth != 18:
        pytest.skip("the format does not depend on the depth")
    theirs, path = torch_resnet(depth), tmp_path / f"resnet{suffix}"
    if suffix == ".pth":
        torch.save(theirs.state_dict(), path)
    else:
        needle.io.save(path, {k: v.numpy() for k, v in theirs.state_dict().items()})
    ours = build_model(f"resnet{depth}_imagenet", num_classes=1000, device=needle.cpu())
    load_weights(ours, path)
    ours.eval()
    x = np.random.default_rng(0).standard_normal((2, 3, 64, 64)).astype(np.float32)
    with torch.no_grad(), needle.no_grad():
        expected = theirs(torch.from_numpy(x)).numpy()
        logits = ours(needle.Tensor(x, device=needle.cpu())).numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_our_own_files_load_too(tmp_path: Path) -> None:
    ours, again = (build_model("lenet5", device=needle.cpu()) for _ in range(2))
    needle.io.save(tmp_path / "weights.safetensors", ours.state_dict())
    needle.io.save_checkpoint(tmp_path / "checkpoint.safetensors", model=ours)
    for name in ("weights", "checkpoint"):
        for p in again.parameters():
            p.data = p * 0.0
        load_weights(again, tmp_path / f"{name}.safetensors")
        for a, b in zip(ours.parameters(), again.parameters(), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    with pytest.raises(CheckpointError, match=r"no file at .*w\.pth"):
        load_weights(build_model("lenet5"), path)
    path.write_bytes(b"no such file")
    with pytest.raises(CheckpointError, match=r"w\.pth is no PyTorch file of named tensors"):
        load_weights(build_model("lenet5"), path)
    torch.save(torch_resnet(18, 7).state_dict(), path)
    with pytest.raises(CheckpointError, match=r"2 of another shape, such as fc.weight \(7, 512\) "):
        load_weights(build_model("resnet18_imagenet", num_classes=1000), path)


def test_only_matching_arrays_are_loaded_if_asked(tmp_path: Path) -> None:
    theirs, path = torch_resnet(18, 7), tmp_path / "w.pth"
    torch.save(theirs.state_dict(), path)
    ours = build_model("resnet18_imagenet", num_classes=5, device=needle.cpu())
    head, count = ours.state_dict()["fc.weight"].numpy(), len(ours.state_dict())
    assert load_weights(ours, path, only_matching=True) == count - 2
    found = ours.state_dict()
    np.testing.assert_array_equal(found["fc.weight"].numpy(), head)
    np.testing.assert_array_equal(
        found["conv1.weight"].numpy(), theirs.conv1.weight.detach().numpy().transpose(2, 3, 1, 0)
    )
