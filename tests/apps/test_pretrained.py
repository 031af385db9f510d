"""Test pretrained weights: torchvision's files load unchanged and give PyTorch's logits.

torchvision is not needed: apps/bench/against has the same networks with the same names.
"""

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


def torch_resnet(depth: int, classes: int = 1000) -> Any:
    """Return torchvision's ResNet: the benchmark's model with the ImageNet stem and head."""
    from apps.bench.against.torch_models import MODELS

    torch.manual_seed(0)
    model: Any = MODELS[f"resnet{depth}"]()
    model.conv1 = t.Conv2d(3, 64, 7, 2, 3, bias=False)
    model.relu = t.Sequential(t.ReLU(), t.MaxPool2d(3, 2, 1))
    model.fc = t.Linear(model.fc.in_features, classes)
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
    with pytest.raises(CheckpointError, match=r"w\.pth is not a PyTorch file of named tensors"):
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
