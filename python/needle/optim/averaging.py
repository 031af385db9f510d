"""Exponential moving average of a model's weights, which varies less than the weights do.

Call ``average.update()`` after each optimiser step, and evaluate within ``with
average.applied():``. Any object that names its tensors as ``nn.Module`` does is accepted, so ``nn``
is not imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from ..array_namespace import from_numpy, to_numpy
from ..autograd import Tensor
from ..contexts import context
from ..dtypes import is_floating
from ..errors import CheckpointError
from ..host_steps import Counter, host_step
from .options import FRACTION, broken_rule


class NamesTensors(Protocol):
    """The interface of a model that can be averaged."""

    def named_parameters(self) -> Iterable[tuple[str, Any]]:
        """Yield (dotted name, Tensor) of the trained tensors."""

    def named_buffers(self) -> Iterable[tuple[str, Any]]:
        """Yield (dotted name, Tensor) of tensors that are saved but not trained."""


class ExponentialAverage:
    """Moving average of parameters and floating buffers: average += (1-decay) * (value-average).

    The first update copies the values, as PyTorch's AveragedModel does. ValueError unless 0 <=
    decay < 1.
    """

    steps = Counter()

    def __init__(self, model: NamesTensors, decay: float = 0.999) -> None:
        if wrong := broken_rule({"decay": FRACTION}, {"decay": decay}):
            raise ValueError(f"ExponentialAverage: {wrong}; 0.999 averages over about 1000 steps")
        if inspect.isclass(model) or not hasattr(model, "named_parameters"):
            raise TypeError(
                f"ExponentialAverage: model must be a Module, got {model!r:.80}; pass the model "
                "itself"
            )
        self.model, self.decay, self.steps = model, float(decay), 0
        self.average: dict[str, Any] = {}

    @host_step
    def update(self) -> None:
        """Include the model's current values in the average."""
        self.steps += 1
        for name, tensor in self._tensors():
            value = tensor.realize_cached_data()
            if self.steps > 1:
                before = self.average[name]
                value = before + (value - before) * (1.0 - self.decay)
            self.average[name] = value

    @context
    def applied(self) -> Iterator[None]:
        """Give the model the averaged values inside the context, then restore its own.

        Before the first update there is no average, and nothing changes.
        """
        own = [(tensor, tensor.realize_cached_data()) for _, tensor in self._tensors()]
        try:
            if self.steps:
                for name, tensor in self._tensors():
                    tensor.data = Tensor.make_const(self.average[name])
            yield
        finally:
            for tensor, value in own:
                tensor.data = Tensor.make_const(value)

    def state_dict(self) -> dict[str, Any]:
        """Return ``{"steps", "decay", "arrays": {name: NumPy array}}``."""
        arrays = {name: np.array(to_numpy(value)) for name, value in self.average.items()}
        return {"steps": self.steps, "decay": self.decay, "arrays": arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of ``state_dict``; CheckpointError if it belongs to another model."""
        steps, decay, arrays = int(state["steps"]), float(state["decay"]), state["arrays"]
        own = {name: tuple(tensor.shape) for name, tensor in self._tensors()} if steps else {}
        saved = {name: array.shape for name, array in arrays.items()}
        if own != saved or steps < 0 or not 0.0 <= decay < 1.0:
            wrong = sorted({n for n, _ in own.items() ^ saved.items()})[:3]
            raise CheckpointError(
                f"ExponentialAverage: the saved state (decay {decay}, {steps} steps) is damaged or "
                "belongs to another model: "
                f"{', '.join(wrong) or 'its options are out of range'}; load it into the average "
                "of the model it was saved from"
            )
        self.steps, self.decay = steps, decay
        self.average = {
            name: from_numpy(np.array(arrays[name]), tensor.device, tensor.dtype)
            for name, tensor in self._tensors()
            if name in arrays
        }

    def _tensors(self) -> list[tuple[str, Any]]:
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        return [(name, tensor) for name, tensor in named if is_floating(tensor.dtype)]
