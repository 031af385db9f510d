"""Part 4 of the course: shapes, strides and views, compared with NumPy's."""

from typing import Any

import numpy as np
import pytest

from apps.course.compare import expect, expect_error
from needle import shapes
from needle.errors import IndexingError, ShapeError
from needle.ndarray.indexing import basic_index, process_slice

Array = np.ndarray[Any, Any]


def strides_of(a: Array) -> tuple[int, ...]:
    """Return the strides in elements."""
    return tuple(stride // a.itemsize for stride in a.strides)


@pytest.mark.exercise("compact-strides")
@pytest.mark.parametrize("shape", [(2, 3, 4), (5,), (), (3, 1, 2), (4, 0, 3)])
def test_row_major_strides(shape: tuple[int, ...]) -> None:
    got = shapes.compact_strides.__wrapped__(shape)
    counted = tuple(size or 1 for size in shape)
    want = strides_of(np.empty(counted))
    mistakes = {
        "the last axis has stride 1": strides_of(np.empty(counted, order="F")),
        "the strides are in the order of the axes, the last one last": want[::-1],
        "the size of an axis is not part of its own stride": tuple(
            step * size for step, size in zip(want, counted)
        ),
        "an axis of size 0 counts as 1": strides_of(np.empty(shape))
        if product_of(shape)
        else tuple(product_of(shape[axis + 1 :]) for axis in range(len(shape))),
    }
    expect(f"compact_strides({shape})", got, want, mistakes=mistakes)


def product_of(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))


@pytest.mark.exercise("row-major")
def test_which_layouts_are_row_major() -> None:
    for shape, strides, expected, cause in (
        ((2, 3), (3, 1), True, "element (0, 2) is at 2, element (1, 0) at 3: no gap, no overlap"),
        ((2, 3), (1, 2), False, "element (0, 1) is at 2, not at 1: columns come first"),
        ((2, 3), (4, 1), False, "a gap between the rows: (0, 2) is at 2, (1, 0) is at 4"),
        ((2, 1, 3), (3, 77, 1), True, "no step is taken along axis 1: its stride is irrelevant"),
        ((1,), (5,), True, "one element is in every order; axes of size 1 do not matter"),
        ((), (), True, "one element is in every order"),
        ((2, 3), (0, 1), False, "row 0 is repeated: stride 0"),
        ((3,), (-1,), False, "the elements run backwards: the stride is -1"),
    ):
        what = f"is_row_major({shape}, {strides})"
        got = shapes.is_row_major(shape, strides)
        expect(what, got, expected, mistakes={cause: not expected})


@pytest.mark.exercise("permute-view")
def test_axes_in_another_order() -> None:
    a = np.empty((2, 3, 4))
    for axes in ((2, 0, 1), (0, 1, 2), (-1, 0, -2)):
        want = a.transpose(axes)
        mistakes = {
            "axis i comes from axes[i], not the other way": (
                a.transpose(np.argsort(np.array(axes) % 3)).shape,
                strides_of(a.transpose(np.argsort(np.array(axes) % 3))),
            ),
            "the strides move with their axes": (want.shape, strides_of(a)),
            "no element moves: take the strides of the array, do not compute new ones": (
                want.shape,
                strides_of(np.empty(want.shape)),
            ),
        }
        expect(
            f"(2, 3, 4) permuted by {axes}: shape and strides",
            shapes._permuted((2, 3, 4), (12, 4, 1), axes),
            (want.shape, strides_of(want)),
            mistakes=mistakes,
        )
    for wrong in ((0, 1), (0, 0, 1), (0, 1, 3)):
        with expect_error(f"(2, 3, 4) permuted by {wrong}", ShapeError, "permute"):
            shapes._permuted((2, 3, 4), (12, 4, 1), wrong)


@pytest.mark.exercise("broadcast-view")
@pytest.mark.parametrize(
    ("shape", "target"),
    [((3, 1), (2, 3, 4)), ((4,), (3, 4)), ((), (2, 2)), ((3, 4), (3, 4)), ((1, 4), (1, 4))],
)
def test_repeated_axes_have_stride_0(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    a = np.empty(shape)
    got = shapes.broadcast_strides.__wrapped__("broadcast_to", shape, strides_of(a), target)
    view = np.broadcast_to(a, target)
    want = tuple(s if size > 1 else 0 for s, size in zip(strides_of(view), target))
    own, lead = want[len(target) - len(shape) :], len(target) - len(shape)
    mistakes = {
        "a repeated axis has stride 0": (0,) * lead + strides_of(a),
        "axes are aligned on the right": own + (0,) * lead,
        "a new axis repeats the array: its stride is 0": (1,) * lead + own,
    }
    what = f"strides of {shape}, with strides {strides_of(a)}, seen as {target}"
    expect(what, got, want, mistakes=mistakes)


@pytest.mark.exercise("broadcast-view")
def test_what_does_not_broadcast() -> None:
    for shape, target in (((3,), (4,)), ((2, 3), (3,)), ((2,), (2, 3))):
        what = f"shape {shape} broadcast to {target}"
        with expect_error(what, ShapeError, "broadcast_to: every axis"):
            shapes.broadcast_strides.__wrapped__("broadcast_to", shape, (1,) * len(shape), target)


def window(a: Array, items: tuple[Any, ...]) -> tuple[Any, Any, int]:
    """Return NumPy's result of indexing: shape, strides, offset."""
    view = a[items]
    start = view.__array_interface__["data"][0] - a.__array_interface__["data"][0]
    return view.shape, strides_of(view), start // a.itemsize


@pytest.mark.exercise("slice-view")
@pytest.mark.parametrize(
    "items",
    [
        (slice(1, 3), slice(None), 2),
        (slice(None, None, 2), -1),
        (Ellipsis, slice(3, 0, -1)),
        (1,),
        (slice(None), None, slice(0, 2)),
        (slice(-2, None), slice(None, None, -1)),
        (slice(0, 3, 2), Ellipsis, slice(4, None, -3)),
        (),
    ],
    ids=str,
)
def test_windows_by_index(items: tuple[Any, ...]) -> None:
    a = np.arange(4 * 3 * 5).reshape(4, 3, 5)
    shape, strides, offset = basic_index(
        a.shape, strides_of(a), 0, items, lambda part, axis: process_slice(part, a.shape[axis])
    )
    want = window(a, items)
    given = {"shape": a.shape, "strides": strides_of(a), "index": items}
    mistakes: dict[str, Any] = {
        "the size of a slice is len(range(start, stop, step)), rounded up": _rounded(a, items),
        "an int removes its axis": window(a, tuple(_kept(i) for i in items))[0],
    }
    expect("the window's shape", shape, want[0], given=given, mistakes=mistakes)
    expect("its offset", offset, want[2], given=given)
    kept = [i for i, size in enumerate(shape) if size > 1]
    expect(
        "its strides, where sizes are above 1",
        [strides[i] for i in kept],
        [want[1][i] for i in kept],
        given=given,
        mistakes={"a slice has its step times the stride": [abs(_plain(want, a)[i]) for i in kept]},
    )


def _rounded(a: Array, items: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the window's shape if the sizes of slices were rounded down."""
    if Ellipsis in items:
        at, used = items.index(Ellipsis), len(items) - 1
        items = items[:at] + (slice(None),) * (a.ndim - used) + items[at + 1 :]
    sizes, axes = [], iter(a.shape)
    for item in items:
        if item is None:
            sizes.append(1)
            continue
        size = next(axes)
        if isinstance(item, slice):
            start, stop, step = item.indices(size)
            sizes.append(abs(stop - start) // abs(step))
    return (*sizes, *axes)


def _kept(item: Any) -> Any:
    """Return the slice that selects the same element as an int."""
    return slice(item, item + 1 or None) if isinstance(item, int) else item


def _plain(want: tuple[Any, Any, int], a: Array) -> tuple[int, ...]:
    """Return the strides of a window if steps were ignored."""
    return tuple(max(s for s in strides_of(a) if abs(each) % s == 0) for each in want[1])


@pytest.mark.exercise("slice-view")
def test_offsets_add_up_and_bounds_are_checked() -> None:
    def fill(part: slice, axis: int) -> slice:
        return process_slice(part, 4)

    within = {"a window of a window starts at the offset that is given": ((3,), (8,), 14)}
    got = basic_index((4, 4), (8, 2), 100, (slice(1, None), 3), fill)
    expect(
        "index [1:, 3] of a view with strides (8, 2) at offset 100",
        got,
        ((3,), (8,), 114),
        mistakes=within,
    )
    empty = basic_index((4,), (1,), 7, (slice(4, None),), fill)
    expect("an empty slice does not move the offset", empty, ((0,), (1,), 7))
    rule = "index 4 is out of range for axis 1 with size 4"
    with expect_error("index [0, 4] of shape (4, 4)", IndexingError, rule):
        basic_index((4, 4), (4, 1), 0, (0, 4), fill)


@pytest.mark.exercise("reshape-view")
def test_reshape_is_a_view_where_it_can_be() -> None:
    base = np.arange(48)
    cases: list[tuple[Array, tuple[int, ...]]] = [
        (base.reshape(6, 8), (2, 3, 8)),
        (base.reshape(6, 8), (48,)),
        (base.reshape(6, 8)[:, ::2], (2, 3, 4)),
        (base.reshape(6, 8)[:, ::2], (3, 2, 2, 2)),
        (base.reshape(6, 8)[:, ::2], (24,)),
        (base.reshape(6, 8)[:, :4], (24,)),
        (base.reshape(6, 8).T, (4, 2, 6)),
        (base.reshape(6, 8).T, (48,)),
        (base.reshape(2, 3, 8).transpose(2, 0, 1), (8, 6)),
        (np.broadcast_to(base[:3], (4, 3)), (2, 2, 3)),
        (np.broadcast_to(base[:3], (4, 3)), (12,)),
        (base.reshape(6, 8)[::2], (3, 1, 2, 4, 1)),
        (base[:0].reshape(0, 3), (3, 0)),
    ]
    for a, shape in cases:
        got = shapes.view_strides_for_reshape.__wrapped__(a.shape, strides_of(a), shape)
        want = a.reshape(shape)
        given = {"shape": a.shape, "strides": strides_of(a), "new shape": shape}
        possible = a.size == 0 or np.shares_memory(want, a)
        contiguous = a.flags.c_contiguous
        cause = "two axes join only if one continues where the other ends"
        if possible:
            cause = "splitting an axis is always possible"
            cause += "" if contiguous else "; other arrays than row-major ones can be views too"
        found = got is not None
        expect("a view is possible", found, possible, given=given, mistakes={cause: not possible})
        if got is not None:
            place = np.lib.stride_tricks.as_strided(a, shape, [s * a.itemsize for s in got])
            mistakes = {
                "row-major strides fit row-major arrays alone": np.lib.stride_tricks.as_strided(
                    a, shape, [s * a.itemsize for s in shapes.compact_strides(shape)]
                )
            }
            more = {**given, "strides found": got}
            expect("what the strides read", place, want, given=more, mistakes=mistakes)


@pytest.mark.exercise("keep-order")
def test_results_keep_the_order_of_axes_in_memory() -> None:
    nhwc = np.empty((2, 5, 5, 3)).transpose(0, 3, 1, 2)  # NHWC in memory, viewed as NCHW
    want = strides_of(np.empty_like(nhwc))
    dense = shapes.dense_strides_like.__wrapped__
    mistakes = {"the order of the axes is lost": shapes.compact_strides(nhwc.shape)}
    expect(
        "strides like a channels-last image seen as (2, 3, 5, 5)",
        dense(nhwc.shape, strides_of(nhwc)),
        want,
        given={"strides": strides_of(nhwc)},
        mistakes=mistakes,
    )
    expect(
        "like every second row of it",
        dense((2, 3, 3, 5), strides_of(nhwc[:, :, ::2])),
        strides_of(np.empty_like(nhwc[:, :, ::2])),
        mistakes={
            "a new array is dense: count the steps from its own shape": strides_of(nhwc[:, :, ::2])
        },
    )
    expect(
        "like a broadcast row, which does not count, and it",
        dense(nhwc.shape, (0, 0, 0, 1), strides_of(nhwc)),
        want,
        mistakes={
            "an operand does not order axes on which its stride is 0": (15, 5, 1, 30),
        },
    )
    expect("without operands", dense((2, 3)), (3, 1))
    signs = {"signs do not matter: compare absolute values": (1, 2)}
    expect("like a flipped array", dense((2, 3), (-3, 1)), (3, 1), mistakes=signs)
