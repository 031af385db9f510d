"""Rows of the op table: pools with options, for signals, adaptive ones, and max_unpool2d."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from needle import ops
from needle.errors import IndexingError
from tests.nn_oracles import pair
from tests.op_row import OpRow, apart, normal, refused


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


MAX_POOLS = [
    OpRow(
        "max_pool2d",
        lambda x, w=windows: ops.max_pool2d(x, *w),
        lambda x, w=windows: np_max(x, *w),
        apart(shape),
        case,
        resize=len(shape) == 4,
        failures=(
            refused(
                lambda x: ops.max_pool2d(x, 2, padding=2, dilation=2),
                "max_pool2d: padding must be at most half the kernel",
                (1, 1, 4, 4),
            ),
            refused(
                lambda x: ops.max_pool2d(x, 5, 1, ceil_mode=True),
                "max_pool2d: the window must fit",
                (1, 1, 3, 4),
            ),
            refused(
                lambda x: ops.max_pool2d(x, 2, padding=1, dilation=2),
                "max_pool2d: every window must contain an element",
                (1, 1, 1, 1),
            ),
        ),
    )
    for case, shape, windows in [
        ("ceil", (2, 2, 5, 6), (2, 2, 0, 1, True)),
        ("ceil padded", (2, 2, 6, 5), ((3, 2), (2, 3), (1, 1), 1, True)),
        ("dilated", (2, 2, 7, 6), (2, (2, 1), 1, (2, 3), False)),
        ("dilated ceil", (1, 2, 6, 7), (3, 2, 1, 2, True)),
        ("one image", (2, 5, 6), (3, 2, 1, 1, False)),
    ]
]

AVG_POOLS = [
    OpRow(
        "avg_pool2d",
        lambda x, w=windows: ops.avg_pool2d(x, *w),
        lambda x, w=windows: np_mean(x, *w),
        normal(shape),
        case,
        resize=len(shape) == 4,
        failures=(
            refused(
                lambda x: ops.avg_pool2d(x, 2, divisor_override=0),
                "avg_pool2d: divisor_override must not be 0",
                (1, 1, 4, 4),
                error=ValueError,
            ),
        ),
    )
    for case, shape, windows in [
        ("ceil", (2, 2, 5, 6), (2, 2, 0, True, True, None)),
        ("ceil padded", (2, 2, 6, 5), ((3, 2), (2, 3), 1, True, True, None)),
        ("without padding", (2, 2, 6, 5), (3, 2, 1, False, False, None)),
        ("ceil without padding", (2, 2, 6, 5), (3, 2, 1, True, False, None)),
        ("divisor", (2, 2, 6, 5), (3, 2, 1, True, False, 4)),
        ("one image", (2, 5, 6), (3, 2, 1, False, True, None)),
    ]
]

SIGNALS = [
    OpRow(
        "max_pool1d",
        lambda x: ops.max_pool1d(x, 3, 2, 1, 2, True),
        lambda x: np_max(x[..., None, :], (1, 3), (1, 2), (0, 1), (1, 2), True)[..., 0, :],
        apart((2, 3, 8)),
        failures=(
            refused(
                lambda x: ops.max_pool1d(x, 2), "max_pool1d: the input must be (N, C, L)", (4,)
            ),
            refused(lambda x: ops.max_pool1d(x, (2, 2)), "max_pool1d: kernel must be", (1, 4)),
        ),
    ),
    OpRow(
        "avg_pool1d",
        lambda x: ops.avg_pool1d(x, 3, 2, 1, True, False),
        lambda x: np_mean(x[..., None, :], (1, 3), (1, 2), (0, 1), True, False, None)[..., 0, :],
        normal((2, 3, 8)),
    ),
    OpRow(
        "adaptive_avg_pool1d",
        lambda x: ops.adaptive_avg_pool1d(x, 3),
        lambda x: np_adaptive(x[..., None, :], 1, 3, "mean")[..., 0, :],
        normal((2, 3, 7)),
    ),
    OpRow(
        "adaptive_max_pool1d",
        lambda x: ops.adaptive_max_pool1d(x, 3),
        lambda x: np_adaptive(x[..., None, :], 1, 3, "max")[..., 0, :],
        apart((2, 3, 7)),
    ),
]

ADAPTIVE = [
    *[
        OpRow(
            "adaptive_max_pool2d",
            lambda x, s=size: ops.adaptive_max_pool2d(x, s),
            lambda x, s=size: np_adaptive(x, s[0] or 6, s[1] or 4, "max"),
            apart((2, 3, 6, 4)),
            str(size),
            failures=(
                refused(
                    lambda x: ops.adaptive_max_pool2d(x, (2, 0)),
                    "adaptive_max_pool2d: sizes must be at least 1",
                    (1, 1, 4, 4),
                ),
            ),
        )
        for size in ((3, 2), (4, 3), (None, 3))
    ],
    OpRow(
        "adaptive_avg_pool2d",
        lambda x: ops.adaptive_avg_pool2d(x, (4, None)),
        lambda x: np_adaptive(x, 4, 4, "mean"),
        normal((2, 3, 6, 4)),
        "(4, None)",
    ),
]

PLACES = np.array([[[[0, 3], [9, 15]], [[5, 6], [8, 11]]]])


def np_unpool(x: Any) -> Any:
    out = np.zeros((*x.shape[:2], 16))
    np.put_along_axis(out, PLACES.reshape(1, 2, 4), x.reshape(1, 2, 4), -1)
    return out.reshape(1, 2, 4, 4)


UNPOOL = [
    OpRow(
        "max_unpool2d",
        lambda x: ops.max_unpool2d(x, PLACES, 2),
        np_unpool,
        normal((1, 2, 2, 2)),
        resize=False,
        failures=(
            refused(lambda x: ops.max_unpool2d(x, PLACES, 2), "max_unpool2d: x and", (1, 2, 2, 3)),
            refused(
                lambda x: ops.max_unpool2d(x, PLACES + 4, 2),
                "scatter: the index must be in [0, 16)",
                (1, 2, 2, 2),
                error=IndexingError,
            ),
        ),
    )
]

POOL_ROWS = [*MAX_POOLS, *AVG_POOLS, *SIGNALS, *ADAPTIVE, *UNPOOL]
