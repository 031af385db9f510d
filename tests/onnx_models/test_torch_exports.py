"""Import PyTorch's exports of building blocks of image classifiers; results equal PyTorch's."""

import io
import warnings
from typing import Any

import numpy as np
import pytest

import needle
from needle.onnx import convert

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional


class Fire(nn.Module):
    """SqueezeNet's block: two convolutions of a squeezed image, concatenated; ceil-mode pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.squeeze = nn.Conv2d(3, 16, 7, 2), nn.Conv2d(16, 4, 1)
        self.small, self.large = nn.Conv2d(4, 8, 1), nn.Conv2d(4, 8, 3, padding=1)
        self.pool, self.out = nn.MaxPool2d(3, 2, ceil_mode=True), nn.AdaptiveAvgPool2d((1, 1))

    def forward(self, x: Any) -> Any:
        x = functional.relu(self.squeeze(self.pool(functional.relu(self.start(x)))))
        x = torch.cat([functional.relu(self.small(x)), functional.relu(self.large(x))], 1)
        return torch.flatten(self.out(functional.dropout(x, 0.5, self.training)), 1)


class Dense(nn.Module):
    """DenseNet's block: each layer reads the results of all layers before it."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(3 + 4 * i) for i in range(3))
        self.layers = nn.ModuleList(nn.Conv2d(3 + 4 * i, 4, 3, padding=1) for i in range(3))

    def forward(self, x: Any) -> Any:
        parts = [x]
        for norm, layer in zip(self.norms, self.layers, strict=True):
            parts.append(layer(functional.relu(norm(torch.cat(parts, 1)))))
        x = functional.avg_pool2d(torch.cat(parts, 1), 2, 2)
        return torch.flatten(functional.adaptive_avg_pool2d(x, (1, 1)), 1)


class Inverted(nn.Module):
    """MobileNetV3's block: depthwise convolution, squeeze and excitation, hard swish."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 5, 2, 2, groups=16)
        self.norm, self.narrow = nn.BatchNorm2d(16, eps=1e-3), nn.Conv2d(16, 16, 1)
        self.out = nn.Sequential(nn.Linear(16, 12), nn.Hardswish(), nn.Dropout(), nn.Linear(12, 5))

    def forward(self, x: Any) -> Any:
        x = functional.hardswish(self.norm(self.deep(functional.hardswish(self.wide(x)))))
        share = functional.hardsigmoid(self.narrow(functional.adaptive_avg_pool2d(x, 1)))
        return self.out(torch.flatten(functional.adaptive_avg_pool2d(x * share, 1), 1))


class Bottleneck(nn.Module):
    """ResNet-50's block: three convolutions and a shortcut with stride."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 1, bias=False), nn.Conv2d(8, 8, 3, 2, 1)
        self.third, self.short = nn.Conv2d(8, 16, 1), nn.Conv2d(3, 16, 1, 2)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Any) -> Any:
        y = functional.relu(self.second(functional.relu(self.norm(self.first(x)))))
        y = functional.relu(self.third(y) + self.short(x))
        return functional.max_pool2d(y, 3, 2, 1).mean([2, 3])


def plain() -> Any:
    """Return VGG's layers: convolutions, pooling, and linear layers with two-output dropout."""
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2, 2)),
        *(nn.AdaptiveAvgPool2d((4, 4)), nn.Flatten(), nn.Linear(128, 16), nn.ReLU(True)),
        *(nn.Dropout(), nn.Linear(16, 5)),
    )


class Words(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 6)
        self.layers = getattr(nn, kind)(6, 5, 2, batch_first=True, bidirectional=True)

    def forward(self, ids: Any) -> Any:
        return self.layers(self.embed(ids))[0]


class Decoder(nn.Module):
    """A network from image to image: upsampling, transposed convolution, padding."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 3, 2, 1), nn.ConvTranspose2d(8, 3, 4, 2, 1)
        self.norm, self.slope = nn.GroupNorm(2, 8), nn.PReLU(8)

    def forward(self, x: Any) -> Any:
        y = self.slope(self.norm(self.down(x)))
        z = functional.interpolate(y, scale_factor=2, mode="bilinear")[:, :3]
        z = z + functional.interpolate(y, scale_factor=2, mode="nearest")[:, -3:]
        z = functional.pad(z + self.up(y), (1, 1, 2, 0), "reflect")
        return torch.where(z > 0, z, z.std(1, keepdim=True))


IMAGES, IDS = (3, 32, 32), (7,)
MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "vgg": (plain, IMAGES),
    "squeezenet": (Fire, IMAGES),
    "densenet": (Dense, IMAGES),
    "mobilenet": (Inverted, IMAGES),
    "resnet": (Bottleneck, IMAGES),
    "decoder": (Decoder, IMAGES),
    "rnn": (lambda: Words("RNN"), IDS),
    "lstm": (lambda: Words("LSTM"), IDS),
    "gru": (lambda: Words("GRU"), IDS),
}


@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_pytorch(name: str, opset: int) -> None:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make().eval()

    def example(rows: int) -> Any:
        return torch.randint(0, 30, (rows, 7)) if shape == IDS else torch.randn(rows, *shape)

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (example(2),),
            file,
            dynamo=False,
            opset_version=opset,
            input_names=["x"],
            dynamic_axes={"x": {0: "rows"}},
        )
    proto = onnx.load_model_from_string(file.getvalue())
    again = convert(proto, needle.cpu())
    x = example(3)
    with torch.no_grad(), needle.no_grad():
        expected = model(x).numpy()
        found = again(needle.Tensor(x.numpy(), device=needle.cpu(), dtype=x.numpy().dtype)).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6 * np.abs(expected).max())
