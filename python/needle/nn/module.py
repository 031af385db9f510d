# Trail 19 of 30: Module finds its parameters by walking its attributes.
# Next: python/needle/nn/convolution.py
"""Module and Parameter, the base of all layers; the layers are in the other files of ``nn``.

A module is a plain object. Its Parameters and sub-modules are found by walking its attributes in
the order they were set, through dicts, lists and tuples. Nothing has to be registered except
buffers (Tensors that are saved but not trained).
"""

from __future__ import annotations

from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..array_namespace import Device
from ..array_namespace import device as as_device
from ..autograd import Tensor, as_operand
from ..dtypes import as_dtype, is_floating, is_storage, unmasked
from ..errors import CheckpointError, DTypeError, warn_caller
from ..ops.elementwise import as_stored
from ..shapes import product
from ..torch_names import ModulePointers, PointsToKeywords
from .arguments import check_arguments

Self = TypeVar("Self", bound="Module")


class Parameter(Tensor):
    """A Tensor that is trained as part of a module; its truth value is always True."""

    def __bool__(self) -> bool:
        return True


def operands(x: Any, *parameters: Any) -> tuple[Any, ...]:
    """Return x as a Tensor, and the parameters (or None) cast for use with x.

    If x is stored as bfloat16, float32 parameters are rounded to bfloat16; their gradients stay
    float32.
    """
    x = as_operand(x, *parameters[:1])
    if not is_storage(x.dtype):
        return x, *parameters
    return x, *(p if p is None else as_stored(p, x) for p in parameters)


class Module(PointsToKeywords, ModulePointers):
    """Base class of layers and models: set Parameters and modules as attributes, define forward."""

    training: bool = True
    buffer_names: tuple[str, ...] = ()
    shown_in_repr: tuple[str, ...] = ()
    """The attributes that ``extra_repr`` shows."""

    if not TYPE_CHECKING:

        def __new__(cls, *args, **options):
            """Return a new module; the errors of ``check_arguments`` for a layer of needle."""
            made = super().__new__(cls, *args, **options)
            if (args or options) and cls.__module__.startswith(f"{__package__}."):
                check_arguments(cls, args, options)
            return made

    def __init__(self) -> None:
        self.training = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's output; called through ``module(...)``."""
        raise NotImplementedError(
            f"{type(self).__name__}: the class has no forward; define forward(self, ...)"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    # ---- contents ----------------------------------------------------------------------------

    def named_members(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, value) of the attributes in which members are searched.

        Sequential overrides this to drop a level of names.
        """
        yield from vars(self).items()

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield (name, module) of the direct sub-modules, with lists and dicts flattened."""
        for name, value in self.named_members():
            for path, leaf in _leaves(name, value):
                if isinstance(leaf, Module):
                    yield path, leaf

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield (dotted name, module) of this module (named "") and all below it, each once."""
        yield from _modules(self, prefix, set())

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Yield (dotted name, Parameter) in attribute order, each Parameter once.

        ValueError if two tensors have the same name.
        """
        for name, value in _by_name(self, prefix).items():
            if isinstance(value, Parameter):
                yield name, value

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Yield (dotted name, Tensor) of the registered buffers."""
        for path, module in self.named_modules(prefix):
            for name in module.buffer_names:
                yield _join(path, name), getattr(module, name)

    def parameters(self) -> list[Parameter]:
        """Return all Parameters in the order of ``named_parameters``."""
        return [p for _, p in self.named_parameters()]

    def buffers(self) -> list[Tensor]:
        """Return all buffers in the order of ``named_buffers``."""
        return [b for _, b in self.named_buffers()]

    def _children(self) -> list[Module]:
        """Return all modules below this one (the course's name)."""
        return [module for _, module in self.named_modules() if module is not self]

    def register_buffer(self, name: str, value: Tensor) -> None:
        """Set the attribute ``name`` to ``value``, which is saved and moved with the module.

        TypeError for anything but a Tensor.
        """
        if not isinstance(value, Tensor):
            remedy = "write needle.Tensor(values, requires_grad=False)"
            if value is None:
                remedy = f"write self.{name} = None, since None needs no registration"
            raise TypeError(
                f"{type(self).__name__}.register_buffer: {name} must be a Tensor, got "
                f"{type(value).__name__}; {remedy}"
            )
        setattr(self, name, value)
        if name not in self.buffer_names:
            self.buffer_names = (*self.buffer_names, name)

    # ---- operations on all of the contents ---------------------------------------------------

    def train(self: Self, mode: bool = True) -> Self:
        """Set training mode (or, with False, evaluation mode) here and below; return the module."""
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode here and below; return the module."""
        return self.train(False)

    def apply(self: Self, function: Callable[[Module], Any]) -> Self:
        """Call ``function`` on every module below, then on this one; return the module."""
        for module in reversed([module for _, module in self.named_modules()]):
            function(module)
        return self

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for p in self.parameters():
            p.grad = None

    def to(self: Self, device: Device | str | None = None, dtype: Any = None) -> Self:
        """Move parameters and buffers to a device, and floating ones to a dtype, in place.

        ``to("float64")`` and ``to(dtype="float64")`` are equivalent. Gradients are dropped. Create
        optimisers afterwards, because their state is not moved.
        """
        if isinstance(device, (str, np.dtype)) and dtype is None and _names_dtype(device):
            device, dtype = None, device
        target = None if device is None else as_device(device)
        wanted = None if dtype is None else as_dtype(dtype, "Module.to")
        if wanted is not None and not is_floating(wanted):
            raise DTypeError(
                f"Module.to: the dtype of parameters must be floating, got {wanted}; use float32"
            )
        for tensor in [*self.parameters(), *self.buffers()]:
            own = tensor.dtype if wanted is None or not is_floating(tensor.dtype) else wanted
            moved = Tensor(tensor.detach(), device=target or tensor.device, dtype=own)
            tensor.cached_data = moved.realize_cached_data()
            tensor.grad = None
        return self

    # ---- saving and loading ------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """Return a dict from dotted names to detached parameters and buffers in attribute order.

        It is a snapshot without a copy, because an optimiser step gives parameters new buffers.
        ValueError if two tensors have the same name.
        """
        named = _by_name(self).items()
        return {name: Tensor.make_const(value.realize_cached_data()) for name, value in named}

    def further_names(self) -> dict[str, str]:
        """Map each additional dotted name of a shared tensor to its name in ``state_dict``."""
        first: dict[int, str] = {}
        named = ((name, first.setdefault(id(t), name)) for name, t in _all_names(self, "", (self,)))
        return {name: own for name, own in named if name != own}

    def load_state_dict(
        self, state: Mapping[str, Any], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Load values (Tensors, NDArrays or NumPy arrays) by name, cast to each tensor's dtype.

        A shared tensor may be given by any of its names. Returns the lists of missing and
        unexpected names. CheckpointError, without any change, if a shape differs, if a shared
        tensor is given two values, if a tensor's dtype cannot hold a value (a finite one that would
        be infinite, a fraction in an integer tensor) or, with ``strict``, if a name is missing or
        unexpected.
        """
        own, further = _by_name(self), self.further_names()
        given = {name: further.get(name, name) for name in state}
        found = set(given.values())
        missing = [name for name in own if name not in found]
        unexpected = [name for name, first in given.items() if first not in own]
        values: dict[str, Any] = {}
        problems = []
        for name, first in given.items():
            if first in own:
                value = unmasked("load_state_dict", state[name])
                other = values.setdefault(first, value)
                if value.shape != tuple(own[first].shape):
                    expected = tuple(own[first].shape)
                    problems.append(f"{name} has shape {value.shape}, expected {expected}")
                elif other is not value and not np.array_equal(value, other, equal_nan=True):
                    problems.append(f"{name} differs from another name of the same tensor, {first}")
                elif not _holds(own[first].dtype, value):
                    problems.append(f"{name} has values that {own[first].dtype} cannot hold")
        if strict:
            problems += [f"missing {name}" for name in missing]
            problems += [f"unexpected {name}" for name in unexpected]
        if problems:
            raise CheckpointError(
                f"{type(self).__name__}.load_state_dict: the state belongs to another model: "
                f"{'; '.join(problems)}; load it into the model it was saved from"
                + (" or pass strict=False" if strict and (missing or unexpected) else "")
            )
        loaded = [
            (own[name], Tensor(value, device=own[name].device, dtype=own[name].dtype))
            for name, value in values.items()
        ]
        for tensor, data in loaded:
            tensor.data = data
        return missing, unexpected

    # ---- representation ----------------------------------------------------------------------

    def extra_repr(self) -> str:
        """Return the string between the parentheses of a layer's repr."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.shown_in_repr)

    def __repr__(self) -> str:
        """Return a tree as in PyTorch, with the number of parameters of each module."""
        count = sum(product(p.shape) for p in self.parameters())
        note = f"  # {count:,} parameters" if count else ""
        lines = [f"{type(self).__name__}({self.extra_repr()}"]
        lines += [f"  ({name}): {child!r}" for name, child in self.named_children()]
        if len(lines) == 1:
            return f"{lines[0]}){note}"
        return "\n".join([*(line.replace("\n", "\n  ") for line in lines), f"){note}"])


def _holds(dtype: Any, values: Any) -> bool:
    """Return False if a cast makes a finite number infinite or changes a value of an integer dtype.

    A floating dtype may round.
    """
    if values.dtype.kind not in "biuf" or values.dtype == dtype:
        return True
    with np.errstate(invalid="ignore", over="ignore"):
        cast = values.astype(dtype)
        same = np.isinf(cast) == np.isinf(values) if is_floating(dtype) else cast == values
        return bool(same.all())


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, leaf) of an attribute: itself, or items of its dict, list or tuple."""
    ### BEGIN YOUR SOLUTION [module-walk]
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}", item)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _leaves(f"{name}.{i}", item)
    else:
        yield name, value
    ### END YOUR SOLUTION


def _modules(module: Module, prefix: str, seen: set[int]) -> Iterator[tuple[str, Module]]:
    if id(module) in seen:
        return
    seen.add(id(module))
    yield prefix, module
    for name, child in module.named_children():
        yield from _modules(child, _join(prefix, name), seen)


def _tensors(module: Module, prefix: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield (dotted name, tensor) of all Parameters and buffers in attribute order, each once."""
    ### BEGIN YOUR SOLUTION [module-walk]
    if id(module) in seen:
        return
    seen.add(id(module))
    for name, value in module.named_members():
        for path, leaf in _leaves(name, value):
            if isinstance(leaf, Module):
                yield from _tensors(leaf, _join(prefix, path), seen)
            elif _is_state(module, path, leaf) and id(leaf) not in seen:
                seen.add(id(leaf))
                yield _join(prefix, path), leaf
    ### END YOUR SOLUTION


def _all_names(
    module: Module, prefix: str, above: tuple[Module, ...]
) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor under all of its names; stop at a module that contains itself."""
    for name, value in module.named_members():
        for path, leaf in _leaves(name, value):
            if isinstance(leaf, Module) and leaf not in above:
                yield from _all_names(leaf, _join(prefix, path), (*above, leaf))
            elif _is_state(module, path, leaf):
                yield _join(prefix, path), leaf


def _by_name(module: Module, prefix: str = "") -> dict[str, Tensor]:
    """Return ``_tensors`` by name; ValueError if two of them have the same name."""
    found: dict[str, Tensor] = {}
    for name, tensor in _tensors(module, prefix, set()):
        if found.setdefault(name, tensor) is not tensor:
            raise ValueError(
                f"{type(module).__name__}: each tensor must have its own name, got two named "
                f"{name!r}; rename an attribute or a key"
            )
    return found


_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()))
_MAPPINGS = (MappingProxyType, UserDict)
_OTHERS: tuple[type, ...] = (*_MAPPINGS, *_VIEWS, UserList, deque, frozenset, set)
"""In-memory containers; reading others could read a file or consume their items."""
_LOOKED_AT = 1000
"""The number of items that are looked at, because a container may be a long buffer of data."""


def _is_state(module: Module, path: str, leaf: Any) -> bool:
    if isinstance(leaf, Parameter) or path in module.buffer_names:
        return True
    if isinstance(leaf, _OTHERS) and _holds_modules(leaf):
        warn_caller(
            f"{type(module).__name__}: modules and parameters are found in lists, tuples and dicts "
            f"only, got the {type(leaf).__name__} {path}; make it one of them",
            UserWarning,
        )
    return False


def _holds_modules(values: Any) -> bool:
    values = values.values() if isinstance(values, _MAPPINGS) else values
    try:
        items = list(islice(values, _LOOKED_AT))
    except RuntimeError:  # another thread is changing it
        return False
    return any(isinstance(item, (Module, Parameter)) for item in items)


def _names_dtype(name: Any) -> bool:
    return str(name) in ("float32", "float64")
