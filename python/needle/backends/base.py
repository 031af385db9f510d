"""The interface of a backend: ten required functions, and optional ones.

A backend gets views (``View``: one of its buffers, shape, strides and offset) and Python scalars;
it knows no NDArray, Tensor or gradient. Reshape, permute, broadcast, slices and flips are
arithmetic on views, which higher floors do without the backend.

The caller guarantees the following, so a backend need not check it:

* all views of one call belong to this backend; output views are writable, overlap no input and
  have no axis of stride 0; as an exception, ``out`` may be *identical* to an input of an
  elementwise function (including ``apply_epilogue`` and ``relu_grad``) or to x of ``batch_norm``,
  and ``x_grad`` to grad or x of ``batch_norm_grad``;
* operands of ``binary`` and ``where`` have the shape of ``out`` (broadcasting is stride 0) and one
  dtype; a scalar is a Python ``bool``, ``int`` or ``float``, to be converted to that dtype;
* any axis may have size 0 or 1, any stride may be negative or 0, any offset may be non-zero.

An optional kernel is available if the class overrides its method (``provides``). Without it, the
definition in ``needle/accelerated`` runs. Four attributes declare what an override cannot show:
``dtypes``, ``optional_unary``, ``bfloat16_kernels`` and ``matmul_precisions``.

A backend with "bfloat16" in ``dtypes`` implements the ten functions for this dtype too. They
compute in float32 (a scalar is a float32) and round each result once, to the nearest, ties to even.
An optional kernel gets bfloat16 only if ``bfloat16_kernels`` names it; the vectors of a
normalisation, which have one value for each channel, are then float32.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray as NumpyArray

from ..dtypes import COMPUTE_DTYPES, DType
from ..shapes import Geometry, Shape

Scalar = bool | int | float


class View(NamedTuple):
    """A strided view of a backend's buffer. ``strides`` and ``offset`` count elements."""

    handle: Any
    """The backend's buffer, one-dimensional, with ``.size`` elements. It takes attributes."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: DType


Operand = View | Scalar
Pair = tuple[int, int]


class Epilogue(NamedTuple):
    """The steps, in field order, that a kernel applies to each result before storing it.

    The fields are views in a kernel call and arrays in ``accelerated``.
    """

    bias: Any = None
    """(C,): added along the last axis."""
    residual: Any = None
    """An array of the result's shape: added elementwise."""
    relu: bool = False
    """The larger of the result and 0; NaN stays NaN."""


class EpilogueGrad(NamedTuple):
    """The arguments of a gradient kernel for the epilogue of its forward pass.

    All are None if there was no epilogue. After relu, ``bias`` is set; after a residual and relu,
    the other two are set.
    """

    bias: View | None = None
    """relu: the forward pass's bias (C,), from which the sign of the result is computed again."""
    result: View | None = None
    """Residual and relu: the result of the forward pass."""
    residual_grad: View | None = None
    """An output: the gradient of the residual, which is the gradient where result > 0, else 0."""


NO_EPILOGUE = Epilogue()
MOMENT_PIXELS = 64
"""Number of pixels in each part for which ``conv2d_moments`` writes moments."""

# The names passed to unary, binary and reduce; elementwise_ops.h and reduce_ops.h have the same
# rows. *_FLOAT are called only with float32 and float64, others with every dtype unless noted.
UNARY_FLOAT = tuple(
    "exp expm1 log log1p log2 log10 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf floor ceil trunc round".split()
)
UNARY_NUMERIC = ("negative", "abs", "sign", "square")  # Any dtype but bool.
# The result is bool; is* take floats only.
UNARY_TO_BOOL = ("isnan", "isinf", "isfinite", "logical_not")
UNARY_INTEGER = ("bitwise_invert",)  # Integers and bool; for bool it is logical not.
UNARY = UNARY_FLOAT + UNARY_NUMERIC + UNARY_TO_BOOL + UNARY_INTEGER

BINARY_NUMERIC = tuple(
    "add subtract multiply divide floor_divide remainder power maximum minimum".split()
)  # no bool; divide: only floats; floor_divide, remainder: Python's //, %; integer x // 0 = 0
BINARY_FLOAT = ("atan2",)
BINARY_INTEGER = ("bitwise_and", "bitwise_or", "bitwise_xor")  # Integers and bool.
BINARY_LOGICAL = ("logical_and", "logical_or", "logical_xor")  # Any dtype; the result is bool.
BINARY_COMPARE = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
BINARY = BINARY_NUMERIC + BINARY_FLOAT + BINARY_INTEGER + BINARY_LOGICAL + BINARY_COMPARE

REDUCE = ("sum", "prod", "max", "min", "any", "all")


class Backend(ABC):
    """Base class of backends: subclass it, write the ten functions, and register the subclass."""

    name: str
    known_failures: Sequence[str] = ()
    """Rows of the conformance suite that a backend under construction may still fail."""
    optional_unary: Sequence[str] = ()
    """The names that ``unary`` takes beyond UNARY; ``accelerated.ELEMENTWISE`` defines them."""
    matmul_precisions: Sequence[str] = ("float32",)
    """The values of ``config.matmul_precision`` that its products support; others mean float32."""
    dtypes: Sequence[str] = tuple(dtype.name for dtype in COMPUTE_DTYPES)
    """The names of the dtypes that it has; ``allocate`` raises DTypeError for others."""
    bfloat16_kernels: Sequence[str] = ()
    """The optional kernels that take bfloat16, for a backend with "bfloat16" in ``dtypes``."""

    # ---- required: the ten -------------------------------------------------------------------

    @abstractmethod
    def allocate(self, size: int, dtype: DType) -> Any:
        """Return a new uninitialised buffer of ``size`` elements, freed when unreferenced."""

    @abstractmethod
    def upload(self, source: NumpyArray[Any], out: View) -> None:
        """Copy a host array (any strides) into ``out``, which has its shape and dtype."""

    @abstractmethod
    def download(self, a: View) -> NumpyArray[Any]:
        """Return a new contiguous host array with the elements of ``a``."""

    @abstractmethod
    def fill(self, out: View, value: Scalar) -> None:
        """Compute ``out[...] = value``, converted to the dtype of ``out``."""

    @abstractmethod
    def copy(self, a: View, out: View) -> None:
        """Compute ``out[...] = a`` for equal shapes, casting as C does (to bool: a != 0)."""

    @abstractmethod
    def unary(self, name: str, a: View, out: View) -> None:
        """Compute ``out = name(a)`` elementwise; ``name`` is one of UNARY."""

    @abstractmethod
    def binary(self, name: str, a: Operand, b: Operand, out: View) -> None:
        """Compute ``out = name(a, b)`` elementwise; at most one operand is a Python scalar."""

    @abstractmethod
    def where(self, condition: View, a: Operand, b: Operand, out: View) -> None:
        """Compute ``out = a if condition else b`` elementwise; a and b may be Python scalars."""

    @abstractmethod
    def reduce(self, name: str, a: View, out: View) -> None:
        """Reduce the axes on which ``out`` has size 1; ``name`` is one of REDUCE.

        ``out`` keeps every axis: out.shape[i] is a.shape[i] or 1. Over an empty axis, sum and any
        are 0, prod and all are 1; max and min are never called with one. sum and prod: out has the
        dtype of a (int32, int64 or floating); any and all: bool to bool; max and min: any dtype but
        bool, and NaN propagates. float32 sums need pairwise summation or several accumulators.
        """

    @abstractmethod
    def matmul(self, a: View, b: View, out: View) -> None:
        """Compute out (..., m, n) = a (..., m, k) @ b (..., k, n), batch axes equal; k may be 0.

        All three have one dtype: int32, int64, float32, float64 or bfloat16.
        """

    # ---- optional: override to accelerate ----------------------------------------------------
    # Images are channels last, (N, H, W, C), floating, with any strides. Kernels that a backend
    # does not override raise NotImplementedError, as the end of this file arranges.

    def apply_epilogue(self, a: View, out: View, epilogue: Epilogue) -> None:
        """Compute out = epilogue(a) for a (..., C); the epilogue is a bias (C,) and relu."""

    def relu_grad(self, grad: View, y: View, out: View, bias_grad: View | None) -> None:
        """Compute out = grad where y > 0, else 0; all three have one shape and dtype.

        Where y is NaN, out is NaN. bias_grad (C,), if not None, gets the sums of out over all axes
        but the last. float32 sums must be as accurate as those of ``reduce``.
        """

    def softmax(self, a: View, out: View, axis: int) -> None:
        """Compute out = exp(a - max) / sum(exp(a - max)) along ``axis`` (non-negative)."""

    def log_softmax(self, a: View, out: View, axis: int) -> None:
        """Compute out = a - logsumexp(a) along ``axis``."""

    def logsumexp(self, a: View, out: View) -> None:
        """Compute log(sum(exp(a))) without overflow over the axes where ``out`` has size 1."""

    def cross_entropy(self, logits: View, labels: View, out: View, smoothing: float) -> None:
        """Compute out (N,) = -sum_c q_c log softmax(logits)_c, q the smoothed labels.

        logits: (N, C); labels: int64 (N,) in [0, C). q = (1 - smoothing) * one_hot(label) +
        smoothing / C.
        """

    def cross_entropy_grad(
        self, grad: View, logits: View, labels: View, out: View, smoothing: float
    ) -> None:
        """Compute out (N, C) = grad[:, None] * (softmax(logits) - q); grad is (N,)."""

    def batch_norm(
        self,
        x: View,
        weight: View,
        bias: View,
        out: View,
        mean: View,
        var: View,
        eps: float,
        epilogue: Epilogue,
    ) -> None:
        """Normalise over all axes but the last: x, out (..., C); the others (C,).

        Write the batch mean, the *biased* variance, and out = (x-mean)/sqrt(var+eps)*weight+bias
        after the epilogue: none, relu, or a residual and relu.
        """

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
        epilogue: EpilogueGrad,
    ) -> None:
        """Compute the gradients of batch_norm; mean and var depend on x.

        If the forward pass had an epilogue, ``grad`` counts as 0 where relu gave 0 and as NaN where
        it gave NaN, and the gradient of a residual is also an output (``EpilogueGrad``).
        """

    def layer_norm(
        self, x: View, weight: View, bias: View, out: View, mean: View, var: View, eps: float
    ) -> None:
        """Normalise over the last axis: x, out (..., D); weight, bias (D,); mean, var (..., 1)."""

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
        """Compute the three gradients of layer_norm."""

    def max_pool2d(self, x: View, out: View, kernel: Pair, stride: Pair, padding: Pair) -> None:
        """Compute window maxima, out (N, OH, OW, C); NaN propagates, padding is ignored."""

    def max_pool2d_grad(
        self, grad: View, x: View, x_grad: View, kernel: Pair, stride: Pair, padding: Pair
    ) -> None:
        """Add each output's gradient at its window's first maximum in row-major order."""

    def avg_pool2d(self, x: View, out: View, kernel: Pair, stride: Pair, padding: Pair) -> None:
        """Compute the means of windows; padding counts as zeros."""

    def avg_pool2d_grad(
        self, grad: View, x_grad: View, kernel: Pair, stride: Pair, padding: Pair
    ) -> None:
        """Compute the gradient of avg_pool2d."""

    def conv2d(
        self, x: View, weight: View, out: View, geometry: Geometry, epilogue: Epilogue
    ) -> None:
        """Cross-correlate x (N, H, W, C) with weight (KH, KW, C/groups, O) to out (N, OH, OW, O).

        OH = (H + 2*padding - dilation*(KH-1) - 1) // stride + 1; group g maps input channels
        [g*C/groups, ...) to output channels [g*O/groups, ...). The epilogue has no residual.
        """

    def conv2d_input_grad(self, grad: View, weight: View, x_grad: View, geometry: Geometry) -> None:
        """Compute x_grad (N, H, W, C) from grad (N, OH, OW, O); 0 for elements in no window."""

    def conv2d_weight_grad(
        self, grad: View, x: View, weight_grad: View, geometry: Geometry
    ) -> None:
        """Compute weight_grad (KH, KW, C/groups, O); the other shapes are those of ``conv2d``."""

    def gather(self, a: View, index: View, out: View) -> None:
        """Compute out[i, ...] = a[index[i], ...], any dtype; index: int64 (n,) in [0, len(a))."""

    def scatter(self, a: View, index: View, out: View) -> None:
        """Compute out[index[i], ...] = a[i, ...] in order of i; the last of equal indices wins."""

    def scatter_add(self, a: View, index: View, out: View) -> None:
        """Compute out[index[i], ...] += a[i, ...] in order of i."""

    def one_hot(self, index: View, out: View) -> None:
        """Compute out (n, C): 1 where column == index[i], else 0; index: int64 (n,)."""

    def argmax(self, a: View, out: View, axis: int) -> None:
        """Compute the int64 position of the first maximum or NaN along ``axis`` (size 1 in out)."""

    def argmin(self, a: View, out: View, axis: int) -> None:
        """Compute the int64 position of the first minimum or NaN along ``axis``."""

    def random(self, name: str, out: View, seed: int, draw: int, a: float, b: float) -> None:
        """Fill ``out``, floating, in row-major order with random numbers.

        ``name``: uniform in [a, a + b); normal with mean a and standard deviation b; bernoulli, b
        with probability a, else 0. The bits are those of the definition: Philox words of seed (64
        bits), draw (32 bits) and position.
        """

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
        """Update all parameters, contiguous views of one dtype; ``velocities`` is empty if unused.

        g += weight_decay*p; v = momentum*v + (1-dampening)*g; out = p - lr*(nesterov ?
        g + momentum*v : v). Velocities change in place; ``outs`` are new buffers or the params.
        """

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
        """Take a step of Adam (Kingma & Ba 2015), updating moments in place; ``decoupled``: AdamW.

        u = m/(1-beta1**step), w = v/(1-beta2**step); out = p - lr*u/(sqrt(w)+eps). Coupled:
        g += weight_decay*p first; decoupled: p *= 1 - lr*weight_decay first. ``outs`` as above.
        """

    # ---- services, with defaults that suit every device --------------------------------------

    def adopt(self, source: NumpyArray[Any]) -> Any | None:
        """Return a handle on the memory of a contiguous, writable host array, or None."""
        return None

    def export(self, a: View) -> NumpyArray[Any] | None:
        """Return a host array that shares the memory and strides of ``a``, or None."""
        return None

    def memory_stats(self) -> dict[str, int]:
        """Return bytes ``in_use``, ``cached``, ``peak`` and counts ``allocations``, ``reuses``."""
        return {}

    def empty_cache(self) -> None:
        """Return cached, unused memory to the system."""

    def synchronize(self) -> None:
        """Wait until the device has finished all its work."""

    def prepare_calls(
        self, calls: list[tuple[Callable[..., None], tuple[Any, ...]]]
    ) -> Callable[[tuple[tuple[Any, int], ...]], None] | None:
        """Return a function that runs kernels without running Python in between, or None.

        calls: pairs of a kernel of this backend and its arguments. Each View has the number of a
        buffer in place of its handle. The function takes a tuple with a pair (handle, shift) for
        each buffer; ``shift`` is added to the offsets of its views. Only one thread at a time may
        run it. ``needle.capture`` calls the kernels one by one if the result is None.
        """
        return None

    def record_graph(self, run: Callable[[], None]) -> Callable[[], None]:
        """Record the kernels that ``run`` calls; return a function that launches all of them.

        The kernels do not run while they are recorded. A launch uses the buffers of the recording,
        which must still exist. ``needle.capture`` calls this where a backend overrides it.
        RuntimeError, with the reason, if ``run`` waits for the device or the host; no kernel has
        run then.
        """
        raise NotImplementedError

    def prepared_conv2d_size(self, x_shape: Shape, weight_shape: Shape, geometry: Geometry) -> int:
        """Return the number of elements that ``prepare_conv2d`` writes; 0 if it is not worthwhile.

        A backend overrides this, ``prepare_conv2d`` and ``conv2d_prepared`` together;
        ``needle.capture`` calls them for float32 in inference. x_shape: (N, H, W, C); weight_shape:
        (KH, KW, C, O).
        """
        return 0

    def prepare_conv2d(self, weight: View, out: View, x_shape: Shape, geometry: Geometry) -> None:
        """Write the weights as a contiguous vector in the order that ``conv2d_prepared`` reads."""
        raise NotImplementedError

    def conv2d_prepared(
        self,
        x: View,
        weight: View,
        prepared: View,
        out: View,
        geometry: Geometry,
        epilogue: Epilogue,
    ) -> None:
        """Compute ``conv2d`` with the same bits; ``prepared`` was written by ``prepare_conv2d``."""
        raise NotImplementedError

    def conv2d_moments(
        self,
        x: View,
        weight: View,
        out: View,
        geometry: Geometry,
        epilogue: Epilogue,
        moments: View,
    ) -> None:
        """Compute ``conv2d`` with the same bits, and the moments of every 64 pixels of ``out``.

        moments: contiguous float32 (ceil(pixels / 64), 2, O), which has, for each part of
        ``MOMENT_PIXELS`` pixels in the order of (N, OH, OW), the mean of each channel and the sum
        of squared deviations from it, computed from the stored values. The last part may be
        shorter. A backend overrides this and ``batch_norm_of_moments`` together; ``needle.capture``
        calls them for float32 and bfloat16.
        """
        raise NotImplementedError

    def batch_norm_of_moments(
        self,
        x: View,
        moments: View,
        weight: View,
        bias: View,
        out: View,
        mean: View,
        var: View,
        eps: float,
        epilogue: Epilogue,
    ) -> None:
        """Compute ``batch_norm`` with mean and variance from the moments of x's parts."""
        raise NotImplementedError

    def run_images(
        self,
        steps: Sequence[tuple[str, tuple[float, ...]]],
        parameters: Sequence[NumpyArray[Any]],
        images: Any,
        indices: NumpyArray[Any] | None,
        out: View,
    ) -> None:
        """Augment a batch on the device; ``needle.data`` calls this where a backend overrides it.

        steps, parameters, indices: as in ``native_kernels.run_images``. images: host arrays as
        there, or a View ``(N, H, W, C)``; the caller may change them after the call. out: a
        contiguous View.
        """
        raise NotImplementedError

    def pin(self, memory: Any) -> Any | None:
        """Pin host memory, so that the device can read it directly while the result is alive.

        The result is None if the device does not need pinning or cannot pin.
        """
        return None


_METHODS = tuple(
    name for name, member in vars(Backend).items() if callable(member) and not name.startswith("_")
)
SERVICES = _METHODS[_METHODS.index("adopt") :]
REQUIRED = tuple(name for name in _METHODS if name in Backend.__abstractmethods__)
OPTIONAL = tuple(name for name in _METHODS if name not in REQUIRED + SERVICES)


def provides(backend: Backend, name: str) -> bool:
    """Return True if the backend overrides the optional kernel ``name``."""
    return getattr(type(backend), name) is not getattr(Backend, name)


def _lacking(kernel: Callable[..., None]) -> Callable[..., None]:
    """Return the base class's version of an optional kernel, a function that raises."""

    @functools.wraps(kernel)
    def missing(backend: Backend, *args: Any, **options: Any) -> None:
        raise NotImplementedError(f"{backend.name}: there is no kernel {kernel.__name__}")

    return missing


for _kernel in OPTIONAL:
    setattr(Backend, _kernel, _lacking(getattr(Backend, _kernel)))
