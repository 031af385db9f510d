"""Test that kernels reject incompatible views and access nothing outside a buffer.

Each row is a valid call with the arguments that make it invalid. The last test requires a row for
every kernel with several views.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_views import backend, empty_view, view_of

from needle.backends import base
from needle.backends.base import Epilogue, EpilogueGrad
from needle.shapes import Geometry


def f(*shape: int) -> Any:
    return empty_view(shape, "float32")


def d(*shape: int) -> Any:
    return empty_view(shape, "float64")


def i(*shape: int, value: int = 0) -> Any:
    return view_of(np.full(shape, value, "int64"))


def u(*shape: int) -> Any:
    return empty_view(shape, "uint8")


NORM = [f(4, 3), f(3), f(3), f(4, 3), f(3), f(3), 1e-5, Epilogue(None, f(4, 3), True)]
NORM_GRAD = [
    *(f(4, 3), f(4, 3), f(3), f(3), f(3), f(4, 3), f(3), f(3), 1e-5),
    EpilogueGrad(None, f(4, 3), f(4, 3)),
]
LAYER = [f(4, 3), f(3), f(3), f(4, 3), f(4, 1), f(4, 1), 1e-5]
LAYER_GRAD = [f(4, 3), f(4, 3), f(3), f(4, 1), f(4, 1), f(4, 3), f(3), f(3), 1e-5]
POOL = [(2, 2), (2, 2), (0, 0)]
IMAGE, POOLED = f(2, 6, 6, 3), f(2, 3, 3, 3)
CONV = Geometry((1, 1), (1, 1), (1, 1), 1)
WEIGHT, CONVOLVED = f(3, 3, 3, 4), f(2, 6, 6, 4)
SGD = [0.1, 0.9, 0.0, 0.0, False]
ADAM = [0.1, 0.9, 0.99, 1e-8, 0.0, False, 1]

# name -> the valid arguments, {position: invalid values}
CALLS: dict[str, tuple[list[Any], dict[int, list[Any]]]] = {
    "copy": ([f(2, 3), f(2, 3)], {1: [f(3, 2), f(6)]}),
    "unary": (["exp", f(2, 3), f(2, 3)], {0: ["cube"], 1: [f(2), i(2, 3)], 2: [f(3, 2)]}),
    "binary": (["add", f(2, 3), f(2, 3), f(2, 3)], {2: [f(3), d(2, 3)], 3: [f(2, 2)]}),
    "where": ([empty_view((3,), "bool"), f(3), f(3), f(3)], {0: [u(3)], 3: [d(3), f(4)]}),
    "reduce": (["sum", f(2, 3), f(2, 1)], {2: [f(2), f(1, 2), d(2, 1)]}),
    "matmul": ([f(2, 3), f(3, 4), f(2, 4)], {0: [f(2, 4), d(2, 3), f(3)], 1: [f(3, 5)], 2: [f(4)]}),
    "relu_grad": (
        [f(2, 3), f(2, 3), f(2, 3), f(3)],
        {0: [f(3, 2), d(2, 3)], 1: [f(6)], 2: [u(2, 3), f(3, 3)], 3: [f(2), d(3), f(1, 3)]},
    ),
    "apply_epilogue": (
        [f(2, 3), f(2, 3), Epilogue(f(3), relu=True)],
        {
            0: [f(), f(3, 2), d(2, 3)],
            1: [f(3, 3), u(2, 3)],
            2: [
                *(Epilogue(bias, relu=True) for bias in (f(2), f(1, 3), d(3), None)),
                *(Epilogue(f(3)), Epilogue(f(3), f(2, 3), True)),
            ],
        },
    ),
    "softmax": ([f(2, 3), f(2, 3), 1], {0: [u(2, 3)], 1: [f(3, 2), d(2, 3)], 2: [2, -1]}),
    "log_softmax": ([f(2, 3), f(2, 3), 1], {0: [i(2, 3)], 1: [f(2, 2)], 2: [7]}),
    "logsumexp": ([f(2, 3), f(2, 1)], {1: [f(2), f(2, 2), d(2, 1)], 0: [u(2, 3)]}),
    "cross_entropy": (
        [f(4, 3), i(4), f(4), 0.0],
        {0: [f(4), f(5, 3), d(4, 3)], 1: [i(4, value=3), i(4, value=-1), f(4), i(3)], 2: [f(3)]},
    ),
    "cross_entropy_grad": (
        [f(4), f(4, 3), i(4), f(4, 3), 0.0],
        {0: [f(3), d(4)], 2: [i(4, value=3)], 3: [f(3, 4)]},
    ),
    "batch_norm": (
        NORM,
        {
            0: [f(), f(4, 5)],
            1: [f(2), d(3)],
            2: [f(2)],
            3: [f(3, 4)],
            4: [f(1), d(3)],
            5: [i(3), f(4)],
            7: [
                *(Epilogue(None, residual, True) for residual in (f(3, 4), d(4, 3))),
                *(Epilogue(f(3), relu=True), Epilogue(None, f(4, 3))),
            ],
        },
    ),
    "batch_norm_grad": (
        NORM_GRAD,
        {
            0: [f(4)],
            2: [f(4)],
            3: [f(1, 3)],
            5: [f(3, 4)],
            7: [f(2)],
            9: [
                *(EpilogueGrad(f(4)), EpilogueGrad(d(3)), EpilogueGrad(None, f(4, 3))),
                *(EpilogueGrad(None, f(3, 4), f(4, 3)), EpilogueGrad(None, f(4, 3), d(4, 3))),
                EpilogueGrad(f(3), f(4, 3), f(4, 3)),
            ],
        },
    ),
    "layer_norm": (LAYER, {0: [f(4, 5)], 1: [f(2)], 3: [f(4, 4)], 4: [f(3, 1)], 5: [f(4)]}),
    "layer_norm_grad": (LAYER_GRAD, {0: [f(4)], 2: [f(4)], 3: [f(1, 1)], 5: [f(3)], 7: [d(3)]}),
    "max_pool2d": (
        [IMAGE, POOLED, *POOL],
        {0: [f(6, 6, 3), u(2, 6, 6, 3)], 1: [f(2, 3, 3, 4)], 2: [(0, 2), (7, 2)], 3: [(0, 0)]},
    ),
    "max_pool2d_grad": (
        [POOLED, IMAGE, IMAGE, *POOL],
        {0: [f(2, 4, 3, 3)], 1: [f(2, 5, 6, 3)], 2: [f(2, 6, 5, 3)], 5: [(-1, 0), (1 << 40, 0)]},
    ),
    "avg_pool2d": ([IMAGE, POOLED, *POOL], {1: [f(2, 3, 4, 3)], 4: [(1, 1)]}),
    "avg_pool2d_grad": ([POOLED, IMAGE, *POOL], {0: [f(1, 3, 3, 3)], 1: [f(2, 6, 6, 2)]}),
    "conv2d": (
        [IMAGE, WEIGHT, CONVOLVED, CONV, Epilogue(f(4), relu=True)],
        {
            0: [f(2, 6, 6, 2), i(2, 6, 6, 3)],
            1: [f(3, 3, 4, 4), f(3, 3, 3), f(0, 3, 3, 4), d(3, 3, 3, 4)],
            2: [f(2, 7, 6, 4), f(2, 6, 6, 5)],
            3: [
                *(CONV._replace(stride=stride) for stride in ((0, 1), (2, 2))),
                *(CONV._replace(dilation=dilation) for dilation in ((0, 0), (2, 1))),
                *(CONV._replace(groups=groups) for groups in (0, 2, 3)),
            ],
            4: [*(Epilogue(bias) for bias in (f(3), f(4, 1), d(4))), Epilogue(None, CONVOLVED)],
        },
    ),
    "conv2d_input_grad": (
        [CONVOLVED, WEIGHT, IMAGE, CONV],
        {
            0: [f(3, 6, 6, 4)],
            2: [f(2, 6, 5, 3), f(2, 6, 6, 4)],
            3: [CONV._replace(stride=(-1, 1))],
        },
    ),
    "conv2d_weight_grad": (
        [CONVOLVED, IMAGE, WEIGHT, CONV],
        {0: [f(2, 6, 6, 3)], 1: [f(2, 6, 7, 3)], 2: [f(3, 3, 3, 5), f(5, 3, 3, 4)]},
    ),
    "gather": (
        [f(5, 2), i(3), f(3, 2)],
        {1: [i(3, value=5), i(3, value=-1)], 2: [f(3, 3), f(4, 2)]},
    ),
    "scatter": ([f(3, 2), i(3), f(5, 2)], {1: [i(3, value=5), f(3)], 2: [f(5, 3), d(5, 2)]}),
    "scatter_add": ([f(3, 2), i(3), f(5, 2)], {1: [i(2), i(3, value=-1)], 2: [f(5)]}),
    "one_hot": ([i(3), f(3, 4)], {0: [f(3), i(4), i(3, 1)], 1: [f(3), f(2, 4)]}),
    "argmax": ([f(2, 3), i(2, 1), 1], {1: [i(2), i(1, 1), f(2, 1)], 2: [0, 2, -1], 0: [f(2, 0)]}),
    "argmin": ([f(2, 3), i(1, 3), 0], {1: [i(1, 4), f(1, 3)], 2: [1, 5]}),
    "random": (["normal", f(2, 3), 1, 0, 0.0, 1.0], {0: ["poisson"], 1: [i(2, 3), u(6)]}),
    "sgd_step": (
        [[f(3)], [f(3)], [f(3)], [f(3)], *SGD],
        {1: [[f(2)], [], [d(3)]], 2: [[f(4)], [f(3), f(3)]], 3: [[f(3, 1)], []]},
    ),
    "adam_step": (
        [[f(3)], [f(3)], [f(3)], [f(3)], [f(3)], *ADAM],
        {0: [[i(3)], [f(4)]], 2: [[f(2)], []], 3: [[d(3)]], 4: [[f(2)]]},
    ),
}

WRONG = [
    pytest.param(name, position, value, id=f"{name}-{position}-{at}")
    for name, (_, changes) in CALLS.items()
    for position, values in changes.items()
    for at, value in enumerate(values)
]


def call(name: str) -> Callable[..., None]:
    function: Callable[..., None] = getattr(backend, name)
    return function


@pytest.mark.parametrize("name", CALLS)
def test_the_right_call_is_taken(name: str) -> None:
    call(name)(*CALLS[name][0])


@pytest.mark.parametrize(("name", "position", "value"), WRONG)
def test_a_wrong_call_raises(name: str, position: int, value: Any) -> None:
    arguments = list(CALLS[name][0])
    arguments[position] = value
    with pytest.raises(ValueError, match=r"\w: "):
        call(name)(*arguments)


def test_every_kernel_has_a_row() -> None:
    kernels = {*base.REQUIRED, *base.OPTIONAL} - {"allocate", "upload", "download", "fill"}
    assert {name for name in kernels if base.provides(backend, name)} <= {*CALLS}


@pytest.mark.parametrize(
    ("name", "position", "value", "what"),
    [
        ("conv2d", 3, ((1, 1), (1, 1)), r"a Geometry \(stride, padding, dilation, groups\), got"),
        ("conv2d", 4, None, r"an Epilogue \(bias, residual, relu\), got NoneType"),
        ("batch_norm_grad", 9, (), r"an EpilogueGrad \(bias, result, residual_grad\), got tuple"),
        ("relu_grad", 3, 0, "a View"),
    ],
)
def test_other_values_are_refused_by_what_is_expected(
    name: str, position: int, value: Any, what: str
) -> None:
    arguments = list(CALLS[name][0])
    arguments[position] = value
    with pytest.raises(TypeError, match=f"{name}: expected {what}"):
        call(name)(*arguments)


def test_steps_of_no_parameters_are_taken() -> None:
    backend.sgd_step([], [], [], [], *SGD)
    backend.adam_step([], [], [], [], [], *ADAM)


@pytest.mark.parametrize("scalar", [300, -1, 2**70])
def test_a_scalar_outside_an_integer_dtype_is_an_error(scalar: int) -> None:
    with pytest.raises(OverflowError, match="does not fit uint8"):
        backend.binary("add", u(3), scalar, u(3))
