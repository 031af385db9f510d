"""A training step of LeNet agrees with PyTorch to rounding: loss, gradients, updated state."""

import numpy as np
import pytest

import needle as ndl
from needle import nn
from needle.nn import torch_mapping

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


class TorchLeNet(torch.nn.Module):
    """A net with more kinds of layers than LeNet-5: two poolings, batch norm, grouped conv."""

    def __init__(self) -> None:
        super().__init__()
        t = torch.nn
        self.conv1 = t.Conv2d(1, 6, 5, padding=2)
        self.norm1 = t.BatchNorm2d(6)
        self.conv2 = t.Conv2d(6, 8, (3, 2), stride=(2, 1), groups=2, bias=False)
        self.fc1 = t.Linear(8 * 3 * 3, 20)
        self.norm2 = t.BatchNorm1d(20)
        self.fc2 = t.Linear(20, 10)

    def forward(self, x):
        f = torch.nn.functional
        x = f.max_pool2d(f.relu(self.norm1(self.conv1(x))), 2)
        x = f.avg_pool2d(f.gelu(self.conv2(x)), 2, stride=1, padding=1)[:, :, :3, :3]
        return self.fc2(self.norm2(torch.tanh(self.fc1(x.flatten(1)))))


class LeNet(nn.Module):
    """The net of ``TorchLeNet``, built from needle's layers."""

    def __init__(self, device) -> None:
        super().__init__()
        self.conv1 = nn.Conv(1, 6, 5, device=device)
        self.norm1 = nn.BatchNorm2d(6, device=device)
        self.conv2 = nn.Conv2d(6, 8, (3, 2), (2, 1), groups=2, bias=False, device=device)
        self.fc1 = nn.Linear(8 * 3 * 3, 20, device=device)
        self.norm2 = nn.BatchNorm1d(20, device=device)
        self.fc2 = nn.Linear(20, 10, device=device)

    def forward(self, x):
        x = ndl.max_pool2d(ndl.relu(self.norm1(self.conv1(x))), 2)
        x = ndl.avg_pool2d(ndl.gelu(self.conv2(x)), 2, stride=1, padding=1)[:, :, :3, :3]
        return self.fc2(self.norm2(ndl.tanh(self.fc1(nn.Flatten()(x)))))


def as_numpy(state):
    return {name: value.detach().numpy() for name, value in state.items()}


def assert_same(ours, theirs, rtol, atol):
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        scale = max(1.0, float(np.abs(value).max())) if value.size else 1.0
        np.testing.assert_allclose(ours[name], value, rtol=rtol, atol=atol * scale, err_msg=name)


OPTIMIZERS = {
    "sgd": (
        lambda ps: ndl.optim.SGD(ps, lr=0.05, momentum=0.9, weight_decay=1e-3, dampening=0.0),
        lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, weight_decay=1e-3),
    ),
    "nesterov": (
        lambda ps: ndl.optim.SGD(ps, lr=0.05, momentum=0.9, nesterov=True),
        lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, nesterov=True),
    ),
    # a large eps, because m / sqrt(v) of a gradient near zero magnifies rounding without bound
    "adam": (
        lambda ps: ndl.optim.Adam(ps, lr=0.01, weight_decay=1e-3, eps=1e-2),
        lambda ps: torch.optim.Adam(ps, lr=0.01, weight_decay=1e-3, eps=1e-2),
    ),
    "adamw": (
        lambda ps: ndl.optim.AdamW(ps, lr=0.01, weight_decay=0.1, eps=1e-2),
        lambda ps: torch.optim.AdamW(ps, lr=0.01, weight_decay=0.1, eps=1e-2),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    ("dtype", "steps", "rtol", "atol"),
    [("float64", 3, 1e-8, 1e-11), ("float32", 1, 2e-4, 5e-6)],
    ids=["float64", "float32"],
)
def test_training_steps(dtype, steps, rtol, atol, name, device):
    torch.manual_seed(0)
    theirs, ours = TorchLeNet().to(getattr(torch, dtype)), LeNet(device).to(dtype)
    for layer in (
        theirs.norm1,
        theirs.norm2,
    ):  # PyTorch stores the unbiased variance, needle the biased one
        layer.momentum = 0.0
    ours.norm1.momentum = ours.norm2.momentum = 0.0
    torch_mapping.from_torch_state_dict(ours, as_numpy(theirs.state_dict()))
    our_optimizer = OPTIMIZERS[name][0](ours.parameters())
    their_optimizer = OPTIMIZERS[name][1](theirs.parameters())
    rng = np.random.default_rng(0)
    for _ in range(steps):
        x = rng.standard_normal((8, 1, 12, 12)).astype(dtype)
        ids = rng.integers(0, 10, 8)
        loss = ndl.cross_entropy(
            ours(ndl.Tensor(x, device=device, dtype=dtype)), ids, label_smoothing=0.1
        )
        expected = torch.nn.functional.cross_entropy(
            theirs(torch.from_numpy(x)), torch.from_numpy(ids), label_smoothing=0.1
        )
        assert float(loss.numpy().reshape(())) == pytest.approx(expected.item(), rel=1e-5)
        loss.backward()
        their_optimizer.zero_grad()
        expected.backward()
        wanted = {name: p.grad.numpy() for name, p in theirs.named_parameters()}
        assert_same(gradients(ours), wanted, rtol, atol)
        our_optimizer.step()
        their_optimizer.step()
    state = as_numpy(theirs.state_dict())
    for counter in ("norm1.num_batches_tracked", "norm2.num_batches_tracked"):
        state[counter] = np.array(0)
    assert_same(torch_mapping.to_torch_state_dict(ours), state, rtol, atol)


def gradients(model):
    """Return the gradients in PyTorch's layout, mapped like the parameters."""
    holder = LeNet(model.fc1.weight.device).to(model.fc1.weight.dtype)
    for (_, into), (_, p) in zip(holder.named_parameters(), model.named_parameters(), strict=True):
        into.data = p.grad.data
    names = {name for name, _ in model.named_parameters()}
    mapped = torch_mapping.to_torch_state_dict(holder)
    return {name: value for name, value in mapped.items() if name in names}
