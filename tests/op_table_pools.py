"""Rows of the op table: pools with options, for signals, adaptive ones, and max_unpool2d."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from needle import ops
from needle.errors import IndexingError
from tests.nn_oracles import pair
from tests.op_row import OpRow, alike, apart, called, normal, refused, wrong


def spans(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool
) -> list[list[int]]:
    """Return the positions that each window along an axis reads, including those in the padding."""
    reach = dilation * (kernel - 1) + 1
    count = (math.ceil if ceil else math.floor)((size + 2 * padding - reach) / stride) + 1
    if ceil and (count - 1) * stride >= size + padding:
        count -= 1
    return [[i * stride - padding + k * dilation for k in range(kernel)] for i in range(count)]


def grid(size: int, count: int) -> list[list[int]]:
    return [list(range(i * size // count, -(-(i + 1) * size // count))) for i in range(count)]


def pooled(x: Any, rows: Any, columns: Any, reduce: Any) -> Any:
    """Return reduce(elements of the image, positions of the window) for each window."""
    h, w = x.shape[-2:]
    out = np.zeros((*x.shape[:-2], len(rows), len(columns)))
    for i, down in enumerate(rows):
        for j, across in enumerate(columns):
            places = [(r, c) for r in down for c in across]
            real = [(r, c) for r, c in places if 0 <= r < h and 0 <= c < w]
            out[..., i, j] = reduce(np.stack([x[..., r, c] for r, c in real], -1), places)
    return out


def np_max(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Any:
    each = zip(x.shape[-2:], *map(pair, (kernel, stride, padding, dilation)), strict=True)
    return pooled(x, *[spans(*sizes, ceil) for sizes in each], lambda v, _: v.max(-1))


def np_mean(
    x: Any, kernel: Any, stride: Any, padding: Any, ceil: bool, include: bool, divisor: Any
) -> Any:
    down, across = pair(padding)
    h, w = x.shape[-2:]

    def reduce(values: Any, places: Any) -> Any:
        padded = [1 for r, c in places if -down <= r < h + down and -across <= c < w + across]
        count = divisor or (len(padded) if include else values.shape[-1])
        return values.sum(-1) / count

    each = zip(x.shape[-2:], *map(pair, (kernel, stride, padding, 1)), strict=True)
    return pooled(x, *[spans(*sizes, ceil) for sizes in each], reduce)


def np_adaptive(x: Any, rows: int, columns: int, kind: str) -> Any:
    h, w = x.shape[-2:]
    return pooled(x, grid(h, rows), grid(w, columns), lambda v, _: getattr(v, kind)(-1))


IMAGES = (2, 2, 6, 5)
MAX_POOLS = [
    alike("max_pool2d", np_max, apart(shape), *windows, case=case, resize=len(shape) == 4)
    for case, shape, windows in [
        ("ceil", (2, 2, 5, 6), (2, 2, 0, 1, True)),
        ("ceil padded", IMAGES, ((3, 2), (2, 3), (1, 1), 1, True)),
        ("dilated", (2, 2, 7, 6), (2, (2, 1), 1, (2, 3), False)),
        ("dilated ceil", (1, 2, 6, 7), (3, 2, 1, 2, True)),
        ("one image", (2, 5, 6), (3, 2, 1, 1, False)),
    ]
]

AVG_POOLS = [
    alike("avg_pool2d", np_mean, normal(shape), *windows, case=case, resize=len(shape) == 4)
    for case, shape, windows in [
        ("ceil", (2, 2, 5, 6), (2, 2, 0, True, True, None)),
        ("ceil padded", IMAGES, ((3, 2), (2, 3), 1, True, True, None)),
        ("without padding", IMAGES, (3, 2, 1, False, False, None)),
        ("ceil without padding", IMAGES, (3, 2, 1, True, False, None)),
        ("divisor", IMAGES, (3, 2, 1, True, False, 4)),
        ("one image", (2, 5, 6), (3, 2, 1, False, True, None)),
    ]
]


def signals(name: str, oracle: Any, inputs: Any, *args: Any) -> OpRow:
    """Return the row of a pool of signals; its oracle gets them as images with one row."""
    return called(name, lambda x: oracle(x[..., None, :])[..., 0, :], inputs, *args)


SIGNALS = [
    signals(
        "max_pool1d",
        lambda x: np_max(x, (1, 3), (1, 2), (0, 1), (1, 2), True),
        apart((2, 3, 8)),
        *(3, 2, 1, 2, True),
    ),
    signals(
        "avg_pool1d",
        lambda x: np_mean(x, (1, 3), (1, 2), (0, 1), True, False, None),
        normal((2, 3, 8)),
        *(3, 2, 1, True, False),
    ),
    signals("adaptive_avg_pool1d", lambda x: np_adaptive(x, 1, 3, "mean"), normal((2, 3, 7)), 3),
    signals("adaptive_max_pool1d", lambda x: np_adaptive(x, 1, 3, "max"), apart((2, 3, 7)), 3),
]

ADAPTIVE = [
    called(
        f"adaptive_{kind}_pool2d",
        lambda x, s=size, f=function: np_adaptive(x, s[0] or 6, s[1] or 4, f),
        inputs((2, 3, 6, 4)),
        size,
        case=str(size),
    )
    for kind, function, inputs, sizes in (
        ("max", "max", apart, ((3, 2), (4, 3), (None, 3))),
        ("avg", "mean", normal, ((4, None),)),
    )
    for size in sizes
]

PLACES = np.array([[[[0, 3], [9, 15]], [[5, 6], [8, 11]]]])


def np_unpool(x: Any) -> Any:
    out = np.zeros((*x.shape[:2], 16))
    np.put_along_axis(out, PLACES.reshape(1, 2, 4), x.reshape(1, 2, 4), -1)
    return out.reshape(1, 2, 4, 4)


UNPOOL = [called("max_unpool2d", np_unpool, normal((1, 2, 2, 2)), PLACES, 2, resize=False)]

POOL_ROWS = [*MAX_POOLS, *AVG_POOLS, *SIGNALS, *ADAPTIVE, *UNPOOL]

IMAGE = (1, 1, 4, 4)
POOL_FAILURES = [
    wrong(
        "max_pool2d",
        "padding must be at most half the kernel",
        2,
        on=(IMAGE,),
        padding=2,
        dilation=2,
    ),
    wrong("max_pool2d", "the window must fit", 5, 1, on=((1, 1, 3, 4),), ceil_mode=True),
    wrong(
        "max_pool2d",
        "every window must contain an element",
        2,
        on=((1, 1, 1, 1),),
        padding=1,
        dilation=2,
    ),
    wrong(
        "avg_pool2d",
        "divisor_override must not be 0",
        2,
        on=(IMAGE,),
        error=ValueError,
        divisor_override=0,
    ),
    wrong("max_pool2d", "only the batch may be empty", 2, on=((2, 0, 5, 5),)),
    wrong("max_pool1d", "the input must be (N, C, L)", 2, on=((4,),)),
    wrong("max_pool1d", "kernel must be", (2, 2), on=((1, 4),)),
    wrong("adaptive_max_pool2d", "sizes must be at least 1", (2, 0), on=(IMAGE,)),
    wrong("max_unpool2d", "x and", PLACES, 2, on=((1, 2, 2, 3),)),
    refused(
        lambda x: ops.max_unpool2d(x, PLACES + 4, 2),
        "scatter: the index must be in [0, 16)",
        (1, 2, 2, 2),
        error=IndexingError,
    ),
]
