"""RNN, GRU and LSTM, run step by step in one or both directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import ops
from ...autograd import Tensor
from ..call import Call, operator

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ops.relu,
    "sigmoid": ops.sigmoid,
    "tanh": ops.tanh,
}
State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], State]


class _Layer:
    """A recurrent layer: the directions, layouts, states and activations of RNN, GRU and LSTM."""

    def __init__(self, call: Call, gates: int, states: int, activations: list[str]) -> None:
        self.call, self.gates, self.hidden = call, gates, call.get("hidden_size", 0)
        self.states = states
        way = call.choice("direction", "forward", "reverse", "bidirectional")
        self.reversed = {"forward": [False], "reverse": [True]}.get(way, [False, True])
        call.only(clip=0.0, input_forget=0)
        if (
            call.get("clip") is not None
            or call.get("activation_alpha")
            or call.get("activation_beta")
        ):
            raise call.refuse("clip, activation_alpha and activation_beta are not supported")
        self.activations = self._named(activations * len(self.reversed))
        self.batch_first = call.flag("layout")
        self.x = ops.transpose(call.x, (0, 1)) if self.batch_first else call.x
        self._check()

    def _named(self, default: list[str]) -> list[Callable[[Tensor], Tensor]]:
        names = [name.lower() for name in self.call.get("activations") or default]
        if len(names) != len(default) or not set(names) <= set(ACTIVATIONS):
            raise self.call.refuse(
                f"activations must be {len(default)} of {', '.join(ACTIVATIONS)}, got {names}"
            )
        return [ACTIVATIONS[name] for name in names]

    def _check(self) -> None:
        x, ways, width = tuple(self.x.shape), len(self.reversed), self.gates * self.hidden
        if len(x) != 3 or self.hidden < 1 or not x[0]:
            raise self.call.refuse(
                f"the input must be (T, B, features) and hidden_size be given, got {x}"
            )
        expected = [(ways, width, x[2]), (ways, width, self.hidden), (ways, 2 * width)]
        for i, shape in enumerate(expected, 1):
            given = self.call.optional(i)
            if (given is None and i < 3) or (given is not None and tuple(given.shape) != shape):
                raise self.call.refuse(
                    f"input {i} must have shape {shape}, got {getattr(given, 'shape', None)}"
                )
        lengths = self.call.numbers(4)
        if lengths is not None and (lengths != x[0]).any():
            raise self.call.refuse(f"all sequences must have {x[0]} steps, got {lengths}")

    def start(self, way: int) -> State:
        """Return the initial state: the one given, or zeros."""
        batch, found = self.x.shape[1], []
        for i in range(self.states):
            given = self.call.optional(5 + i)
            if given is None:
                zeros = self.call.constant([0], self.x.dtype)
                found.append(ops.broadcast_to(zeros, (batch, self.hidden)))
                continue
            given = ops.transpose(given, (0, 1)) if self.batch_first else given
            if tuple(given.shape) != (len(self.reversed), batch, self.hidden):
                raise self.call.refuse(f"a state has the wrong shape {tuple(given.shape)}")
            found.append(given[way])
        return tuple(found)

    def biases(self, way: int) -> tuple[Tensor | None, Tensor | None]:
        """Return the biases of the inputs and of the state."""
        bias, width = self.call.optional(3), self.gates * self.hidden
        return (None, None) if bias is None else (bias[way, :width], bias[way, width:])

    def split(self, part: Tensor) -> list[Tensor]:
        """Split a (B, gates * hidden) tensor into its gates."""
        h = self.hidden
        return [part[:, i * h : (i + 1) * h] for i in range(self.gates)]

    def run(self, step_of: Callable[[int], Step]) -> tuple[Tensor, ...]:
        """Return the outputs of all steps and the last states in ONNX's layout."""
        outputs, finals = [], []
        for way, backwards in enumerate(self.reversed):
            step, state = step_of(way), self.start(way)
            weight = ops.transpose(self.call.tensor(1)[way])
            parts = ops.matmul(self.x, weight)
            bias = self.biases(way)[0]
            parts = parts if bias is None else parts + bias
            found: list[Any] = [None] * self.x.shape[0]
            order = range(self.x.shape[0])
            for t in reversed(order) if backwards else order:
                state = step(parts[t], state)
                found[t] = state[0]
            outputs.append(ops.stack(found, 0))
            finals.append(state)
        y = ops.stack(outputs, 1)  # (T, directions, B, hidden)
        last = [ops.stack(list(each), 0) for each in zip(*finals, strict=True)]
        if self.batch_first:
            return ops.permute(y, (2, 0, 1, 3)), *(ops.transpose(each, (0, 1)) for each in last)
        return y, *last

    def from_state(self, way: int, h: Tensor) -> Tensor:
        """Return the state's contribution to the gates, with its bias."""
        part, bias = ops.matmul(h, ops.transpose(self.call.tensor(2)[way])), self.biases(way)[1]
        return part if bias is None else part + bias


@operator("RNN")
def _rnn(call: Call) -> tuple[Tensor, ...]:
    layer = _Layer(call, 1, 1, ["Tanh"])

    def step_of(way: int) -> Step:
        f = layer.activations[way]
        return lambda part, state: (f(part + layer.from_state(way, state[0])),)

    return layer.run(step_of)


@operator("LSTM")
def _lstm(call: Call) -> tuple[Tensor, ...]:
    """Run an LSTM with gates i, o, f, c; optional peepholes add P_i c, P_o c' and P_f c."""
    layer = _Layer(call, 4, 2, ["Sigmoid", "Tanh", "Tanh"])
    h, peep = layer.hidden, call.optional(7)
    if peep is not None and tuple(peep.shape) != (len(layer.reversed), 3 * h):
        raise call.refuse(f"the peepholes must have 3 * {h} numbers, got shape {peep.shape}")

    def step_of(way: int) -> Step:
        sigma, g, out = layer.activations[3 * way : 3 * way + 3]
        peeps = [None] * 3 if peep is None else [peep[way, k * h : (k + 1) * h] for k in range(3)]

        def seen(gate: Tensor, weight: Tensor | None, c: Tensor) -> Tensor:
            return gate if weight is None else gate + weight * c

        def step(part: Tensor, state: State) -> State:
            i, o, f, new = layer.split(part + layer.from_state(way, state[0]))
            old = state[1]
            c = sigma(seen(f, peeps[2], old)) * old + sigma(seen(i, peeps[0], old)) * g(new)
            return sigma(seen(o, peeps[1], c)) * out(c), c

        return step

    return layer.run(step_of)


@operator("GRU")
def _gru(call: Call) -> tuple[Tensor, ...]:
    """Run a GRU with gates z, r, h; ``linear_before_reset`` multiplies by r after the product."""
    layer = _Layer(call, 3, 1, ["Sigmoid", "Tanh"])
    after = call.flag("linear_before_reset")

    def step_of(way: int) -> Step:
        sigma, g = layer.activations[2 * way : 2 * way + 2]

        def step(part: Tensor, state: State) -> State:
            (h,) = state
            z, r, new = layer.split(part)
            from_z, from_r, from_h = layer.split(layer.from_state(way, h))
            z, r = sigma(z + from_z), sigma(r + from_r)
            if not after:
                from_h = layer.split(layer.from_state(way, r * h))[2]
            new = g(new + (r * from_h if after else from_h))
            return (new - z * new + z * h,)

        return step

    return layer.run(step_of)
