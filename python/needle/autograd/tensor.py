"""Tensor, TensorTuple and ``backward``; no op is named here.

The ops are in ``needle.ops``. They attach Tensor's operators and methods when they register
(``tensor_methods.pyi`` lists these for type checkers). The reverse pass itself is in ``graph``.

``retain_graph`` decides what ``y.backward()`` keeps. None (the default) frees every intermediate
buffer during the pass and can recompute it, so ``x.grad`` is still a graph node that can be
differentiated. True keeps everything. False frees everything permanently, and the gradients are
constants.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..array_namespace import array_api, device_of, from_numpy, is_array, to_numpy
from ..array_namespace import device as as_device
from ..dtypes import is_floating, is_real, numpy_dtype
from ..errors import DTypeError, ShapeError, warn_caller
from ..host_steps import host_step
from ..torch_names import MethodPointers, points_to_keywords
from .discarding import Discarded
from .graph import Op, find_topo_sort, no_grad, recording, reverse_pass
from .replay import (
    ReplayedGradient,
    Tape,
    note_tape,
    promise_gradients,
    release_for_good,
    release_onto,
)
from .value import RECORDS, Value, as_array

if TYPE_CHECKING:
    from .tensor_methods import TensorMethods
else:

    class TensorMethods(MethodPointers):
        """For type checkers, the methods that ops attach; at run time, hints for unknown names."""


class TensorOp(Op):
    """An op whose result is one Tensor."""

    def __call__(self, *args: Any) -> Tensor:
        """Return the result for Tensors, arrays and numbers as a Tensor."""
        for arg in args:
            if not isinstance(arg, Value):
                args = _as_values(args)
                break
        return Tensor.make_from_op(self, args)


class TensorTupleOp(Op):
    """An op whose result is a TensorTuple; ``compute`` returns a tuple or list of arrays."""

    def __call__(self, *args: Any) -> TensorTuple:
        """Return the result for Tensors, arrays and numbers as a TensorTuple."""
        return TensorTuple.make_from_op(self, _as_values(args))


class Detach(TensorOp):
    """The op of ``detach``: the identity without a gradient."""

    differentiable = False

    def compute(self, a: Any) -> Any:
        """Return ``a`` itself."""
        return a


def _as_values(args: Sequence[Any]) -> tuple[Value, ...]:
    """Convert arrays and numbers to constants that match the Tensors they are combined with."""
    like = next((arg for arg in args if isinstance(arg, Tensor)), None)
    return tuple(arg if isinstance(arg, Value) else as_operand(arg, like) for arg in args)


def as_operand(b: Any, like: Any = None) -> Tensor:
    """Return a Tensor as is, and an array or number as a constant on the device of ``like``.

    Floating values take the dtype of a floating ``like``, and Python numbers that of
    ``number_dtype``. DTypeError for anything that is not a number or an array of numbers.
    """
    if isinstance(b, Tensor):
        return b
    if not isinstance(like, Tensor):  # no operand is a Tensor
        return Tensor(b, requires_grad=False)
    host = b if is_array(b) else np.asarray(b)
    if not is_real(host.dtype):
        raise DTypeError(
            f"Tensor: an operand must be a number or an array of numbers, got {b!r}; convert it"
        )
    dtype = like.dtype if is_floating(host.dtype) and is_floating(like.dtype) else host.dtype
    if isinstance(b, (int, float)):
        dtype = number_dtype(b, like.dtype)
    return Tensor(b, device=like.device, dtype=dtype, requires_grad=False)


def number_dtype(number: float, dtype: Any) -> Any:
    """Return the dtype that a Python number takes in an operation with an array of ``dtype``.

    This is ``dtype``, except float32 for a float with integers, and int64 for an int with bool.
    """
    if isinstance(number, float):
        return dtype if is_floating(dtype) else "float32"
    return "int64" if dtype == "bool" and not isinstance(number, bool) else dtype


class TensorTuple(Value):
    """Several arrays as one node: the result of split, the input of stack."""

    cached_data: tuple[Any, ...]
    items: tuple[Tensor, ...] | None = None
    """The tensors that it was built from, if any."""
    item_of: ClassVar[Callable[[TensorTuple, int], Tensor]]
    sum_of: ClassVar[Callable[[TensorTuple, TensorTuple], TensorTuple]]
    """Implementations of ``tuple[i]`` and ``tuple + tuple``, set by ``ops.tuples``."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shapes of the items."""
        return tuple(tuple(data.shape) for data in self.realize_cached_data())

    def __len__(self) -> int:
        return len(self.realize_cached_data())

    def __getitem__(self, index: int) -> Tensor:
        return type(self).item_of(self, index)

    def __add__(self, other: TensorTuple) -> TensorTuple:
        return type(self).sum_of(self, other)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def detach(self) -> TensorTuple:
        """Return a constant that shares this value's data."""
        return TensorTuple.make_const(self.realize_cached_data())

    def tuple(self) -> Any:
        """Return the items as a Python tuple of Tensors."""
        return tuple(self)

    def numpy(self) -> Any:
        """Return the items as a tuple of NumPy arrays, as ``Tensor.numpy`` does."""
        return tuple(_read_only(data) for data in self.realize_cached_data())

    def __repr__(self) -> str:
        return f"needle.TensorTuple{tuple(self)!r}"


class Tensor(Value, TensorMethods):
    """An array that remembers how it was computed.

    ``array``: a Tensor (whose data is shared if device and dtype agree), an array, or anything that
    NumPy converts. ``device``: by default that of the array, otherwise ``default_device()``.
    ``dtype``: by default float32 for anything but needle arrays (in np mode NumPy's own dtype).
    ``==`` and ``hash`` compare identities. ``bool`` of a floating leaf that requires grad is True;
    for other tensors it is that of their only element, and ShapeError if there is not exactly one.
    """

    __array_ufunc__ = None  # ``ndarray * tensor`` then calls our reflected operators

    def __init__(
        self, array: Any, *, device: Any = None, dtype: Any = None, requires_grad: bool = True
    ) -> None:
        self.cached_data = _array_of(array, device, dtype)
        self.requires_grad = requires_grad

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
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
        """The device that holds the data."""
        data = self.cached_data
        return data.device if type(data) is Discarded else device_of(self.realize_cached_data())

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        data = self.cached_data
        return int((self.realize_cached_data() if data is None else data).size)

    def detach(self) -> Tensor:
        """Return a constant that shares this tensor's data."""
        return Detach()(self)

    @property
    def data(self) -> Tensor:
        """A constant that shares the data; assignment replaces the data.

        The new value must be a Tensor of the same dtype and may have any shape; TypeError or
        DTypeError otherwise.
        """
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(
                f"data: the new value must be a Tensor, got {type(value).__name__}; convert it "
                f"with needle.Tensor(value, device=..., dtype={str(self.dtype)!r})"
            )
        if value.dtype != self.dtype:
            raise DTypeError(
                f"data: the dtype must stay {self.dtype}, got {value.dtype}; cast the new value "
                f"with astype({str(self.dtype)!r})"
            )
        self.cached_data, self.changed_by = value.realize_cached_data(), "an assignment to .data"

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy of the data as a NumPy array, which may be 0-d.

        It is read-only, because writes to it would not change the tensor; use ``numpy.array(x)``
        for a writable copy.
        """
        return _read_only(self.realize_cached_data())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        host = self.numpy()
        return np.array(host, dtype=dtype) if copy else np.asarray(host, dtype=dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        place: tuple[int, int] = self.realize_cached_data().__dlpack_device__()
        return place

    def __dlpack__(self, **options: Any) -> Any:
        """Return a DLPack capsule that shares the data; the other library records no gradient."""
        return self.realize_cached_data().__dlpack__(**options)

    def item(self) -> Any:
        """Return the only element as a Python number; ShapeError if there are more or none."""
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
        if self.op is None and self.requires_grad and is_floating(self.dtype):
            if self.size == 1 and not self.item():
                warn_caller(
                    "bool: a leaf that requires grad is True, although its only element is 0; "
                    "write item() != 0 to test its value, or `is not None` to test whether there "
                    "is a tensor",
                    UserWarning,
                )
            return True
        if self.size != 1:
            raise ShapeError(
                f"bool: the tensor must have one element, got shape {self.shape}; use all() or "
                "any(), or `is not None` to test whether there is a tensor"
            )
        return bool(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len: a 0-d tensor has no length, got shape (); use item()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    @points_to_keywords
    def backward(
        self, out_grad: Any = None, retain_graph: bool | None = None, accumulate: bool = False
    ) -> None:
        """Compute ``.grad`` of every tensor that this one depends on and that requires grad.

        ``out_grad``: the gradient of this tensor, ones by default. ``retain_graph``: see the top of
        this module. ``accumulate``: add to the ``.grad`` that leaves have, as PyTorch does, instead
        of overwriting it; the sums are constants. UserWarning if this tensor is a constant,
        GraphError if the graph has been released.
        """
        if not self.requires_grad:
            warn_caller(
                "backward: the tensor is a constant, so no gradient was computed; compute it from "
                "tensors with requires_grad=True, outside no_grad",
                UserWarning,
            )
            return
        seed = seed_gradient(self, out_grad)
        found: list[tuple[Value, Any]] = []
        visit = _collect_for_leaves(found) if accumulate else _set_grad
        if retain_graph:
            order = find_topo_sort([self])
            tape = Tape(order, seed)
            promise_gradients(order, None if accumulate else tape)
            tape.position.clear()  # so that only the program's references keep the graph alive
            reverse_pass(order, seed, visit)
        else:
            _backward_releasing(self, seed, retain_graph is None and recording.on, visit)
        if found:
            _add_to_grads(*(each for pair in found for each in pair))

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
        """Return data, requires_grad and subclass attributes: a copy of a tensor is a leaf."""
        state = {k: v for k, v in self.__dict__.items() if k not in _GRAPH_ATTRIBUTES}
        return state | {"cached_data": self.realize_cached_data()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """Return a leaf with copies of the data, the subclass attributes and ``grad``."""
        parts: Any = self.__reduce_ex__(4)
        make, arguments, *state = parts
        copied: Tensor = make(*copy.deepcopy(arguments, memo))
        memo[id(self)] = copied
        if state and state[0] is not None:
            copied.__setstate__(copy.deepcopy(state[0], memo))
        if self.op is None and "grad" in vars(self):
            copied.grad = copy.deepcopy(self.grad, memo)
            if isinstance(self.grad, Tensor) and self.grad.op is not None:
                copied.grad.requires_grad = False  # the copy has no graph
        return copied


def _read_only(data: Any) -> np.ndarray[Any, Any]:
    host = np.asarray(to_numpy(data))
    host.flags.writeable = False
    return host


_GRAPH_ATTRIBUTES = ("op", "inputs", "grad", "hooks", *RECORDS)


def _array_of(array: Any, device: Any, dtype: Any) -> Any:
    """Return an array on ``device`` with ``dtype`` from any input that a Tensor accepts."""
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
    """Return the gradient that backward starts with: ones, or ``out_grad`` of output's shape."""
    ### BEGIN YOUR SOLUTION [backward]
    data = output.realize_cached_data()
    if out_grad is None:
        return Tensor.make_const(array_api.ones_like(data))
    if not isinstance(out_grad, Tensor):
        out_grad = Tensor(out_grad, device=output.device, dtype=data.dtype, requires_grad=False)
    seed: Tensor = out_grad
    if seed.shape != output.shape:
        if seed.size != 1 or output.size != 1:
            raise ShapeError(
                f"backward: out_grad must have the tensor's shape {output.shape}, got "
                f"{seed.shape}; reshape it"
            )
        return seed.reshape(output.shape)
    return seed
    ### END YOUR SOLUTION


def compute_gradient_of_variables(output_tensor: Tensor, out_grad: Tensor) -> None:
    """Compute ``.grad`` of every node that ``output_tensor`` depends on and that requires grad.

    The gradients are recorded as graph nodes and the graph is kept, as in
    ``backward(retain_graph=True)``. The course calls this function.
    """
    reverse_pass(find_topo_sort([output_tensor]), out_grad, _set_grad)


def _set_grad(node: Value, grad: Any) -> None:
    node.grad = grad


def _collect_for_leaves(found: list[tuple[Value, Any]]) -> Callable[[Value, Any], None]:
    """Return a ``reverse_pass`` callback that lists the gradients of leaves and sets all others."""

    def visit(node: Value, grad: Any) -> None:
        if node.op is None:
            found.append((node, grad.detach()))
        else:
            node.grad = grad

    return visit


@host_step(changes_state=True)
def _add_to_grads(*pairs: Any) -> None:
    """Add to each leaf's ``.grad``; ``pairs`` alternates leaves and gradients."""
    for leaf, grad in zip(pairs[::2], pairs[1::2], strict=True):
        if leaf.grad is not None:
            total = leaf.grad.realize_cached_data() + grad.realize_cached_data()
            grad = Tensor.make_const(as_array(total))
        leaf.grad = grad


def _backward_releasing(
    output: Tensor, out_grad: Tensor, again: bool, visit: Callable[[Value, Any], None]
) -> None:
    """Run ``backward`` and free the graph; with ``again``, leave a tape (see ``replay``)."""
    order = find_topo_sort([output])
    del output  # now only the caller and the graph refer to it
    if not again:
        promise_gradients(order, None)
        with no_grad():
            reverse_pass(order, out_grad, visit, release_for_good)
        return
    tape = Tape(order, out_grad)
    promise_gradients(order, tape if visit is _set_grad else None)

    def record(node: Value, grad: Any) -> None:
        # A separate node, because an op may pass one gradient object to several inputs.
        kind: Any = Tensor if isinstance(grad, Tensor) else TensorTuple
        recorded = kind.make_const(grad, requires_grad=True)
        position = tape.position[node]
        recorded.op = ReplayedGradient(tape, position, tape.leaves)
        recorded.inputs = tape.leaves
        if node.op is None:
            note_tape(node, tape, position, visit is not _set_grad)
        visit(node, recorded)

    with no_grad():
        reverse_pass(order, out_grad, record, release_onto(tape))
