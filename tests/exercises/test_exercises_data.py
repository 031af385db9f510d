"""Part 8 of the course: files, random numbers, orders, batches, and memory shared by workers."""

import io
import struct
from typing import Any

import numpy as np
import pytest
from by_hand import outcome

from apps.course.compare import expect, expect_error
from needle.backends import philox
from needle.data.batching.collate import stack
from needle.data.datasets.ptb import batchify, get_batch
from needle.data.formats.idx import _read_header
from needle.data.sampling import BatchSampler, DistributedSampler
from needle.data.transforms.windows import window
from needle.errors import DataError, ShapeError
from tests.exercises.native_programs import expect_fine

# ---- files ---------------------------------------------------------------------------------------


def header(content: bytes, ndim: int | None = None) -> Any:
    return _read_header("file", io.BytesIO(content), ndim)


@pytest.mark.exercise("idx-header")
def test_the_header_of_an_idx_file() -> None:
    content = bytes([0, 0, 8, 3]) + struct.pack(">III", 60000, 28, 28) + b"pixels"
    dtype, shape, size = header(content, 3)
    expect(
        "shape",
        shape,
        (60000, 28, 28),
        given={"bytes": content[:16].hex(" ")},
        mistakes={"numbers are big-endian": struct.unpack("<III", content[4:16])},
    )
    expect("dtype", dtype, np.dtype("u1"))
    short = {"the four bytes before the sizes count too": 12}
    expect("the header's length", size, 16, mistakes=short)
    labels = bytes([0, 0, 13, 1]) + struct.pack(">I", 9)
    expect("the header of float32 labels", header(labels)[1:], ((9,), 8))
    given = {"bytes": labels.hex(" ")}
    got = str(header(labels)[0])
    fixed = {"byte 2 is the type: TYPES gives its dtype": str(dtype)}
    expect("dtype of float32 labels", got, ">f4", given=given, mistakes=fixed)


@pytest.mark.exercise("idx-header")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an IDX file starts with"),
        (b"\x89PNG....", "an IDX file starts with"),
        (bytes([0, 0, 7, 1]), "an IDX file starts with"),
        (bytes([0, 0, 8, 0]), "expected 3 axes"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 5]), "expected 3 axes"),
        (bytes([0, 0, 8, 3, 0, 0]), "cut short"),
    ],
    ids=["empty", "png", "type", "no axes", "labels", "short"],
)
def test_other_files_are_refused(content: bytes, message: str) -> None:
    with expect_error("header of a file that is not IDX", DataError, message, {"content": content}):
        header(content, 3)


# ---- random numbers and orders -------------------------------------------------------------------


@pytest.mark.exercise("philox")
def test_philox_gives_the_papers_numbers() -> None:
    """Compare with known answers of the authors' Random123 library."""
    ones = 0xFFFFFFFF
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    key = (0xA4093822, 0x299F31D0)
    answers = {
        ((0,) * 4, (0,) * 2): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ((ones,) * 4, (ones,) * 2): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        (pi, key): (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    }
    for (counter, each), answer in answers.items():
        given = {"counter": [hex(c) for c in counter], "key": [hex(k) for k in each]}
        mistakes = {
            "there are ten rounds": rounds(counter, each, 9),
            "the first round uses the key as it is": rounds(counter, each, 10, early=True),
            "the product of c2 goes to c0 and c1, that of c0 to c2 and c3": rounds(
                counter, each, 10, swapped=True
            ),
        }
        got = tuple(philox.philox_block(counter, each))
        expect("philox_block", got, answer, given=given, mistakes=mistakes)


def rounds(
    counter: tuple[int, ...],
    key: tuple[int, ...],
    count: int,
    early: bool = False,
    swapped: bool = False,
) -> tuple[int, ...]:
    """Return the result of ``count`` rounds with two mistakes on request.

    early: the key changes before the round instead of after it. swapped: the products are
    exchanged.
    """
    factors, steps, mask = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 0xFFFFFFFF
    c, k = list(counter), list(key)
    for _ in range(count):
        if early:
            k = [(each + step) & mask for each, step in zip(k, steps)]
        p, q = c[0] * factors[0], c[2] * factors[1]
        p, q = (q, p) if swapped else (p, q)
        c = [(q >> 32) ^ c[1] ^ k[0], q & mask, (p >> 32) ^ c[3] ^ k[1], p & mask]
        if not early:
            k = [(each + step) & mask for each, step in zip(k, steps)]
    return tuple(c)


@pytest.mark.exercise("shuffled-order")
def test_an_order_is_a_function_of_seed_and_epoch() -> None:
    order = philox._sorted_order.__wrapped__
    for length in (1, 7, 1000):
        drawn = philox.words(3, 5, np.arange(length), philox.ORDER_STREAM, 2).astype(np.uint64)
        keys = drawn[:, 0] * np.uint64(2**32) + drawn[:, 1]
        expect(
            f"the order of {length} in epoch 5 with seed 3",
            order(length, 3, 5),
            np.argsort(keys, kind="stable"),
            given={"the first keys": keys[:3]},
            mistakes={
                "return the order, not the rank of each index in it": np.argsort(
                    np.argsort(keys, kind="stable")
                ),
                "the first word is the upper half of the key": np.argsort(
                    drawn[:, 1], kind="stable"
                ),
                "the epoch is not used": philox._sorted_order(length, 3, 0),
            },
        )
    shared = {"many callers share the array: setflags(write=False) protects it": True}
    writeable = bool(order(5, 0, 0).flags.writeable)
    expect("the array may be written to", writeable, False, mistakes=shared)
    differs = (order(100, 0, 1) != order(100, 0, 0)).any()
    expect("another epoch has a different order", bool(differs), True)


@pytest.mark.exercise("batch-sampler")
def test_lists_of_indices() -> None:
    given = {"indices": "0 ... 6", "batch_size": 3}
    kept, dropped = BatchSampler(range(7), 3), BatchSampler(range(7), 3, drop_last=True)
    first, rest = [[0, 1, 2], [3, 4, 5]], "the rest is a batch too, without drop_last"
    changed = "each batch is a new list: the caller has the one that was yielded"
    got = list(kept)
    mistakes: dict[str, Any] = {rest: first}
    if len({id(batch) for batch in got}) < len(got):
        mistakes[changed] = got
    expect("the batches", got, [*first, [6]], given=given, mistakes=mistakes)
    mistakes = {"drop_last drops the rest": [*first, [6]]}
    expect("the batches with drop_last", list(dropped), first, given=given, mistakes=mistakes)
    mistakes = {"an empty list is no batch": [*first, []]}
    even = list(BatchSampler(range(6), 3))
    expect("the batches of six indices", even, first, mistakes=mistakes)
    one, other = list(BatchSampler(range(4), 2))
    expect("two batches are one list", one is other, False, mistakes={changed: True})


@pytest.mark.exercise("distributed-sampler")
def test_ranks_share_a_set() -> None:
    ranks = [DistributedSampler(10, rank, 4) for rank in range(4)]
    given = {"samples": 10, "ranks": 4}
    expect(
        "the indices of each rank",
        [list(rank) for rank in ranks],
        [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]],
        given=given,
        mistakes={
            "the ranks take turns: rank 0 has indices 0, 4, 8": [
                *([0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 0, 1])
            ],
            "padding starts again at index 0": [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]],
            "padding starts again at index 0, it does not repeat the last one": [
                *([0, 4, 8], [1, 5, 9], [2, 6, 9], [3, 7, 9])
            ],
        },
    )
    expect(
        "the valid samples",
        [rank.validity(0, 3).tolist() for rank in ranks],
        [[True] * 3, [True] * 3, [True, True, False], [True, True, False]],
        given=given,
    )
    late = {"the first position is start, not 0": [2, 6]}
    expect("positions 1 to 3 of rank 2", ranks[2].positions(1, 3).tolist(), [6, 0], mistakes=late)
    shuffled = [
        i
        for rank in range(4)
        for i in DistributedSampler(10, rank, 4, shuffle=True, drop_last=True)
    ]
    cause = "all ranks must share one order: the same seed and epoch"
    given = {"the indices of the four ranks": str(shuffled)}
    distinct = len(set(shuffled))
    mistakes = {cause: distinct}
    what = "different indices, shuffled, with drop_last, 2 of each of 4 ranks"
    expect(what, distinct, 8, given=given, mistakes=mistakes)


# ---- samples and batches -------------------------------------------------------------------------


@pytest.mark.exercise("crop-window")
def test_a_window_of_an_image() -> None:
    image = np.arange(1, 13, dtype="uint8").reshape(3, 4, 1)
    margins = np.pad(image, ((5, 5), (5, 5), (0, 0)), constant_values=99)
    for top, left, size in (
        (0, 1, (2, 2)),
        (-1, -2, (3, 4)),
        (2, 3, (2, 3)),
        (-2, 0, (8, 4)),
        (5, 0, (2, 2)),
        (-4, 0, (2, 2)),
        (-3, 0, (2, 2)),  # here and below a bound of -1 or -2 would select more than one row
        (0, -5, (3, 3)),
        (-3, -5, (2, 4)),
    ):
        given = {"image": image[..., 0], "top, left": (top, left), "size": size, "fill": 99}
        want = margins[top + 5 : top + 5 + size[0], left + 5 : left + 5 + size[1], 0]
        turned = margins[left + 5 : left + 5 + size[0], top + 5 : top + 5 + size[1], 0]
        ends = (
            "a negative end counts from the end of the image: no pixel lies inside, clamp it at 0"
        )
        if min(top + size[0], left + size[1]) >= 0:
            ends = ""
        corner = np.full(size, 99)
        inside = image[max(0, top) : max(0, top + size[0]), max(0, left) : max(0, left + size[1])]
        corner[: inside.shape[0], : inside.shape[1]] = inside[..., 0]
        black = np.pad(image[..., 0], 5)[top + 5 :, left + 5 :][: size[0], : size[1]]
        got = outcome(lambda: window(image, top, left, size, 99)[..., 0], ValueError)  # noqa: B023
        mistakes = {
            "top is a row, left a column": turned,
            "the margin is fill": black,
            "the margin above and on the left is missing": corner,
            **({ends: got} if ends else {}),
        }
        expect("the window", got, want, given=given, mistakes=mistakes)
    expect("its dtype", str(window(image, 0, 0, (1, 1), 0).dtype), "uint8")
    whole = window(image, 0, 0, (3, 4), 0)
    expect("the window is a new array", bool(np.shares_memory(whole, image)), False)


@pytest.mark.exercise("augment-rows")
def test_rows_flipped_cropped_and_normalised_in_cpp() -> None:
    expect_fine("course_images_test", "rows")


@pytest.mark.exercise("augment-colour")
def test_colours_are_mixed_in_cpp() -> None:
    expect_fine("course_images_test", "colour")


@pytest.mark.exercise("collate")
def test_values_become_a_leaf_of_a_batch() -> None:
    rows = [np.array([1.0, 2.0], "float32"), np.array([3.0, 4.0], "float32")]
    out = np.zeros((2, 2), "float32")
    got = stack(rows, "array", out)
    expect("two rows", got, np.array([[1.0, 2.0], [3.0, 4.0]]))
    unused = {"out fits and was not used": False}
    expect("the rows are stored in out, which fits", got is out, True, mistakes=unused)
    other = stack(rows, "array", np.zeros((2, 2), "float64"))
    kept = {"out has another dtype than the rows: make a new array": "float64"}
    expect("an out of another dtype is not used", str(other.dtype), "float32", mistakes=kept)
    expect("numbers", stack([1, 2, 3], "int"), np.array([1, 2, 3]))
    expect("text", stack(["a", "b"], "text"), ["a", "b"])
    mixed = stack([np.zeros(2, "float32"), np.zeros(2, "float64")], "array")
    first = {"the dtype that holds all rows, not that of the first": "float32"}
    expect("the dtype of float32 and float64", str(mixed.dtype), "float64", mistakes=first)
    uneven = [np.zeros(2), np.zeros(3)]
    with expect_error("stack of shapes (2,) and (3,)", ShapeError):
        stack(uneven, "array")
    expect(
        "a leaf that may be ragged",
        [a.shape for a in stack(uneven, "array", ragged=True)],
        [(2,), (3,)],
    )


@pytest.mark.exercise("text-columns")
def test_text_in_columns() -> None:
    batches = batchify(list(range(11)), 3)
    want = np.array([[0, 3, 6], [1, 4, 7], [2, 5, 8]])
    expect(
        "batchify of 0 ... 10 in 3 columns",
        batches,
        want,
        given={"ids": "0 ... 10"},
        mistakes={"each column is a contiguous part of the text": np.arange(9).reshape(3, 3)},
    )
    x, y = get_batch(batches, 0, 2)
    expect("inputs of get_batch(batches, 0, 2)", x, want[:2], given={"batches": want})
    mistakes = {
        "the target of a word is the next one in its column": want[:2].reshape(-1),
    }
    given = {"batches": want}
    what = "targets: the rows after each, flat"
    expect(what, y, want[1:3].reshape(-1), given=given, mistakes=mistakes)
    x, y = get_batch(batches, 1, 5)
    mistakes = {"the last row has no target: it is no input": want[1:]}
    expect("the last batch is shorter", x, want[1:2], given=given, mistakes=mistakes)
    with expect_error("get_batch(batches, 2, 5) of 3 rows", ShapeError, "get_batch"):
        get_batch(batches, 2, 5)
    with expect_error("batchify([1, 2], 3)", ShapeError, "batchify"):
        batchify([1, 2], 3)
