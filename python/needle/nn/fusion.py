"""Fusion in ``nn.Sequential``, which runs a layer and the ReLU after it as one kernel.

A layer class takes part if it has a method ``forward_relu``, which computes relu of ``forward``'s
result in fewer passes over memory, and the class attribute ``fusible = forward``. A subclass with
its own ``forward`` does not take part. Neither does a module whose ``forward`` is replaced on the
instance or whose class has another ``__call__``, unless the replacement is ``transparent``, that
is, it only observes and also replaces ``forward_relu``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from .activations import ReLU
from .module import Module

Step = Callable[[Any], Any]
F = TypeVar("F", bound=Callable[..., Any])

# the original methods, which a program may replace later
_RELU, _CALL = ReLU.forward, Module.__call__


def transparent(function: F) -> F:
    """Mark a replacement of ``forward`` as one that may be skipped when layers are fused."""
    function.transparent = True  # type: ignore[attr-defined]
    return function


def steps(modules: Sequence[Any]) -> Iterator[Step]:
    """Yield functions that together compute what the modules compute, with layers fused."""
    last = len(modules) - 1
    i = 0
    while i <= last:
        module = modules[i]
        if i < last and is_plain(modules[i + 1], _RELU) and takes_part(module):
            yield module.forward_relu
            i += 2
        else:
            yield module
            i += 1


def takes_part(module: Any) -> bool:
    """Return True if the module can be fused with a ReLU after it."""
    forward = getattr(type(module), "fusible", None)
    return forward is not None and is_plain(module, forward)


def takes_residual(module: Any) -> bool:
    """Return True if the module can be fused with an addition and a ReLU after it."""
    return takes_part(module) and getattr(module, "takes_residual", False)


def is_plain(module: object, forward: Callable[..., Any]) -> bool:
    """Return True if calling the module runs ``forward`` and nothing else that matters."""
    if not isinstance(module, Module):
        return False
    kind, own = type(module), vars(module).get("forward")
    return (
        kind.forward is forward
        and kind.__call__ is _CALL
        and (own is None or getattr(own, "transparent", False))
    )
