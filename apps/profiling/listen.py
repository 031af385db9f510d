"""Measure the layers and kernels of a training step. Called by run.py and profile_layers.py.

Timing functions replace the kernels of the Backend instance, as in needle.capture, and the
``forward`` of each leaf module, so code that is not profiled is not slowed down. In the backward
pass, a hook on every node of the graph reports which layer's gradient starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import needle
from needle import nn
from needle.backends.base import OPTIONAL, REQUIRED, Backend, provides
from needle.nn.fusion import transparent

from .cost import bytes_moved, operations, views

FORWARD, BACKWARD, STEP = "forward", "backward", "optimizer"
OTHER, LOSS = "(between layers)", "loss"


@dataclass(frozen=True)
class Call:
    """A kernel call: its start in seconds since the step's start, its duration, and its work."""

    kernel: str
    layer: str
    phase: str
    start: float
    seconds: float
    operations: int
    bytes: int
    shapes: str


@dataclass(frozen=True)
class Span:
    """A period of time that belongs to one layer, Python included."""

    layer: str
    phase: str
    start: float
    seconds: float


@dataclass
class Profile:
    """The calls and spans of one step. kinds: class and options of each layer, by its name."""

    kinds: dict[str, str]
    calls: list[Call] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    seconds: float = 0.0


class Listener:
    """The recorder of a step: the current layer and phase, and all calls and spans so far."""

    def __init__(self, kinds: dict[str, str], backend: Backend) -> None:
        self.profile, self.backend = Profile(kinds), backend
        self.layer, self.phase = OTHER, FORWARD
        self.owners: dict[Any, str] = {}
        """The layer that made each node of the graph, until the backward pass starts."""
        self.began = self.since = time.perf_counter()

    def turn(self, layer: str, phase: str) -> None:
        """Attribute the time from now on to this layer and phase."""
        if (layer, phase) == (self.layer, self.phase):
            return
        now = time.perf_counter()
        span = Span(self.layer, self.phase, self.since - self.began, now - self.since)
        self.profile.spans.append(span)
        self.layer, self.phase, self.since = layer, phase, now

    def kernel(self, name: str) -> Callable[..., Any]:
        """Return a function that calls the backend's function and times it."""
        function = getattr(self.backend, name)

        def timed(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            result = function(*args, **options)
            self.backend.synchronize()
            seconds = time.perf_counter() - start
            shapes = " ".join("x".join(map(str, view.shape)) for view in views(args))
            self.profile.calls.append(
                Call(
                    f"{name} {args[0]}" if args and isinstance(args[0], str) else name,
                    self.layer,
                    self.phase,
                    start - self.began,
                    seconds,
                    operations(name, args),
                    bytes_moved(args),
                    shapes,
                )
            )
            return result

        return timed

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls a method of a leaf module and times it."""

        @transparent
        def timed(*args: Any, **options: Any) -> Any:
            before = self.layer
            self.turn(name, FORWARD)
            result = function(*args, **options)
            self._own(result, args, name)
            self.turn(before, FORWARD)
            return result

        return timed

    def _own(self, result: Any, inputs: tuple[Any, ...], name: str) -> None:
        """Attribute the nodes between a layer's inputs and its result to the layer."""
        left = [result]
        while left:
            node = left.pop()
            if any(node is given for given in inputs) or node in self.owners or node.op is None:
                continue
            self.owners[node] = name
            left.extend(node.inputs)

    def watch_backward(self, loss: needle.Tensor) -> None:
        """Put a hook on every node that ``loss`` depends on."""
        for node in needle.autograd.find_topo_sort([loss]):
            if node.requires_grad and node.op is not None:
                node.register_hook(self._announce(self.owners.get(node, OTHER)))
        self.owners.clear()  # hooks keep values alive, so remove them

    def _announce(self, layer: str) -> Callable[[Any], None]:
        return lambda grad: self.turn(layer, BACKWARD)


def profile_step(
    model: nn.Module,
    images: needle.Tensor,
    labels: needle.Tensor,
    optimizer: needle.optim.Optimizer | None = None,
    warm_up: int = 1,
) -> Profile:
    """Return the profile of the forward and backward pass and of the optimiser's step, if given.

    ``warm_up`` steps come first, untimed. The model is in training mode and changes as in training.
    images: (N, C, H, W). labels: (N,).
    """
    loss_function = nn.CrossEntropyLoss()
    for _ in range(warm_up):
        loss_function(model(images), labels).backward()
        if optimizer is not None:
            optimizer.step()
    leaves = _leaves(model, loss_function)
    listener = Listener(_kinds(leaves), images.device.backend)
    with _listening(listener, leaves):
        loss = loss_function(model(images), labels)
        listener.watch_backward(loss)
        listener.turn(OTHER, BACKWARD)
        loss.backward()
        if optimizer is not None:
            listener.turn(OTHER, STEP)
            optimizer.step()
        listener.turn("", "")
    listener.profile.seconds = listener.since - listener.began  # the end of the last assigned span
    return listener.profile


def profile_inference(model: nn.Module, images: needle.Tensor, labels: needle.Tensor) -> Profile:
    """Return the profile of a forward pass and the loss in evaluation mode, without a graph.

    An untimed pass comes first. images: (N, C, H, W). labels: (N,).
    """
    loss_function, before = nn.CrossEntropyLoss(), model.training
    leaves = _leaves(model, loss_function)
    listener = Listener(_kinds(leaves), images.device.backend)
    model.eval()
    try:
        with needle.no_grad():
            loss_function(model(images), labels)
            with _listening(listener, leaves):
                loss_function(model(images), labels)
                listener.turn("", "")
    finally:
        model.train(before)
    listener.profile.seconds = listener.since - listener.began
    return listener.profile


def _leaves(model: nn.Module, loss_function: nn.Module) -> list[tuple[str, nn.Module]]:
    leaves = [(name, m) for name, m in model.named_modules() if not list(m.named_children())]
    return [*leaves, (LOSS, loss_function)]


def _kinds(leaves: list[tuple[str, nn.Module]]) -> dict[str, str]:
    return {name: f"{type(m).__name__}({m.extra_repr()})" for name, m in leaves}


@contextmanager
def _listening(listener: Listener, leaves: list[tuple[str, nn.Module]]) -> Iterator[None]:
    backend = listener.backend
    names = [*REQUIRED, *(name for name in OPTIONAL if provides(backend, name))]
    with ExitStack() as stack:
        for name in names:
            if name != "allocate":
                stack.enter_context(shadowed(backend, name, listener.kernel(name)))
        for name, module in leaves:
            for method in ("forward", "forward_relu"):  # forward_relu has a fused ReLU
                if hasattr(module, method):
                    timed = listener.timed(name, getattr(module, method))
                    stack.enter_context(shadowed(module, method, timed))
        listener.began = listener.since = time.perf_counter()
        yield


@contextmanager
def shadowed(owner: Any, name: str, function: Any) -> Iterator[None]:
    """Set ``owner.name`` to ``function`` inside the context."""
    before = vars(owner).get(name)
    vars(owner)[name] = function
    try:
        yield
    finally:
        if before is None:
            del vars(owner)[name]
        else:
            vars(owner)[name] = before
