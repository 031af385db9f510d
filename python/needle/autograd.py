"""Reverse-mode differentiation: Op, Value, Tensor and ``backward``. Names no op.

The ops are in ``needle.ops`` and give Tensor its operators and methods when they register
(``tensor_methods.pyi`` lists those for type checkers). The walk itself is in ``graph``.

What ``y.backward()`` keeps is said by ``retain_graph``: None (default) frees every intermediate
buffer as it goes and can compute it again, so ``x.grad`` is still a graph node that can itself be
differentiated; True keeps everything; False frees for good and makes gradients constants.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from .array_namespace import (
    BACKEND,
    NDArray,
    array_api,
    device_of,
    from_numpy,
    is_array,
    to_numpy,
)
from .array_namespace import Device as Device
from .array_namespace import device as as_device
from .dtypes import numpy_dtype
from .errors import DTypeError, GraphError, ShapeError
from .graph import (
    HookHandle,
    Op,
    enable_grad,
    find_topo_sort,
    no_grad,
    recording,
    reverse_pass,
    sum_node_list,
    topo_sort_dfs,
)
from .replay import ReplayedGradient, Tape, release_for_good, release_onto

if TYPE_CHECKING:
    from .tensor_methods import TensorMethods
else:

    class TensorMethods:
        """Where type checkers see the methods that ops attach; empty at run time."""


__all__ = [
    "BACKEND",
    "LAZY_MODE",
    "TENSOR_COUNTER",
    "NDArray",
    "Op",
    "Tensor",
    "TensorOp",
    "TensorTuple",
    "TensorTupleOp",
    "Value",
    "array_api",
    "compute_gradient_of_variables",
    "enable_grad",
    "find_topo_sort",
    "no_grad",
    "sum_node_list",
    "topo_sort_dfs",
]

LAZY_MODE = False
"""When True, values are computed when first looked at instead of at once."""

if TYPE_CHECKING:
    TENSOR_COUNTER: int
    """How many Values are alive; counted when it is asked for, as Values come and go often."""

Self = TypeVar("Self", bound="Value")
_new = object.__new__


def __getattr__(name: str) -> int:
    if name == "TENSOR_COUNTER":
        return sum(issubclass(type(each), Value) for each in gc.get_objects())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Value:
    """A node of the computational graph: the op and inputs it came from, and its value."""

    op: Op | None = None
    inputs: Sequence[Any] = ()
    cached_data: Any = None
    requires_grad: bool = False
    num_outputs: int = 1
    hooks: dict[int, Callable[[Any], Any]] | None = None
    grad: Any = None
    """The gradient of the last backward that reached this node; each backward overwrites it."""

    @property
    def shape(self) -> Any:
        """The shape of the value."""
        raise NotImplementedError

    def realize_cached_data(self) -> Any:
        """The value's array, computed now if it was not before."""
        if self.cached_data is None:
            assert self.op is not None
            arrays = [source.realize_cached_data() for source in self.inputs]
            self.cached_data = _settled(self.op.compute(*arrays))
        return self.cached_data

    def is_leaf(self) -> bool:
        """Whether no recorded operation made this value."""
        return self.op is None

    @classmethod
    def make_const(cls: type[Self], data: Any, requires_grad: bool = False) -> Self:
        """A leaf that shares ``data``: an array of this mode, a tuple of them, or a Value."""
        value = _new(cls)
        value.cached_data = data.realize_cached_data() if isinstance(data, Value) else data
        value.requires_grad = requires_grad
        return value

    @classmethod
    def make_from_op(cls: type[Self], op: Op, inputs: Sequence[Value]) -> Self:
        """The node of ``op`` applied to ``inputs``; a constant if nothing is to be recorded."""
        ### BEGIN YOUR SOLUTION [record]
        value = _new(cls)
        arrays, recorded = [], False
        for source in inputs:
            data = source.cached_data
            if data is None and not LAZY_MODE:
                data = source.realize_cached_data()
            arrays.append(data)
            recorded = recorded or source.requires_grad
        if recorded and op.differentiable and recording.on:
            value.op, value.inputs, value.requires_grad = op, inputs, True
            if LAZY_MODE:
                return value
        if LAZY_MODE:
            arrays = [source.realize_cached_data() for source in inputs]
        value.cached_data = _settled(op.compute(*arrays))
        return value
        ### END YOUR SOLUTION

    def register_hook(self, hook: Callable[[Any], Any]) -> HookHandle:
        """Calls ``hook(grad)`` when a backward has this value's gradient complete.

        What it returns, if not None, replaces the gradient. ``handle.remove()`` takes it off.
        """
        if not self.requires_grad:
            raise GraphError(
                "register_hook: the tensor must require grad, got requires_grad=False; set it True"
            )
        if self.hooks is None:
            self.hooks = {}
        key = max(self.hooks, default=-1) + 1
        self.hooks[key] = hook
        return HookHandle(self.hooks, key)


def _settled(data: Any) -> Any:
    """NumPy gives scalars for 0-d results; a value is always an array, which can be written to."""
    if type(data) is NDArray:
        return data
    return np.asarray(data) if isinstance(data, np.generic) else data


class TensorOp(Op):
    """An op with one Tensor as result."""

    def __call__(self, *args: Any) -> Tensor:
        for arg in args:
            if not isinstance(arg, Value):
                args = _as_values(args)
                break
        return Tensor.make_from_op(self, args)


class TensorTupleOp(Op):
    """An op whose result is a TensorTuple; ``compute`` gives a tuple of arrays."""

    def __call__(self, *args: Any) -> TensorTuple:
        return TensorTuple.make_from_op(self, _as_values(args))


def _as_values(args: Sequence[Any]) -> tuple[Value, ...]:
    """Arrays and numbers as constants next to the Tensors they are combined with."""
    like = next((arg for arg in args if isinstance(arg, Tensor)), None)
    return tuple(arg if isinstance(arg, Value) else as_operand(arg, like) for arg in args)


def as_operand(b: Any, like: Any) -> Tensor:
    """An array or number next to a Tensor: a constant on its device, floats in its dtype."""
    if not isinstance(like, Tensor):  # none of the operands is a Tensor
        return Tensor(b, requires_grad=False)
    host = b if is_array(b) else np.asarray(b)
    if host.dtype.kind not in "biuf":
        raise DTypeError(
            f"Tensor: an operand must be a number or an array of numbers, got {b!r}; convert it"
        )
    both_floating = host.dtype.kind == "f" and like.dtype.kind == "f"
    dtype = like.dtype if both_floating or isinstance(b, (int, float)) else host.dtype
    return Tensor(b, device=like.device, dtype=dtype, requires_grad=False)


class TensorTuple(Value):
    """Several arrays as one node: the result of split, the input of stack."""

    cached_data: tuple[Any, ...]
    items: tuple[Tensor, ...] | None = None
    """The tensors it was made of, where it was made of tensors."""
    item_of: ClassVar[Callable[[TensorTuple, int], Tensor]]
    sum_of: ClassVar[Callable[[TensorTuple, TensorTuple], TensorTuple]]
    """What ``tuple[i]`` and ``tuple + tuple`` do; set by the ops of tuples."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shapes of the items."""
        return tuple(tuple(data.shape) for data in self.realize_cached_data())

    def __len__(self) -> int:
        return len(self.realize_cached_data())

    def __getitem__(self, index: int) -> Tensor:
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"TensorTuple: index must be in [0, {count}), got {index}")
        return type(self).item_of(self, index + count if index < 0 else index)

    def __add__(self, other: TensorTuple) -> TensorTuple:
        return type(self).sum_of(self, other)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def detach(self) -> TensorTuple:
        """A constant that shares this value's data."""
        return TensorTuple.make_const(self.realize_cached_data())

    def tuple(self) -> Any:
        """The items as a Python tuple of Tensors."""
        return tuple(self)

    def numpy(self) -> Any:
        """The items as a tuple of ndarrays."""
        return tuple(to_numpy(data) for data in self.realize_cached_data())

    def __repr__(self) -> str:
        return f"needle.TensorTuple{tuple(self)!r}"


class Tensor(Value, TensorMethods):
    """An array that remembers how it was computed.

    ``array``: a Tensor (shared if device and dtype agree), an array, or anything NumPy takes.
    ``device`` defaults to the array's own or ``default_device()``; ``dtype`` to float32 for what
    is not an array of needle (in np mode NumPy's own dtype). ``==`` and ``hash`` go by identity.
    """

    __array_ufunc__ = None  # so that ``ndarray * tensor`` comes to our reflected operators

    def __init__(
        self,
        array: Any,
        *,
        device: Any = None,
        dtype: Any = None,
        requires_grad: bool = True,
    ) -> None:
        self.cached_data = _array_of(array, device, dtype)
        self.requires_grad = requires_grad

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        data = self.cached_data
        shape: tuple[int, ...] = (self.realize_cached_data() if data is None else data).shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        data = self.cached_data
        dtype: np.dtype[Any] = (self.realize_cached_data() if data is None else data).dtype
        return dtype

    @property
    def device(self) -> Any:
        """Where the data is."""
        return device_of(self.realize_cached_data())

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(self.realize_cached_data().size)

    def detach(self) -> Tensor:
        """A constant that shares this tensor's data."""
        return Tensor.make_const(self.realize_cached_data())

    @property
    def data(self) -> Tensor:
        """A constant sharing the data. Assigning a Tensor of the same dtype and any shape replaces
        the data; TypeError or DTypeError for anything else."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(
                f"data: the new value must be a Tensor, got {type(value).__name__}; make it "
                f"one with needle.Tensor(value, device=..., dtype={str(self.dtype)!r})"
            )
        if value.dtype != self.dtype:
            raise DTypeError(
                f"data: the dtype must stay {self.dtype}, got {value.dtype}; cast the new value "
                f"with astype({str(self.dtype)!r})"
            )
        self.cached_data = value.realize_cached_data()

    def numpy(self) -> np.ndarray[Any, Any]:
        """The data as an ndarray (0-d ones too)."""
        return np.asarray(to_numpy(self.realize_cached_data()))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        host = self.numpy()
        return np.array(host, dtype=dtype) if copy else np.asarray(host, dtype=dtype)

    def item(self) -> Any:
        """The only element, as a Python number."""
        if self.size != 1:
            raise ShapeError(
                f"item: the tensor must have one element, got shape {self.shape}; use numpy(), "
                "or sum or index it first"
            )
        return self.numpy().reshape(())[()].item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len: a 0-d tensor has no length, got shape (); use item()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def backward(self, out_grad: Any = None, retain_graph: bool | None = None) -> None:
        """Sets ``.grad`` of every tensor that this one depends on and that requires grad.

        ``out_grad``: the gradient of this tensor, ones by default. ``retain_graph``: see the top
        of this module. GraphError if nothing was recorded or the graph has been released.
        """
        if not self.requires_grad:
            raise GraphError(
                "backward: the tensor must require grad, got a constant; compute it from tensors "
                "with requires_grad=True, outside no_grad"
            )
        seed = seed_gradient(self, out_grad)
        if retain_graph:
            compute_gradient_of_variables(self, seed)
        else:
            _backward_releasing(self, seed, again=retain_graph is None and recording.on)

    def __repr__(self) -> str:
        text = np.array2string(self.numpy(), separator=", ", prefix="needle.Tensor(")
        notes = f", dtype={self.dtype}, device={self.device!r}"
        if self.op is not None:
            notes += f", op={type(self.op).__name__}"
        return f"needle.Tensor({text}{notes}, requires_grad={self.requires_grad})"

    def __str__(self) -> str:
        return str(self.numpy())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __getstate__(self) -> dict[str, Any]:
        """Data, requires_grad and what subclasses added: a copy of a tensor is a leaf."""
        state = {k: v for k, v in self.__dict__.items() if k not in _OF_THE_GRAPH}
        return state | {"cached_data": self.realize_cached_data()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


_OF_THE_GRAPH = ("op", "inputs", "grad", "hooks")


def _array_of(array: Any, device: Any, dtype: Any) -> Any:
    """An array of this mode on ``device``, of ``dtype``, from whatever a Tensor is made of."""
    device = None if device is None else as_device(device)
    if isinstance(array, Tensor):
        data = array.realize_cached_data()
        same_device = device is None or device == device_of(data)
        if same_device and (dtype is None or numpy_dtype(dtype, "Tensor") == data.dtype):
            return data
        array = data
    if is_array(array):
        device = device_of(array) if device is None else device
        dtype = array.dtype if dtype is None else dtype
        array = to_numpy(array)
    return from_numpy(array, device, dtype)


def seed_gradient(output: Tensor, out_grad: Any = None) -> Tensor:
    """The gradient to start from, with the shape of ``output``."""
    ### BEGIN YOUR SOLUTION [backward]
    data = output.realize_cached_data()
    if out_grad is None:
        return Tensor.make_const(array_api.ones_like(data))
    if not isinstance(out_grad, Tensor):
        out_grad = Tensor(out_grad, device=output.device, dtype=data.dtype, requires_grad=False)
    seed: Tensor = out_grad
    if seed.shape != output.shape:
        if seed.size != output.size:
            raise ShapeError(
                f"backward: out_grad must have the tensor's shape {output.shape}, got "
                f"{seed.shape}; reshape it"
            )
        return seed.reshape(output.shape)
    return seed
    ### END YOUR SOLUTION


def compute_gradient_of_variables(output_tensor: Tensor, out_grad: Tensor) -> None:
    """Sets ``.grad`` of every node that ``output_tensor`` depends on and that requires grad.

    The gradients are recorded as graph nodes and the graph is kept:
    ``backward(retain_graph=True)`` under the course's name.
    """
    reverse_pass(find_topo_sort([output_tensor]), out_grad, _set_grad)


def _set_grad(node: Value, grad: Any) -> None:
    node.grad = grad


def _backward_releasing(output: Tensor, out_grad: Tensor, again: bool) -> None:
    """``backward`` that frees behind itself; with ``again`` it leaves a tape (see ``replay``)."""
    order = find_topo_sort([output])
    del output  # the caller's reference is the only one besides the graph's own
    if not again:
        with no_grad():
            reverse_pass(order, out_grad, _set_grad, release_for_good)
        return
    tape = Tape(order, out_grad)

    def set_grad(node: Value, grad: Any) -> None:
        # A node of its own: ops may hand one gradient object on to several inputs.
        recorded = grad.detach()
        recorded.op = ReplayedGradient(tape, tape.position[node])
        recorded.inputs, recorded.requires_grad = tape.leaves, True
        node.grad = recorded

    with no_grad():
        reverse_pass(order, out_grad, set_grad, release_onto(tape))
