"""Base class of optimisers: parameter groups, state, gradient clipping, state dicts.

A step never modifies a gradient. It modifies a value in place only if nothing but the parameter
refers to it; otherwise ``.data`` gets a new buffer, so a value saved before the step keeps its
content. The formulas are in ``sgd`` and ``adam``; each is one call of ``needle.accelerated`` per
group, dtype and device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..array_namespace import BACKEND, device_of, from_numpy, is_array, to_numpy
from ..array_namespace import array_api as xp
from ..autograd import Tensor
from ..autograd.refs import unheld
from ..autograd.replay import forget_leaf
from ..errors import CheckpointError, ShapeError
from ..host_steps import Counter, current, host_step
from ..torch_names import PointsToKeywords, points_to_keywords
from .options import COUNT, NORM, RULES, broken_rule, number_of

Array = Any
Arrays = Sequence[Array]
Tensors = Sequence[Tensor]
Group = dict[str, Any]


class ParamGroup(dict[str, Any]):
    """A parameter group that reports each option read from it to the recorder, if there is one."""

    def __getitem__(self, name: str) -> Any:
        """Return an option."""
        value = super().__getitem__(name)
        self._note(name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return an option, or ``default``."""
        self._note(name)
        return super().get(name, default)

    def values(self) -> Any:
        """Return a view of the values."""
        self._note(*self)
        return super().values()

    def items(self) -> Any:
        """Return a view of the names and values."""
        self._note(*self)
        return super().items()

    def copy(self) -> Group:
        """Return a plain dict of the options."""
        self._note(*self)
        return dict(self)

    def _note(self, *names: str) -> None:
        if current.recorder is not None:
            for name in names:
                if name != "params":
                    current.recorder.read_option(self, name)


class SetsRates(Protocol):
    """The part of a schedule's interface that an optimiser needs."""

    def set_rate(self, group: Group) -> None:
        """Set the current ``lr`` of a group."""


class Optimizer(PointsToKeywords):
    """Base class of optimisers.

    ``params``: Tensors, or dicts ``{"params": [...], "lr": ...}`` (groups). ``options``: defaults
    of every group, which are also attributes: ``optimizer.lr`` reads the first group's value and
    assigns to every group. ``state`` maps a parameter to its named arrays. TypeError for anything
    but parameters; ValueError if there are no parameters, or if an option is out of range.
    """

    steps = Counter()
    schedule: Callable[[], SetsRates | None] | None = None
    """A weak reference to the latest schedule; None without one."""

    def __init__(self, params: Iterable[Tensor] | Iterable[Group], **options: Any) -> None:
        given: list[Any] = _listed(type(self).__name__, params)
        groups = given if given and isinstance(given[0], dict) else [{"params": given}]
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, dict[str, Array]] = {}
        self.steps = 0
        self._defaults = options
        for group in groups:
            self.add_param_group(group)
        if not self.params:
            raise ValueError(
                f"{type(self).__name__}: there must be at least one parameter, got none; pass "
                "model.parameters() of a model with parameters"
            )

    def __getattr__(self, name: str) -> Any:
        if name not in vars(self).get("_defaults", ()):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.param_groups[0][name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *vars(self).get("_defaults", ())]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in vars(self).get("_defaults", ()):
            super().__setattr__(name, value)
            return
        self.check_options({name: value})
        for group in self.param_groups:
            group[name] = value

    @property
    def params(self) -> list[Tensor]:
        """All parameters of all groups, in order."""
        return [p for group in self.param_groups for p in group["params"]]

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the schedule, since a copied schedule attaches itself."""
        return {name: value for name, value in vars(self).items() if name != "schedule"}

    def __init_subclass__(cls, **options: Any) -> None:
        """Make an overridden ``step`` a host step, because it counts steps and reads options."""
        super().__init_subclass__(**options)
        if "step" in vars(cls):
            cls.step = host_step(changes_state=True)(cls.step)  # type: ignore[method-assign]

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add ``{"params": [...], option: value, ...}``; omitted options take the defaults.

        A schedule takes the group's ``lr`` as its base rate, and sets its current rate at once.
        TypeError for anything but a dict of parameters, ValueError for unknown options, options out
        of range, or a parameter that appears twice.
        """
        if not isinstance(group, Mapping) or "params" not in group:
            raise TypeError(
                f"{type(self).__name__}: a parameter group must be a dict with 'params', got "
                f"{list(group) if isinstance(group, Mapping) else type(group).__name__}; write "
                "{'params': [...], 'lr': ...}"
            )
        unknown = set(group) - set(self._defaults) - {"params"}
        if unknown:
            raise ValueError(
                f"{type(self).__name__}: a parameter group has unknown options "
                f"{sorted(unknown)}; known: {sorted(self._defaults)}"
            )
        listed = _listed(type(self).__name__, group["params"])
        for p in listed:
            if not isinstance(p, Tensor):
                raise _not_parameters(type(self).__name__, p)
        known = {id(p) for p in self.params}
        if len({id(p) for p in listed} | known) < len(listed) + len(known):
            raise ValueError(
                f"{type(self).__name__}: a parameter appears twice; list each one in one group once"
            )
        made = ParamGroup({**self._defaults, **group, "params": listed})
        self.check_options(made)
        self.param_groups.append(made)
        schedule = self.schedule() if self.schedule else None
        if schedule is not None:
            schedule.set_rate(made)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise ValueError if an option is out of range."""
        if wrong := broken_rule(RULES, options):
            raise ValueError(f"{type(self).__name__}: {wrong}; correct the value")

    @host_step(changes_state=True)
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        self.steps += 1
        for group in self.param_groups:
            for batch in _by_kind([p for p in group["params"] if p.grad is not None]):
                values = [_value(p) for p in batch]
                grads = [_gradient(p, value) for p, value in zip(batch, values, strict=True)]
                if group.get("maximize"):
                    grads = [-grad for grad in grads]
                new_values = self._update(batch, values, grads, group)
                for p, old, new in zip(batch, values, new_values, strict=True):
                    if new is not old:
                        # NumPy returns a scalar instead of a 0-d array
                        p.data = Tensor.make_const(new if is_array(new) else xp.asarray(new))
                        p.changed_by = f"{type(self).__name__}.step()"

    def _update(self, params: Tensors, values: Arrays, grads: Arrays, group: Group) -> Arrays:
        """Return the new values of ``params``, which share a dtype and a device.

        A value may be changed in place only where ``unshared`` allows it.
        """
        raise NotImplementedError

    def _state_arrays(self, params: Sequence[Tensor], name: str, start: float = 0.0) -> list[Array]:
        """Return the state array ``name`` of each parameter; new ones are filled with ``start``."""
        for p in params:
            own = self.state.setdefault(p, {})
            if name not in own:
                own[name] = xp.full_like(_value(p), start)
        return [self.state[p][name] for p in params]

    @points_to_keywords
    def reset_grad(self) -> None:
        """Set every gradient to None."""
        for p in self.params:
            p.grad = None

    zero_grad = reset_grad

    def clip_grad_norm(self, max_norm: float = 0.25) -> float:
        """Apply ``clip_grad_norm`` to all parameters of this optimiser; return the norm."""
        return clip_grad_norm(self.params, max_norm)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything that a continued run needs.

        ``{"steps": int, "param_groups": [options and "params": positions], "state": {position:
        {name: NumPy array}}}``; positions are indices into ``params``.
        """
        params = self.params
        position = {id(p): i for i, p in enumerate(params)}
        groups = [
            {**group, "params": [position[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        state = {
            i: {name: np.array(to_numpy(array)) for name, array in self.state[p].items()}
            for i, p in enumerate(params)
            if p in self.state
        }
        return {"steps": self.steps, "param_groups": groups, "state": state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of ``state_dict`` for parameters of the same number and shapes.

        CheckpointError, without any change, if groups, option values, positions or shapes do not
        match.
        """
        name, groups = type(self).__name__, state["param_groups"]
        sizes = [len(group["params"]) for group in groups]
        own_sizes = [len(group["params"]) for group in self.param_groups]
        if sizes != own_sizes:
            raise CheckpointError(
                f"{name}: the saved state has parameter groups of {sizes} parameters, this "
                f"optimizer has {own_sizes}; create it for the same model and groups"
            )
        for saved, own in zip(groups, self.param_groups, strict=True):
            if other := (saved.keys() ^ own.keys()) - {"initial_lr"}:
                raise CheckpointError(
                    f"{name}: only one of the saved state and this optimizer has the options "
                    f"{sorted(other)}; create an optimizer of the class it was saved from"
                )
        for saved in ({"steps": state["steps"]}, *groups):
            if wrong := broken_rule({"steps": COUNT, **RULES}, saved):
                raise CheckpointError(
                    f"{name}: the saved {wrong}; the state is damaged or belongs to another "
                    "optimizer"
                )
        params = self.params
        loaded = {params[i]: own for i, own in _by_position(name, state["state"], params)}
        self.steps = int(state["steps"])
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update({key: value for key, value in saved.items() if key != "params"})
        self.state = {
            p: {key: from_numpy(np.array(array), p.device, p.dtype) for key, array in own.items()}
            for p, own in loaded.items()
        }


@host_step(changes_state=True)
def clip_grad_norm(params: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients so that their joint Euclidean norm is at most ``max_norm``.

    Returns the norm before clipping. Gradients are replaced by new tensors, never changed in place.
    The factor is max_norm / (norm + 1e-6), as in PyTorch. ValueError for a negative or NaN
    ``max_norm``.
    """
    params, max_norm = _listed("clip_grad_norm", params), number_of(max_norm)
    if wrong := broken_rule({"max_norm": NORM}, {"max_norm": max_norm}):
        raise ValueError(f"clip_grad_norm: {wrong}; pass the largest norm to allow")
    ### BEGIN YOUR SOLUTION [clip-grad-norm]
    with_grad = [p for p in params if p.grad is not None]
    grads = [p.grad.realize_cached_data() for p in with_grad]
    squares = [float(to_numpy(xp.sum(g * g)).reshape(-1)[0]) for g in grads]
    norm = float(np.sqrt(np.sum(squares)))
    factor = max_norm / (norm + 1e-6)
    # also true for a NaN norm, so the gradients become NaN and the fault is seen
    if not factor >= 1.0:
        for p, g in zip(with_grad, grads, strict=True):
            p.grad = Tensor.make_const(g * factor)
    return norm
    ### END YOUR SOLUTION


def unshared(params: Sequence[Tensor], values: Sequence[Array]) -> list[bool]:
    """Return, for each value, True if nothing else refers to its buffer.

    Only the value's parameter and the list ``values`` may refer to it; views, exports and retained
    graphs count too (``autograd.refs``). A buffer whose ``shared`` is not False may share memory
    with a host array.
    """
    if BACKEND != "nd":
        return [False for _ in values]
    for p in params:
        forget_leaf(p)
    views = [value.view for value in values]
    handles = [view.handle for view in views]
    own = [getattr(handle, "shared", True) is False for handle in handles]
    counts = zip(own, unheld(values, 1), unheld(views, 1), unheld(handles, 1), strict=True)
    return [all(each) for each in counts]


def _listed(name: str, params: Any) -> list[Any]:
    """Return a Tensor or an iterable as a list; TypeError for anything else, such as a model."""
    if isinstance(params, Tensor):
        return [params]
    if not isinstance(params, Iterable):
        raise _not_parameters(name, params)
    return list(params)


def _not_parameters(name: str, got: Any) -> TypeError:
    return TypeError(
        f"{name}: parameters must be Tensors, got {type(got).__name__}; pass model.parameters()"
    )


def _by_kind(params: Sequence[Tensor]) -> list[list[Tensor]]:
    """Group the parameters by dtype and device, so that one fused step can update each group."""
    kinds: dict[tuple[Any, Any], list[Tensor]] = {}
    dtype = device = kind = None
    for p in params:
        value = _value(p)
        if kind is None or value.dtype is not dtype or device_of(value) is not device:
            dtype, device = value.dtype, device_of(value)
            kind = kinds.setdefault((dtype, device), [])
        kind.append(p)
    return list(kinds.values())


def numbers(group: Group, *names: str) -> Iterator[float]:
    """Yield options of a group as Python floats, since a program may set NumPy's."""
    return (float(group[name]) for name in names)


def _value(p: Tensor) -> Array:
    return p.realize_cached_data()


def _gradient(p: Tensor, value: Array) -> Array:
    """Return the gradient's array in the parameter's dtype; ShapeError if the shapes differ."""
    grad = _value(p.grad)
    if grad.shape != value.shape:
        raise ShapeError(
            f"optimizer: a gradient must have its parameter's shape, got {tuple(grad.shape)} for a "
            f"parameter of shape {tuple(p.shape)}; run backward again after replacing data"
        )
    dtype = value.dtype
    return grad if grad.dtype is dtype or grad.dtype == dtype else xp.astype(grad, dtype)


def _by_position(
    name: str, state: Mapping[Any, Mapping[str, Any]], params: Sequence[Tensor]
) -> list[tuple[int, Mapping[str, Any]]]:
    """Return (position, arrays) of a saved state after checking positions and shapes."""
    checked = []
    for key, own in state.items():
        i = int(key)
        if not 0 <= i < len(params):
            raise CheckpointError(
                f"{name}: the saved state contains parameter {i}, but there are {len(params)}; "
                "create the optimizer for the same model"
            )
        for label, array in own.items():
            if tuple(array.shape) != tuple(params[i].shape):
                raise CheckpointError(
                    f"{name}: saved {label} of parameter {i} has shape {tuple(array.shape)}, the "
                    f"parameter {tuple(params[i].shape)}; create the optimizer for the same model"
                )
        checked.append((i, own))
    return checked
