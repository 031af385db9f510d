"""One interface to needle and PyTorch for the measured pieces of work.

``Needle`` and ``Torch`` have the same methods. A side imports its library in its constructor, so
that a process loads only one library. Host arrays are NumPy's; images are (N, C, H, W). Products
have the precision of ``config.matmul_precision``; with bf16 on a GPU, activations are stored as
bfloat16, too.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from apps.bench.harness.settings import Settings

Step = Callable[[], Any]
Side = Any  # Needle or Torch
Host = Any  # a NumPy array

GRAPH = "CUDA graph"


class Needle:
    """needle on one of its devices; ``captured`` replays recorded training steps."""

    def __init__(self, device: str = "cpu", captured: bool = False) -> None:
        self.needle: Any = importlib.import_module("needle")
        self.models: Any = importlib.import_module("apps.models")
        self.device = self.needle.device(device)
        self.captured = captured
        self.short = self.needle.config.matmul_precision.get() == "bf16"
        np.random.seed(0)

    def tensor(self, array: Host, gradient: bool = False) -> Any:
        return self.needle.Tensor(
            array, device=self.device, dtype=array.dtype.name, requires_grad=gradient
        )

    def images(self, array: Host, gradient: bool = False) -> Any:
        """Return images with channels last in memory, as a preceding layer would leave them."""
        held = self.tensor(np.ascontiguousarray(array.transpose(0, 2, 3, 1)))
        view = self.needle.ops.permute(held, (0, 3, 1, 2)).realize_cached_data()
        return self.needle.Tensor.make_const(view, requires_grad=gradient)

    def operand(self, array: Host) -> Any:
        """Return an operand of a product, in the dtype that is fastest in the chosen precision."""
        return self._stored(self.tensor(array))

    def _stored(self, value: Any) -> Any:
        return value.astype("bfloat16") if self.short else value

    def weight(self, array: Host) -> Any:
        """Return the weight of a convolution from an array (O, C/groups, KH, KW)."""
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
        """Return a function that computes "forward", "input gradient" or "weight gradient"."""
        ops = self.needle.ops
        x, weight, grad = (self._stored(each) for each in (x, weight, grad))
        return {
            "forward": lambda: ops.conv2d(x, weight, **geometry),
            "input gradient": lambda: ops.conv2d_input_grad(grad, weight, x.shape, **geometry),
            "weight gradient": lambda: ops.conv2d_weight_grad(grad, x, weight.shape, **geometry),
        }[what]

    def forward_and_backward(
        self, function: Callable[..., Any], inputs: Sequence[Any], grad: Any
    ) -> Step:
        """Return a function that computes ``function`` and its gradient."""
        return lambda: function(*inputs).backward(grad)

    def model(self, name: str) -> Any:
        return self.models.build_model(name, device=self.device)

    def logits(self, model: Any, images: Any) -> Any:
        out = model(self._stored(images))
        return out.astype("float32") if self.short else out

    def optimizer(self, name: str, parameters: Sequence[Any]) -> Any:
        """Return an optimiser by name: "sgd" (with momentum) or "adam"."""
        if name == "adam":
            return self.needle.optim.Adam(parameters, lr=1e-3)
        return self.needle.optim.SGD(parameters, lr=1e-3, momentum=0.9, dampening=0.0)

    def training_step(self, model: Any, images: Any, labels: Any) -> Step:
        """Return a training step: forward, backward and SGD with momentum.

        In bf16 a replay may round differently from the eager step, as in apps/training/step.py.
        """
        optimizer = self.optimizer("sgd", model.parameters())
        loss_function = self.needle.nn.CrossEntropyLoss()

        def step(x: Any, y: Any) -> Any:
            loss = loss_function(self.logits(model, x), y)
            optimizer.reset_grad()
            loss.backward()
            optimizer.step()
            return loss

        state, exact = [model, optimizer, images, labels], not self.short
        taken = self.needle.capture(step, state=state, exact=exact) if self.captured else step
        return lambda: taken(images, labels)

    def inference(self, model: Any, images: Host) -> Step:
        """Return a function that maps images to logits by a model in evaluation mode."""
        taken = self.needle.capture(model, exact=False) if self.captured else model
        x = self.tensor(images)

        def call() -> Any:
            with self.needle.no_grad():
                return taken(x).numpy()

        return call

    def ready(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, compiled if this side compiles."""
        return function

    def wait(self) -> None:
        """Wait until the device has finished all work."""
        self.device.synchronize()

    def release(self) -> None:
        """Release cached memory."""
        gc.collect()
        self.device.empty_cache()


class Runtime(Needle):
    """ONNX Runtime with ``threads`` threads; it runs models that needle builds and exports."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.threads = threads
        self.runtime: Any = importlib.import_module("onnxruntime")
        self.onnx: Any = importlib.import_module("needle.onnx")

    def inference(self, model: Any, images: Host) -> Step:
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        content = self.onnx.export(model, images).SerializeToString()
        session = self.runtime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
        return lambda: session.run(None, {"input": images})


class Torch:
    """PyTorch, "eager", "channels last", "compiled" or "CUDA graph", with fused optimisers."""

    def __init__(self, mode: str, threads: int, place: str = "cpu") -> None:
        self.torch: Any = importlib.import_module("torch")
        self.torch.set_num_threads(threads)
        self.torch.manual_seed(0)
        self.mode, self.place = mode, place
        last = mode in ("channels last", GRAPH)
        self.order = {"memory_format": self.torch.channels_last} if last else {}
        self.short = None
        if place != "cpu":
            self._choose_precision()

    def _choose_precision(self) -> None:
        """Multiply in the precision of needle's products."""
        precision = importlib.import_module("needle").config.matmul_precision.get()
        backends = self.torch.backends
        backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = precision == "tf32"
        backends.cudnn.benchmark = True  # cuDNN times its algorithms and uses the fastest
        self.short = {"bf16": self.torch.bfloat16, "fp16": self.torch.float16}.get(precision)
        if self.short is not None:
            self.torch.set_autocast_dtype(self.place, self.short)
            self.torch.set_autocast_cache_enabled(False)  # the weights change at every step
        self.torch.set_autocast_enabled(self.place, self.short is not None)

    def tensor(self, array: Host, gradient: bool = False) -> Any:
        return self.torch.from_numpy(np.array(array)).to(self.place).requires_grad_(gradient)

    def operand(self, array: Host) -> Any:
        return self._stored(self.tensor(array))

    def _stored(self, value: Any) -> Any:
        """Return the value in the precision's dtype, because autocast does not cast gradients."""
        return value if self.short is None else value.to(self.short)

    def images(self, array: Host, gradient: bool = False) -> Any:
        return self.tensor(array).contiguous(**self.order).requires_grad_(gradient)

    def weight(self, array: Host) -> Any:
        return self.images(array)

    def relu(self, x: Any) -> Any:
        return self.torch.relu(x)

    def max_pool(self, x: Any) -> Any:
        return self.torch.nn.functional.max_pool2d(x, 2)

    def norm(self, channels: int) -> Any:
        return self.torch.nn.BatchNorm2d(channels).to(self.place)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.torch.nn.functional.cross_entropy(logits, labels)

    def conv2d(self, what: str, x: Any, weight: Any, grad: Any, **geometry: int) -> Step:
        x, weight, grad = (self._stored(each) for each in (x, weight, grad))
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
        return build().to(self.place, **self.order)

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

        return self._graph_of(step) if self.mode == GRAPH else step

    def _graph_of(self, step: Step) -> Step:
        """Return a function that replays the step as one CUDA graph, as "needle, captured" does."""
        cuda = self.torch.cuda
        aside = cuda.Stream()
        aside.wait_stream(cuda.current_stream())
        with cuda.stream(aside):  # the warm-up chooses algorithms and allocates memory
            for _ in range(3):
                step()
        cuda.current_stream().wait_stream(aside)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            step()
        return graph.replay

    def wait(self) -> None:
        if self.place != "cpu":
            self.torch.cuda.synchronize()

    def ready(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.torch.compile(function) if self.mode == "compiled" else function

    def release(self) -> None:
        gc.collect()


CONTESTANTS: dict[str, Callable[[Settings], Side]] = {
    "needle": lambda settings: Needle(settings.device),
    "needle, captured": lambda settings: Needle(settings.device, captured=True),
    **{
        f"PyTorch, {mode}": lambda settings, mode=mode: Torch(
            mode, settings.threads, place(settings)
        )
        for mode in ("eager", "channels last", "compiled", GRAPH)
    },
    "ONNX Runtime": lambda settings: Runtime(settings.threads),
}
"""Constructors of the sides, keyed by contestant name."""

OURS = ("needle", "needle, captured")
EAGER = ("PyTorch, eager", "PyTorch, channels last")
COMPILED, GRAPHED = "PyTorch, compiled", f"PyTorch, {GRAPH}"
RUNTIME = "ONNX Runtime"
PACKAGES = {"PyTorch": ("torch",), RUNTIME: ("onnxruntime", "onnx")}
"""The modules that each library needs in addition to needle."""


def place(settings: Settings) -> str:
    """Return PyTorch's name of the device; the emulated GPU is compared with its CPU."""
    return settings.device if settings.device.partition(":")[0] == "cuda" else "cpu"


def is_peer(contestant: str) -> bool:
    """Return True if the contestant is not needle."""
    return contestant.partition(",")[0] in PACKAGES


def takes_part(contestant: str, settings: Settings) -> bool:
    """Return True if the contestant exists on the device of the run, and was not left out."""
    if contestant in (GRAPHED, RUNTIME):
        return (contestant == GRAPHED) == (settings.device != "cpu")
    return contestant != COMPILED or (settings.compiled and not settings.quick)
