"""One interface to needle and PyTorch with everything that a piece of work needs.

A side imports its library in its constructor, so that a process loads only one library.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

Step = Callable[[], Any]
Host = Any  # a NumPy array


class Side(Protocol):
    """Tensors made of NumPy arrays, and operations on them; images are (N, C, H, W)."""

    def tensor(self, array: Host, gradient: bool = False) -> Any: ...
    def images(self, array: Host, gradient: bool = False) -> Any:
        """Return images in the memory order that is fastest for this side."""

    def weight(self, array: Host) -> Any:
        """Return the weight of a convolution from an array (O, C/groups, KH, KW)."""

    def relu(self, x: Any) -> Any: ...
    def max_pool(self, x: Any) -> Any:
        """Return the 2 x 2 maximum pooling of x."""

    def norm(self, channels: int) -> Any:
        """Return a batch norm layer in training mode."""

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        """Return the mean cross entropy of a batch."""

    def conv2d(self, what: str, x: Any, weight: Any, grad: Any, **geometry: int) -> Step:
        """Return a call of one of "forward", "input gradient", "weight gradient"."""

    def forward_and_backward(
        self, function: Callable[..., Any], inputs: Sequence[Any], grad: Any
    ) -> Step:
        """Return a call of the function and its gradient."""

    def model(self, name: str) -> Any: ...
    def parameters(self, model: Any) -> list[Any]: ...
    def optimizer(self, name: str, parameters: Sequence[Any]) -> Any:
        """Return the optimiser "sgd" (with momentum) or "adam"."""

    def training_step(self, model: Any, images: Any, labels: Any) -> Step:
        """Return a training step: forward, backward and SGD with momentum."""

    def ready(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, compiled if this side compiles."""

    def release(self) -> None:
        """Release cached memory."""


class Needle:
    """needle on one of its devices; ``captured`` replays recorded training steps."""

    exact = True
    """Captured training steps keep the bits of the eager ones."""

    def __init__(self, device: str = "cpu", captured: bool = False) -> None:
        self.needle: Any = importlib.import_module("needle")
        self.models: Any = importlib.import_module("apps.models")
        self.device = self.needle.device(device)
        self.captured = captured
        np.random.seed(0)

    def tensor(self, array: Host, gradient: bool = False) -> Any:
        return self.needle.Tensor(
            array, device=self.device, dtype=array.dtype.name, requires_grad=gradient
        )

    def images(self, array: Host, gradient: bool = False) -> Any:
        """Return images with channels last in memory, as from a preceding layer."""
        held = self.tensor(np.ascontiguousarray(array.transpose(0, 2, 3, 1)))
        view = self.needle.ops.permute(held, (0, 3, 1, 2)).realize_cached_data()
        return self.needle.Tensor.make_const(view, requires_grad=gradient)

    def weight(self, array: Host) -> Any:
        held = self.tensor(np.ascontiguousarray(array.transpose(2, 3, 1, 0)))
        return self.needle.ops.permute(held, (3, 2, 0, 1))

    def relu(self, x: Any) -> Any:
        return self.needle.relu(x)

    def max_pool(self, x: Any) -> Any:
        return self.needle.ops.max_pool2d(x, 2)

    def norm(self, channels: int) -> Any:
        return self.needle.nn.BatchNorm2d(channels, device=self.device)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.needle.nn.CrossEntropyLoss()(logits, labels)

    def conv2d(self, what: str, x: Any, weight: Any, grad: Any, **geometry: int) -> Step:
        ops = self.needle.ops
        return {
            "forward": lambda: ops.conv2d(x, weight, **geometry),
            "input gradient": lambda: ops.conv2d_input_grad(grad, weight, x.shape, **geometry),
            "weight gradient": lambda: ops.conv2d_weight_grad(grad, x, weight.shape, **geometry),
        }[what]

    def forward_and_backward(
        self, function: Callable[..., Any], inputs: Sequence[Any], grad: Any
    ) -> Step:
        return lambda: function(*inputs).backward(grad)

    def model(self, name: str) -> Any:
        return self.models.build_model(name, device=self.device)

    def logits(self, model: Any, images: Any) -> Any:
        return model(images)

    def parameters(self, model: Any) -> list[Any]:
        return list(model.parameters())

    def optimizer(self, name: str, parameters: Sequence[Any]) -> Any:
        if name == "adam":
            return self.needle.optim.Adam(parameters, lr=1e-3)
        return self.needle.optim.SGD(parameters, lr=1e-3, momentum=0.9, dampening=0.0)

    def training_step(self, model: Any, images: Any, labels: Any) -> Step:
        taken = self.step_of(model)
        return lambda: taken(images, labels)

    def step_of(self, model: Any) -> Callable[[Any, Any], Any]:
        """Return a training step on any batch, captured if this side captures."""
        optimizer = self.optimizer("sgd", model.parameters())
        loss_function = self.needle.nn.CrossEntropyLoss()

        def step(x: Any, y: Any) -> Any:
            loss = loss_function(self.logits(model, x), y)
            optimizer.reset_grad()
            loss.backward()
            optimizer.step()
            return loss

        return self.needle.capture(step, exact=self.exact) if self.captured else step

    def inference(self, model: Any, images: Host) -> Step:
        """Return a call of a model in evaluation mode, from the images to an array of logits."""
        taken = self.needle.capture(model, exact=False) if self.captured else model
        x = self.tensor(images)

        def call() -> Any:
            with self.needle.no_grad():
                return taken(x).numpy()

        return call

    def ready(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def release(self) -> None:
        gc.collect()
        if self.device.name != "cpu_numpy":
            native = importlib.import_module("needle.backend_ndarray.ndarray_backend_cpu")
            native.empty_cache()


def plain_kernels() -> str:
    """Register a device that has only the required kernels in C++; the rest are definitions."""
    needle: Any = importlib.import_module("needle")
    native = importlib.import_module("needle.backend_ndarray.ndarray_backend_cpu")
    base = importlib.import_module("needle.backends.base")
    names = [name for name in (*base.REQUIRED, *base.SERVICES) if hasattr(native, name)]
    members = {name: getattr(native, name) for name in names}
    needle.device("cpu")  # applies the number of threads
    needle.backends.register("cpu_plain", type("Plain", (base.Backend,), members)())
    return "cpu_plain"


class Torch:
    """PyTorch, "eager", "channels last" or "compiled", with fused optimisers."""

    def __init__(self, mode: str, threads: int) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.torch.set_num_threads(threads)
        self.torch.manual_seed(0)
        self.mode = mode
        last = mode == "channels last"
        self.order = {"memory_format": self.torch.channels_last} if last else {}

    def tensor(self, array: Host, gradient: bool = False) -> Any:
        return self.torch.from_numpy(np.array(array)).requires_grad_(gradient)

    def images(self, array: Host, gradient: bool = False) -> Any:
        return self.tensor(array).contiguous(**self.order).requires_grad_(gradient)

    def weight(self, array: Host) -> Any:
        return self.images(array)

    def relu(self, x: Any) -> Any:
        return self.torch.relu(x)

    def max_pool(self, x: Any) -> Any:
        return self.torch.nn.functional.max_pool2d(x, 2)

    def norm(self, channels: int) -> Any:
        return self.torch.nn.BatchNorm2d(channels)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.torch.nn.functional.cross_entropy(logits, labels)

    def conv2d(self, what: str, x: Any, weight: Any, grad: Any, **geometry: int) -> Step:
        stride, padding, groups = (geometry[key] for key in ("stride", "padding", "groups"))
        if what == "forward":
            convolve = self.torch.nn.functional.conv2d
            return lambda: convolve(x, weight, None, stride, padding, 1, groups)
        wanted = [what == "input gradient", what == "weight gradient", False]
        places = ([stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups, wanted)
        backward = self.torch.ops.aten.convolution_backward
        return lambda: backward(grad, x, weight, None, *places)

    def forward_and_backward(
        self, function: Callable[..., Any], inputs: Sequence[Any], grad: Any
    ) -> Step:
        wanted = [x for x in inputs if x.requires_grad]
        if isinstance(function, self.torch.nn.Module):
            wanted += list(function.parameters())
        taken = self.ready(function)
        return lambda: self.torch.autograd.grad(taken(*inputs), wanted, grad)

    def model(self, name: str) -> Any:
        build = importlib.import_module("apps.bench.against.torch_models").MODELS[name]
        return build().to(**self.order)

    def parameters(self, model: Any) -> list[Any]:
        return list(model.parameters())

    def optimizer(self, name: str, parameters: Sequence[Any]) -> Any:
        optim = self.torch.optim
        if name == "adam":
            return optim.Adam(parameters, lr=1e-3, fused=True)
        return optim.SGD(parameters, lr=1e-3, momentum=0.9, fused=True)

    def training_step(self, model: Any, images: Any, labels: Any) -> Step:
        optimizer = self.optimizer("sgd", list(model.parameters()))
        loss_function = self.torch.nn.CrossEntropyLoss()
        forward = self.ready(model)

        def step() -> Any:
            loss = loss_function(forward(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    def ready(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.torch.compile(function) if self.mode == "compiled" else function

    def release(self) -> None:
        gc.collect()


COMPILED = "PyTorch, compiled"
CONTESTANTS: dict[str, Callable[[int], Side]] = {
    "needle": lambda threads: Needle(),
    "needle, captured": lambda threads: Needle(captured=True),
    "needle, NumPy backend": lambda threads: Needle("cpu_numpy"),
    "needle, plain kernels": lambda threads: Needle(plain_kernels()),
    "PyTorch, eager": lambda threads: Torch("eager", threads),
    "PyTorch, channels last": lambda threads: Torch("channels last", threads),
    COMPILED: lambda threads: Torch("compiled", threads),
}
"""Constructors of the sides by name; each takes a number of threads."""

OURS = ("needle", "needle, captured")
SLOW = ("needle, NumPy backend", "needle, plain kernels")
"""Variants of needle for learners to compare their kernels with; never counted as its best."""


def is_peer(contestant: str) -> bool:
    """Return True if the contestant is not needle."""
    return not contestant.startswith("needle")
