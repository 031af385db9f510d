"""The network of a classifier as a program for a browser's GPU. Called by server.py.

The kernels are those of the WebGPU backend; ``gpu.js`` runs them.
"""

from __future__ import annotations

import copy
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import numpy as np

import needle
from apps.profiling import shadowed
from needle import nn
from needle.array_namespace import BACKEND
from needle.backends.webgpu.listing import ListingBackend
from needle.errors import DeviceError

from .classifier import Classifier


def program_of(classifier: Classifier) -> tuple[dict[str, Any], bytes]:
    """Return the commands that classify one prepared picture, in JSON's types, and the weights.

    The dict has "sources", the WGSL texts; "sizes", the bytes of each buffer; "commands", each a
    dispatch or a copy (``needle.backends.webgpu.listing``); "weights", rows (buffer, offset in the
    buffer, first byte, last byte) that place the weights; "input" and "output", the places of the
    picture and the probabilities; and "layers", the place of each layer's result and the range of
    its commands. A place is a dict of buffer, offset in elements, shape and strides. DeviceError if
    the network cannot be listed.
    """
    if BACKEND != "nd":
        raise DeviceError("predict: NEEDLE_BACKEND=np has no kernels for a GPU; unset it")
    backend = ListingBackend()
    device, listing = needle.ndarray.BackendDevice("webgpu_listing", backend), backend.queue
    model = copy.deepcopy(classifier.model).to(device)
    layers: list[dict[str, Any]] = []
    with needle.no_grad(), ExitStack() as stack:
        for name, module in model.named_modules():
            if not list(module.named_children()):
                run = _noted(name, module, listing.commands, layers)
                stack.enter_context(shadowed(module, "forward", run))
        image = needle.Tensor(np.zeros(classifier.input_shape, np.float32), device=device)
        given = listing.written.pop()  # the page writes the picture here
        output = needle.ops.softmax(model(image))
    weights, parts = bytearray(), []
    for buffer, offset, data in listing.written:
        parts.append((buffer, offset, len(weights), len(weights) + len(data)))
        weights += data
    return {
        "sources": listing.sources,
        "sizes": listing.sizes,
        "commands": [asdict(command) for command in listing.commands],
        "weights": parts,
        "input": {**_place(image), "buffer": given[0]},
        "output": _place(output),
        "layers": layers,
    }, bytes(weights)


def _place(tensor: needle.Tensor) -> dict[str, Any]:
    view = tensor.realize_cached_data().view
    return {
        "buffer": view.handle.number,
        "offset": view.offset,
        "shape": view.shape,
        "strides": view.strides,
    }


def _noted(name: str, module: nn.Module, commands: list[Any], layers: list[dict[str, Any]]) -> Any:
    """Return the forward of a layer that also adds the layer's commands to ``layers``."""
    forward = module.forward

    def run(*inputs: needle.Tensor) -> needle.Tensor:
        first, title = len(commands), repr(module).replace("  # ", ", ")
        result: needle.Tensor = forward(*inputs)
        place = _place(result)
        layers.append({"name": name, "title": title, **place, "commands": (first, len(commands))})
        return result

    return run
