"""``needle.summary``: a table of a model's layers from one forward pass. Called by users."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..array_namespace import is_array
from ..autograd import Op, Tensor, TensorTuple, no_grad
from ..contexts import context
from ..init import zeros
from ..ops import REGISTRY
from ..shapes import as_shape, product
from .module import Module


@dataclass
class LayerRow:
    """One module: its name, class, output shapes, own parameters and own multiplications.

    Those of a sub-module are in the sub-module's row. ``output`` is from the last of ``calls``
    calls.
    """

    name: str
    kind: str
    parameters: int
    output: str = ""
    calls: int = 0
    multiplications: int = 0


@dataclass(frozen=True)
class Summary:
    """The result of ``needle.summary``; its repr is the table."""

    title: str
    rows: tuple[LayerRow, ...]

    @property
    def parameters(self) -> int:
        """The number of parameters of the model."""
        return sum(row.parameters for row in self.rows)

    @property
    def multiplications(self) -> int:
        """The number of multiplications of one forward pass."""
        return sum(row.multiplications for row in self.rows)

    def __repr__(self) -> str:
        cells: list[tuple[str, ...]] = [
            ("layer", "kind", "output", "parameters", "multiplications")
        ]
        for row in self.rows:
            calls = f", {row.calls} calls" if row.calls > 1 else ""
            numbers = (f"{n:,}" if n else "" for n in (row.parameters, row.multiplications))
            cells.append((row.name or "(model)", row.kind, row.output + calls, *numbers))
        cells.append(("total", "", "", f"{self.parameters:,}", f"{self.multiplications:,}"))
        widths = [max(len(each[i]) for each in cells) for i in range(5)]
        lines = [
            "  ".join(
                text.rjust(width) if i > 2 else text.ljust(width)
                for i, (text, width) in enumerate(zip(each, widths, strict=True))
            ).rstrip()
            for each in cells
        ]
        rule = "-" * max(map(len, lines))
        return "\n".join([self.title, rule, lines[0], rule, *lines[1:-1], rule, lines[-1]])


def summary(model: Module, *inputs: Any) -> Summary:
    """Return a table of the model's layers: output shapes, parameters and multiplications.

    ``inputs``: one per argument of the model, either a shape with the batch axis, for which zeros
    on the model's device are passed, or a Tensor or array such as token ids. The model runs once
    in evaluation mode without recording. Its training modes and the random states of NumPy and
    Python are restored. Multiplications are those in the definitions of matrix products and
    convolutions, for the whole batch. TypeError if ``model`` is not a Module.

    >>> summary(model, (1, 28, 28, 1)).parameters  # doctest: +SKIP
    61706
    """
    if not isinstance(model, Module):
        raise TypeError(
            f"summary: the model must be a Module, got {type(model).__name__}; call "
            "summary(model, (1, 3, 32, 32))"
        )
    examples = [_example(model, each) for each in inputs]
    owner = _owners(model)
    rows = {
        id(module): LayerRow(name, type(module).__name__, owner.get(id(module), 0))
        for name, module in model.named_modules()
    }
    with _undisturbed(model), _Counter(rows).watching(model), no_grad():
        model.eval()
        model(*examples)
    shapes = ", ".join(_shapes(each) for each in examples)
    return Summary(f"{type(model).__name__} for input {shapes}", tuple(rows.values()))


def _example(model: Module, given: Any) -> Any:
    """Return ``given`` if it is a Tensor or array, or zeros if it is a shape."""
    if isinstance(given, Tensor):
        return given
    if is_array(given) or isinstance(given, np.ndarray):
        return Tensor(given, dtype=given.dtype, requires_grad=False)
    first = next((p for p in model.parameters()), None)
    device, dtype = (None, "float32") if first is None else (first.device, first.dtype)
    return zeros(*as_shape("summary", given), device=device, dtype=dtype)


def _owners(model: Module) -> dict[int, int]:
    """Map module ids to numbers of parameters; a shared parameter counts in its first module."""
    seen: set[int] = set()
    counts: dict[int, int] = {}
    for _, module in model.named_modules():
        below = {id(p) for _, child in module.named_children() for p in child.parameters()}
        own = [p for p in module.parameters() if id(p) not in below | seen]
        seen.update(id(p) for p in own)
        counts[id(module)] = sum(product(p.shape) for p in own)
    return counts


@context
def _undisturbed(model: Module) -> Iterator[None]:
    """Restore training modes and random states at the end."""
    modes = [(module, vars(module).get("training")) for _, module in model.named_modules()]
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        for module, mode in modes:
            if mode is None:
                vars(module).pop("training", None)
            else:
                module.training = mode


class _Counter:
    """An observer of one forward pass that counts the multiplications of each module."""

    def __init__(self, rows: Mapping[int, LayerRow]) -> None:
        self.rows = rows
        self.running: list[LayerRow] = []
        self.thread = threading.get_ident()

    @context
    def watching(self, model: Module) -> Iterator[None]:
        """Wrap ``forward`` of every module, and ``compute`` of the ops that multiply."""
        classes = {cls for row in REGISTRY.values() for cls in row.classes}
        with ExitStack() as stack:
            for _, module in model.named_modules():
                _shadow(stack, module, "forward", self._forward(module))
            for cls in classes:
                if cls.multiplications is not Op.multiplications:
                    _shadow(stack, cls, "compute", self._compute(cls.compute))
            yield

    def _forward(self, module: Module) -> Callable[..., Any]:
        function, row = module.forward, self.rows[id(module)]

        def watched(*args: Any, **options: Any) -> Any:
            self.running.append(row)
            try:
                result = function(*args, **options)
            finally:
                self.running.pop()
            row.output, row.calls = _shapes(result), row.calls + 1
            return result

        return watched

    def _compute(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(op: Op, *arrays: Any) -> Any:
            result = function(op, *arrays)
            if self.running and threading.get_ident() == self.thread:
                shapes = [tuple(array.shape) for array in arrays if array is not None]
                self.running[-1].multiplications += op.multiplications(shapes, result.shape)
            return result

        return watched


def _shadow(stack: ExitStack, owner: Any, name: str, function: Any) -> None:
    """Set ``owner.name`` to ``function`` until the stack is closed."""
    if name in vars(owner):
        stack.callback(setattr, owner, name, vars(owner)[name])
    else:
        stack.callback(delattr, owner, name)
    setattr(owner, name, function)


def _shapes(result: Any) -> str:
    """Return the shapes of the tensors of a result, e.g. ``(1, 10)`` or ``(5, 1, 4), (1, 4)``."""
    if isinstance(result, TensorTuple):
        return ", ".join(map(str, result.shape))
    if isinstance(result, Tensor):
        return str(tuple(result.shape))
    if isinstance(result, Mapping):
        result = list(result.values())
    if isinstance(result, Sequence) and not isinstance(result, str):
        return ", ".join(filter(None, (_shapes(each) for each in result)))
    return ""
