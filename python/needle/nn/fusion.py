"""Neighbouring layers that ``nn.Sequential`` runs as one kernel: a layer and the ReLU behind it.

A layer class takes part by ``fused_relu``: its ``forward``, and the function that gives relu of the
same result in fewer passes over memory. A subclass with a ``forward`` of its own does not take
part, nor does a module whose ``forward`` is replaced on the instance or whose class has another
``__call__``: who listens to a module sees each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from .activations import ReLU
from .module import Module

Step = Callable[[Any], Any]

_RELU = ReLU.forward


def steps(modules: Sequence[Module]) -> Iterator[Step]:
    """Yield the functions whose composition is that of the modules."""
    last = len(modules) - 1
    i = 0
    while i <= last:
        module = modules[i]
        fused = _with_relu(module, modules[i + 1]) if i < last else None
        yield module if fused is None else fused
        i += 1 if fused is None else 2


def _with_relu(layer: Module, after: Module) -> Step | None:
    """relu(layer(x)) as one function, if ``after`` is a ReLU and the layer takes part."""
    if not _is_plain(after, _RELU):
        return None
    pair: tuple[Step, Step] | None = getattr(type(layer), "fused_relu", None)
    if pair is None or not _is_plain(layer, pair[0]):
        return None
    return partial(pair[1], layer)


def _is_plain(module: Module, forward: Callable[..., Any]) -> bool:
    """Return True if calling the module runs ``forward`` and nothing else."""
    kind = type(module)
    return (
        kind.forward is forward
        and kind.__call__ is Module.__call__
        and "forward" not in vars(module)
    )
