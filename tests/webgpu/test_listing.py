"""Test that networks compiled for a browser run on an adapter here and match the CPU."""

from typing import Any

import numpy as np
import pytest

import needle
from apps.models import build_model
from apps.prediction.classifier import Classifier
from apps.prediction.gpu_program import program_of
from needle.backends.base import View
from needle.backends.webgpu.listing import ListingBackend
from needle.dtypes import float32
from needle.errors import DeviceError

pytestmark = pytest.mark.skipif(
    needle.backend_selection.BACKEND != "nd", reason="needs needle's own arrays"
)
CLASSES = [str(i) for i in range(10)]


def classifier_of(kind: str, data: str) -> Classifier:
    np.random.seed(0)
    channels = 1 if data == "digits" else 3
    model = build_model(kind, in_channels=channels, num_classes=10, device=needle.cpu())
    for name, value in model.state_dict().items():
        if "running" in name or name.endswith("bias"):
            values = 0.5 + np.random.rand(*value.shape)
            value.cached_data[...] = needle.Tensor(values, device=needle.cpu()).cached_data
    return Classifier.of(model, CLASSES, data, (32, 32))


def run(program: dict[str, Any], weights: bytes, picture: Any, gpu: Any) -> list[Any]:
    """Run a listed program on an adapter; return each layer's result and the probabilities."""
    queue = gpu.backend.queue
    buffers = [queue.take(size // 4) for size in program["sizes"]]
    for number, offset, first, last in program["weights"]:
        queue.write(buffers[number], offset, weights[first:last])
    given = program["input"]
    queue.write(buffers[given["buffer"]], 4 * given["offset"], picture.tobytes())

    def place(number: int, shape: Any, strides: Any, offset: int) -> View:
        return View(buffers[number], tuple(shape), tuple(strides), offset, float32)

    for command in program["commands"]:
        if "target" in command:
            count = (program["sizes"][command["origin"]] // 4,)
            ends = [place(command[name], count, (1,), 0) for name in ("origin", "target")]
            gpu.backend.copy(*ends)
        else:
            bound = [buffers[number] for number in command["buffers"]]
            assert len(set(command["buffers"])) == len(bound), "a browser refuses this"
            source = program["sources"][command["source"]]
            queue.dispatch(source, command["parameters"], bound, command["workgroups"])
    return [
        gpu.backend.download(place(p["buffer"], p["shape"], p["strides"], p["offset"]))
        for p in [*program["layers"], program["output"]]
    ]


@pytest.mark.parametrize(
    ("kind", "data"), [("lenet5", "digits"), ("resnet9", "cifar10"), ("resnet20", "cifar10")]
)
def test_a_listed_network_computes_what_the_cpu_computes(kind: str, data: str) -> None:
    gpu = needle.webgpu()
    if not gpu.enabled():
        pytest.skip(gpu.why())
    classifier = classifier_of(kind, data)
    program, weights = program_of(classifier)
    picture = np.random.rand(*classifier.input_shape).astype("float32")
    for _ in range(2):
        *layers, found = run(program, weights, picture, gpu)
    (best,) = classifier.predict(picture, count=10)
    shares = dict(zip(best.classes, best.probabilities, strict=True))
    np.testing.assert_allclose(found[0], [shares[name] for name in CLASSES], rtol=1e-4, atol=1e-6)
    maps = classifier.feature_maps(picture[0], layers=100)
    listed = {place["name"]: values for place, values in zip(program["layers"], layers)}
    assert len(maps) >= 2
    for name, values in maps.items():
        np.testing.assert_allclose(listed[name][0], values, rtol=1e-3, atol=1e-4)


def test_what_a_list_cannot_hold_is_refused() -> None:
    device = needle.ndarray.BackendDevice("webgpu_listing", ListingBackend())
    x = needle.ndarray.array(np.ones((2, 3), "float32"), device=device)
    y = x + x
    with pytest.raises(DeviceError, match="cannot read values while it is recorded"):
        y.numpy()
    with pytest.raises(DeviceError, match="cannot overwrite a kernel's result"):
        device.backend.upload(np.zeros((2, 3), "float32"), y.view)
