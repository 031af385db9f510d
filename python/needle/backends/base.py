"""What a backend is: ten required functions, a list of optional ones, nothing else.

A backend sees ``View``\\ s (a buffer of its own with shape, strides and offset) and Python
scalars; it knows no NDArray, no Tensor, no gradient. Reshape, permute, broadcast, slices and
flips are arithmetic on views above this floor and cost no backend function.

Promises of the caller, so that a backend need not check them again:

* all views of one call belong to this backend; output views are writable, overlap no input
  (elementwise functions may get ``out`` *identical* to an input) and have no stride-0 axis;
* operands of ``binary``/``where`` have ``out``'s shape (broadcasting is done by stride 0) and one
  common dtype; scalars are Python ``bool``/``int``/``float`` to be taken in that dtype;
* any axis may have size 0 or 1, any stride may be negative or 0, any offset may be non-zero.

An optional kernel exists when the class overrides the method; that is the whole capability query
(``provides``). Without it the plain body in ``needle/accelerated`` runs, which is its definition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray as NumpyArray

from ..dtypes import DType

Scalar = bool | int | float


class View(NamedTuple):
    """A strided window on a backend's buffer. ``strides`` and ``offset`` count elements."""

    handle: Any
    """The backend's own buffer, one-dimensional; has ``.size`` (elements)."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: DType


Operand = View | Scalar
Pair = tuple[int, int]

# The operation names that unary/binary/reduce take; C++ has the same rows in elementwise_ops.h and
# reduce_ops.h. FLOAT_* are given float32/float64 only, the others every dtype unless noted.
UNARY_FLOAT = tuple(
    "exp expm1 log log1p log2 log10 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf floor ceil trunc round".split()
)
UNARY_NUMERIC = ("negative", "abs", "sign", "square")  # not bool
UNARY_TO_BOOL = ("isnan", "isinf", "isfinite", "logical_not")  # out is bool; is*: float only
UNARY_INTEGER = ("bitwise_invert",)  # integers and bool (there: not)
UNARY = UNARY_FLOAT + UNARY_NUMERIC + UNARY_TO_BOOL + UNARY_INTEGER

BINARY_NUMERIC = tuple(
    "add subtract multiply divide floor_divide remainder power maximum minimum".split()
)  # not bool; divide floats only; floor_divide/remainder as Python's // and %; integer x // 0 = 0
BINARY_FLOAT = ("atan2",)
BINARY_INTEGER = ("bitwise_and", "bitwise_or", "bitwise_xor")  # integers and bool
BINARY_LOGICAL = ("logical_and", "logical_or", "logical_xor")  # any dtype, out is bool
BINARY_COMPARE = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
BINARY = BINARY_NUMERIC + BINARY_FLOAT + BINARY_INTEGER + BINARY_LOGICAL + BINARY_COMPARE

REDUCE = ("sum", "prod", "max", "min", "any", "all")


class Backend(ABC):
    """Base class of every device's kernels. Subclass it, write the ten, register it."""

    name: str
    known_failures: Sequence[str] = ()
    """Rows of the conformance suite that this backend, under construction, may still fail."""
    matmul_precisions: Sequence[str] = ("float32",)
    """The values of ``config.matmul_precision`` that its products heed; others are as float32."""

    # ---- required: the ten -------------------------------------------------------------------

    @abstractmethod
    def allocate(self, size: int, dtype: DType) -> Any:
        """A new buffer of ``size`` elements, contents undefined; freed when dropped."""

    @abstractmethod
    def upload(self, source: NumpyArray[Any], out: View) -> None:
        """Writes a host array of ``out``'s shape and dtype (any strides) into ``out``."""

    @abstractmethod
    def download(self, a: View) -> NumpyArray[Any]:
        """A new compact host array with ``a``'s elements."""

    @abstractmethod
    def fill(self, out: View, value: Scalar) -> None:
        """out[...] = value, converted to ``out``'s dtype."""

    @abstractmethod
    def copy(self, a: View, out: View) -> None:
        """out[...] = a, equal shapes; dtypes may differ (C conversion; to bool: a != 0)."""

    @abstractmethod
    def unary(self, name: str, a: View, out: View) -> None:
        """out = name(a) elementwise; ``name`` is one of UNARY."""

    @abstractmethod
    def binary(self, name: str, a: Operand, b: Operand, out: View) -> None:
        """out = name(a, b) elementwise; at most one operand is a Python scalar."""

    @abstractmethod
    def where(self, condition: View, a: Operand, b: Operand, out: View) -> None:
        """out = a where condition (bool) else b; either or both may be Python scalars."""

    @abstractmethod
    def reduce(self, name: str, a: View, out: View) -> None:
        """Reduces the axes on which ``out`` has size 1; ``name`` is one of REDUCE.

        ``out`` keeps every axis: out.shape[i] is a.shape[i] or 1. Over an empty axis sum and any
        give 0, prod and all 1 (max and min never arrive with one). sum/prod: out has a's dtype
        (int32/int64/float); any/all: bool to bool; max/min: any dtype but bool, NaN wins.
        float32 sums want pairwise or several accumulators.
        """

    @abstractmethod
    def matmul(self, a: View, b: View, out: View) -> None:
        """out (..., m, n) = a (..., m, k) @ b (..., k, n), batch axes equal; k may be 0.

        dtypes: one of int32, int64, float32, float64, the same for all three.
        """

    # ---- optional: override to accelerate ----------------------------------------------------
    # Arrays of images are channels last: (N, H, W, C) with any strides; floats only.

    def relu_grad(self, grad: View, y: View, out: View) -> None:
        """out = grad where y > 0, else 0, elementwise; one shape and dtype."""
        raise NotImplementedError

    def bias_relu(self, a: View, bias: View, out: View) -> None:
        """out = the larger of a (..., C) + bias (C,) and 0; NaN stays NaN."""
        raise NotImplementedError

    def bias_relu_grad(self, grad: View, y: View, a_grad: View, bias_grad: View) -> None:
        """a_grad = relu_grad of grad and y; bias_grad (C,) = its sums over all axes but the last.

        float32 sums are of float64's accuracy, as reduce's.
        """
        raise NotImplementedError

    def softmax(self, a: View, out: View, axis: int) -> None:
        """out = exp(a - max) / sum(exp(a - max)) along ``axis`` (non-negative)."""
        raise NotImplementedError

    def log_softmax(self, a: View, out: View, axis: int) -> None:
        """out = a - logsumexp(a) along ``axis``."""
        raise NotImplementedError

    def logsumexp(self, a: View, out: View) -> None:
        """log(sum(exp(a))) over the axes on which ``out`` has size 1, max subtracted."""
        raise NotImplementedError

    def cross_entropy(self, logits: View, labels: View, out: View, smoothing: float) -> None:
        """out (N,) = -sum_c q_c log softmax(logits)_c; logits (N, C), labels int64 (N,) in [0, C).

        q = (1 - smoothing) * one_hot(label) + smoothing / C.
        """
        raise NotImplementedError

    def cross_entropy_grad(
        self, grad: View, logits: View, labels: View, out: View, smoothing: float
    ) -> None:
        """out (N, C) = grad[:, None] * (softmax(logits) - q); grad is (N,)."""
        raise NotImplementedError

    def batch_norm(
        self, x: View, weight: View, bias: View, out: View, mean: View, var: View, eps: float
    ) -> None:
        """Normalises over all axes but the last: x, out (..., C); the others (C,).

        Writes the batch mean and the *biased* variance; out = (x-mean)/sqrt(var+eps)*weight+bias.
        """
        raise NotImplementedError

    def batch_norm_grad(
        self,
        grad: View,
        x: View,
        weight: View,
        mean: View,
        var: View,
        x_grad: View,
        weight_grad: View,
        bias_grad: View,
        eps: float,
    ) -> None:
        """The three gradients of batch_norm (through mean and var too)."""
        raise NotImplementedError

    def batch_norm_relu(
        self, x: View, weight: View, bias: View, out: View, mean: View, var: View, eps: float
    ) -> None:
        """out = max(batch_norm's out, 0); the rest as batch_norm."""
        raise NotImplementedError

    def batch_norm_relu_grad(
        self,
        grad: View,
        x: View,
        weight: View,
        bias: View,
        mean: View,
        var: View,
        x_grad: View,
        weight_grad: View,
        bias_grad: View,
        eps: float,
    ) -> None:
        """batch_norm_grad of grad where batch_norm's out is positive, of 0 elsewhere."""
        raise NotImplementedError

    def batch_norm_add_relu(
        self,
        x: View,
        weight: View,
        bias: View,
        added: View,
        out: View,
        mean: View,
        var: View,
        eps: float,
    ) -> None:
        """out = max(batch_norm's out + added, 0), added like x; the rest as batch_norm."""
        raise NotImplementedError

    def batch_norm_add_relu_grad(
        self,
        grad: View,
        y: View,
        x: View,
        weight: View,
        mean: View,
        var: View,
        x_grad: View,
        weight_grad: View,
        bias_grad: View,
        added_grad: View,
        eps: float,
    ) -> None:
        """added_grad = grad where y, the forward pass's out, is positive; batch_norm_grad of it."""
        raise NotImplementedError

    def layer_norm(
        self, x: View, weight: View, bias: View, out: View, mean: View, var: View, eps: float
    ) -> None:
        """Normalises over the last axis: x, out (..., D); weight, bias (D,); mean, var (..., 1)."""
        raise NotImplementedError

    def layer_norm_grad(
        self,
        grad: View,
        x: View,
        weight: View,
        mean: View,
        var: View,
        x_grad: View,
        weight_grad: View,
        bias_grad: View,
        eps: float,
    ) -> None:
        """The three gradients of layer_norm."""
        raise NotImplementedError

    def max_pool2d(self, x: View, out: View, kernel: Pair, stride: Pair, padding: Pair) -> None:
        """out (N, OH, OW, C): window maxima; padding never wins; NaN wins."""
        raise NotImplementedError

    def max_pool2d_grad(
        self, grad: View, x: View, x_grad: View, kernel: Pair, stride: Pair, padding: Pair
    ) -> None:
        """Each output's gradient goes to the first maximum of its window (row by row)."""
        raise NotImplementedError

    def avg_pool2d(self, x: View, out: View, kernel: Pair, stride: Pair, padding: Pair) -> None:
        """Window means; padding counts as zeros in the mean."""
        raise NotImplementedError

    def avg_pool2d_grad(
        self, grad: View, x_grad: View, kernel: Pair, stride: Pair, padding: Pair
    ) -> None:
        """The gradient of avg_pool2d."""
        raise NotImplementedError

    def conv2d(
        self,
        x: View,
        weight: View,
        out: View,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> None:
        """Cross-correlation: x (N, H, W, C), weight (KH, KW, C/groups, O), out (N, OH, OW, O).

        OH = (H + 2*padding - dilation*(KH-1) - 1) // stride + 1; group g maps input channels
        [g*C/groups, ...) to output channels [g*O/groups, ...).
        """
        raise NotImplementedError

    def conv2d_bias(
        self,
        x: View,
        weight: View,
        bias: View,
        out: View,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> None:
        """conv2d plus bias (O,), added while the results are at hand."""
        raise NotImplementedError

    def conv2d_relu(
        self,
        x: View,
        weight: View,
        bias: View,
        out: View,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> None:
        """The larger of conv2d_bias and 0; NaN stays NaN."""
        raise NotImplementedError

    def conv2d_input_grad(
        self,
        grad: View,
        weight: View,
        x_grad: View,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> None:
        """x_grad (N, H, W, C) from grad (N, OH, OW, O); written whole, zeros where nothing came."""
        raise NotImplementedError

    def conv2d_weight_grad(
        self,
        grad: View,
        x: View,
        weight_grad: View,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> None:
        """weight_grad (KH, KW, C/groups, O) from grad (N, OH, OW, O) and x (N, H, W, C)."""
        raise NotImplementedError

    def gather(self, a: View, index: View, out: View) -> None:
        """out[i, ...] = a[index[i], ...]; index int64 (n,), already in [0, len(a)). Any dtype."""
        raise NotImplementedError

    def scatter(self, a: View, index: View, out: View) -> None:
        """out[index[i], ...] = a[i, ...] in order of i (the last of equal indices stays)."""
        raise NotImplementedError

    def scatter_add(self, a: View, index: View, out: View) -> None:
        """out[index[i], ...] += a[i, ...] in order of i."""
        raise NotImplementedError

    def one_hot(self, index: View, out: View) -> None:
        """out (n, C) = 1 where column == index[i] else 0; index int64 (n,)."""
        raise NotImplementedError

    def argmax(self, a: View, out: View, axis: int) -> None:
        """out int64 = position of the first maximum along ``axis`` (size 1 in out); NaN wins."""
        raise NotImplementedError

    def argmin(self, a: View, out: View, axis: int) -> None:
        """out int64 = position of the first minimum along ``axis``; NaN wins."""
        raise NotImplementedError

    def random(self, name: str, out: View, seed: int, draw: int, a: float, b: float) -> None:
        """out in row-major order: ``name`` is uniform [a, a + b), normal (mean a, deviation b) or
        bernoulli (b with probability a, else 0). Floats.

        Bit for bit the definition: Philox's words by seed (64 bits), draw (32) and place.
        """
        raise NotImplementedError

    def sgd_step(
        self,
        params: Sequence[View],
        grads: Sequence[View],
        velocities: Sequence[View],
        outs: Sequence[View],
        lr: float,
        momentum: float,
        dampening: float,
        weight_decay: float,
        nesterov: bool,
    ) -> None:
        """One pass over all parameters, compact views of one dtype; ``velocities`` empty if unused.

        g += weight_decay*p; v = momentum*v + (1-dampening)*g; out = p - lr*(nesterov ?
        g + momentum*v : v). Velocities change in place; ``outs`` are new buffers or the params.
        """
        raise NotImplementedError

    def adam_step(
        self,
        params: Sequence[View],
        grads: Sequence[View],
        firsts: Sequence[View],
        seconds: Sequence[View],
        outs: Sequence[View],
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        decoupled: bool,
        step: int,
    ) -> None:
        """Adam (Kingma & Ba 2015), moments in place; ``decoupled``: AdamW's weight decay.

        u = m/(1-beta1**step), w = v/(1-beta2**step); out = p - lr*u/(sqrt(w)+eps). Coupled:
        g += weight_decay*p first; decoupled: p *= 1 - lr*weight_decay first. ``outs`` as above.
        """
        raise NotImplementedError

    # ---- services, with defaults that are always right ---------------------------------------

    def adopt(self, source: NumpyArray[Any]) -> Any | None:
        """A handle sharing the memory of a compact, writable host array, or None if impossible."""
        return None

    def export(self, a: View) -> NumpyArray[Any] | None:
        """A host array sharing ``a``'s memory (strides kept), or None if impossible."""
        return None

    def memory_stats(self) -> dict[str, int]:
        """Bytes: ``in_use``, ``cached``, ``peak``; counts: ``allocations``, ``reuses``."""
        return {}

    def empty_cache(self) -> None:
        """Gives cached, unused memory back to the system."""

    def synchronize(self) -> None:
        """Waits until all work given to the device is done."""

    def record_graph(self, run: Callable[[], None]) -> Callable[[], None]:
        """Notes the kernels that ``run`` calls instead of running them; the result launches them.

        One launch for all, on the buffers that they were given, which must be there by then. Asked
        for by ``needle.capture`` where it is here. RuntimeError, with the reason, where ``run``
        waits for the device or the host; nothing was run then.
        """
        raise NotImplementedError

    def run_images(
        self,
        steps: Sequence[tuple[str, tuple[float, ...]]],
        parameters: Sequence[NumpyArray[Any]],
        images: Any,
        indices: NumpyArray[Any] | None,
        out: View,
    ) -> None:
        """Augments a batch on the device, for ``needle.data``, which asks first whether it is here.

        steps, parameters, indices: as in ``native_kernels.run_images``. images: host arrays as
        there, or a View ``(N, H, W, C)``; free to change on return. out: a compact View.
        """
        raise NotImplementedError

    def pin(self, memory: Any) -> Any | None:
        """Lets the device read this host memory (a buffer) by itself while the result is held.

        None where there is nothing to gain by it, or where it cannot be.
        """
        return None


REQUIRED = tuple(
    name for name, member in vars(Backend).items() if getattr(member, "__isabstractmethod__", False)
)
SERVICES = (
    "adopt",
    "export",
    "memory_stats",
    "empty_cache",
    "synchronize",
    "record_graph",
    "run_images",
    "pin",
)
OPTIONAL = tuple(
    name
    for name, member in vars(Backend).items()
    if callable(member) and not name.startswith("_") and name not in REQUIRED + SERVICES
)


def provides(backend: Backend, name: str) -> bool:
    """Whether the backend overrides the optional kernel ``name``."""
    return getattr(type(backend), name) is not getattr(Backend, name)
