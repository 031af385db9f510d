"""Test the compiled functions of needle.data: words, orders, rows, threads, and invalid calls.

Results equal NumPy's to the last bit. Wrong calls are errors, never crashes.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle import backends
from needle.backends import philox
from needle.data.samples import native_kernels
from needle.data.samples.checksum import block_sums, checksum

pytestmark = pytest.mark.skipif(not backends.available("cpu"), reason="the module is not built")

Array = npt.NDArray[Any]
NORMALIZE = ("normalize", (3.0, 0.4914, 0.4822, 0.4465, 0.247, 0.2435, 0.2616))
TO_CHW = ("permute", (2.0, 0.0, 1.0))
NOTHING: tuple[float, ...] = ()


def module() -> Any:
    return backends.get("cpu").module  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def native() -> Any:
    return module().data


ISAS = module().available_isas() if backends.available("cpu") else ["none"]


@pytest.fixture(scope="module", autouse=True, params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test with each instruction set that this machine has."""
    chosen = module().isa
    module().select_isa(request.param)
    yield request.param
    module().select_isa(chosen)


# ---- random words and orders ----


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**40),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30),
    st.integers(0, 2**24 - 1),
    st.integers(0, 30),
)
def test_words_equal_numpys(
    seed: int, epoch: int, indices: list[int], stream: int, count: int
) -> None:
    places = np.array(indices, np.int64)
    got = module().data.philox_words(seed, epoch, places, stream, count)
    assert got.dtype == np.uint32 and got.shape == (len(indices), count)
    assert np.array_equal(got, philox.words(seed, epoch, places, stream, count))


@pytest.mark.parametrize("length", [1, 2, 3, 1000, 2**17, 2**17 + 1, 2**20 + 7, 10**12])
def test_orders_equal_numpys(native: Any, length: int) -> None:
    positions = np.unique(np.linspace(0, length - 1, 500).astype(np.int64))
    for seed, epoch in ((0, 0), (2**63 + 5, 3)):
        got = native.permute_indices(positions, length, seed, epoch)
        assert np.array_equal(got, philox.permutation(positions, length, seed, epoch))


def test_wrong_calls_of_words_and_orders(native: Any) -> None:
    one = np.zeros(1, np.int64)
    for stream, count in ((-1, 4), (2**24, 4), (0, -1), (0, 1025)):
        with pytest.raises(ValueError, match="philox_words: stream must be"):
            native.philox_words(0, 0, one, stream, count)
    for indices in (one.astype(np.int32), one[None], [0]):
        with pytest.raises(ValueError, match="indices must be"):
            native.philox_words(0, 0, indices, 0, 4)
    with pytest.raises(ValueError, match="seed must be a whole number, got 0.5"):
        native.philox_words(0.5, 0, one, 0, 4)
    for positions, length in (([5], 5), ([-1], 5), ([0], 0), ([0], -3)):
        with pytest.raises(ValueError, match="permute_indices: positions must be in"):
            native.permute_indices(np.array(positions), length, 0, 0)
    with pytest.raises(ValueError, match="length must be at most"):
        native.permute_indices(one, 2**62 + 1, 0, 0)


# ---- checksums ----


@pytest.mark.parametrize("blocks", [0, 1, 5])
def test_block_sums_equal_numpys(native: Any, blocks: int) -> None:
    rng = np.random.default_rng(blocks)
    keys = rng.integers(0, 2**32, 64, np.uint32)
    for start in (0, 1):  # also content that is not aligned
        content = rng.integers(0, 256, start + blocks * 256, np.uint8)[start:]
        assert np.array_equal(native.block_sums(content, keys), block_sums(content, keys))


@given(st.integers(0, 40_000), st.integers(0, 39_999), st.integers(1, 255))
def test_a_checksum_changes_with_any_byte(length: int, place: int, change: int) -> None:
    content = np.random.default_rng(length).integers(0, 256, length, np.uint8)
    before = checksum(content)
    assert before == checksum(bytes(content))
    if place < length:
        content[place] ^= change
        assert checksum(content) != before


def test_a_checksum_depends_on_the_order() -> None:
    rows = np.arange(64.0)[:, None] * np.ones(2048)  # each row is a block
    turned = rows[::-1].copy()
    assert checksum(rows.view(np.uint8).ravel()) != checksum(turned.view(np.uint8).ravel())
    labels = np.eye(10)[np.arange(4096) % 10]
    swapped = labels.copy()
    swapped[[0, 1025]] = labels[[1025, 0]]
    assert checksum(labels.view(np.uint8).ravel()) != checksum(swapped.view(np.uint8).ravel())


def test_wrong_calls_of_block_sums(native: Any) -> None:
    keys = np.zeros(4, np.uint32)
    for content, found in (
        (np.zeros(15, np.uint8), keys),
        (np.zeros((1, 16), np.uint8), keys),
        (np.zeros(32, np.uint8)[::2], keys),
        (np.zeros(4, np.uint32), keys),
        (np.zeros(12, np.uint8), keys[:3]),
        (np.zeros(16, np.uint8), keys[:0]),
        (np.zeros(16, np.uint8), keys.view(np.float32)),
    ):
        with pytest.raises(ValueError, match="block_sums: content must be uint8"):
            native.block_sums(content, found)


# ---- rows ----


@pytest.mark.parametrize("dtype", ["bool", "u1", "i2", "f4", "i8", "c16", "S3", "f4,u1"])
@pytest.mark.parametrize("layout", ["compact", "turned", "backward", "wide", "flat"])
def test_gathered_rows_equal_fancy_indexing(native: Any, dtype: str, layout: str) -> None:
    rng = np.random.default_rng(1)
    size = np.dtype(dtype).itemsize
    source = rng.integers(0, 2, (9, 4, 3, 2 * size), dtype=np.uint8).view(dtype)
    views: dict[str, Callable[[Array], Array]] = {
        "compact": lambda a: a,
        "turned": lambda a: a.transpose(0, 3, 1, 2),
        "backward": lambda a: a[::-1, :, ::-1],
        "wide": lambda a: a[:, ::2],
        "flat": lambda a: a[:, 0, 0, 0],
    }
    source = views[layout](source)
    indices = np.array([8, 0, 0, 5, 3])
    room = np.zeros((10, *source.shape[1:]), dtype)
    native.gather_rows(source, indices, room[::2])
    assert room[::2].tobytes() == source[indices].tobytes()
    assert not room[1::2].tobytes().strip(b"\0")


def test_runs_of_neighbouring_rows(native: Any) -> None:
    source = np.random.default_rng(6).integers(0, 255, (5000, 40), dtype=np.uint8)
    runs = [
        np.arange(3, 900),
        np.arange(10)[::-1],
        np.array([7, 7, 8, 9, 9]),
        np.arange(4000, 5000),
    ]
    indices = np.concatenate(runs * 20)  # enough work for several threads
    for part in (source, source[:, :33], source[::2][:2500], source[:, ::-1]):
        chosen = indices % len(part)
        wide = np.zeros((len(chosen), 50), np.uint8)
        native.gather_rows(part, chosen, wide[:, : part.shape[1]])
        np.testing.assert_array_equal(wide[:, : part.shape[1]], part[chosen])
        assert not wide[:, part.shape[1] :].any()


def test_gathering_nothing(native: Any) -> None:
    out = np.empty((0, 3), np.float32)
    native.gather_rows(np.empty((0, 3), np.float32), np.empty(0, np.int64), out)
    native.gather_rows(np.ones((2, 0, 3)), np.array([1, 1]), np.empty((2, 0, 3)))


def test_rows_of_arrays_with_more_axes_than_the_kernel_takes() -> None:
    source = np.arange(5 * 64.0).reshape(5, *[1] * 14, 64)
    chosen = np.array([4, 0, 4])
    np.testing.assert_array_equal(native_kernels.gather_rows(source, chosen), source[chosen])


def test_wrong_calls_of_gather(native: Any) -> None:
    source, out, index = np.ones((4, 3)), np.zeros((2, 3)), np.array([0, 3])
    for bad in ([0, 4], [-1, 0]):
        with pytest.raises(IndexError, match="every index must be in"):
            native.gather_rows(source, np.array(bad), out)
    fixed = np.zeros((2, 3))
    fixed.setflags(write=False)
    calls = [
        (source, index, np.zeros((2, 4)), "out must be the rows of source"),
        (source, index, np.zeros((3, 3)), "out must be the rows of source"),
        (source, index, np.zeros((2, 3), np.float32), "one dtype"),
        (source, index, np.zeros(2), "the same axes"),
        (np.float64(1), index, np.zeros(()), "the same axes"),
        (source.astype(object), index, out.astype(object), "without objects"),
        (source, index.astype(np.int32), out, "indices must be int64"),
        (source, index, fixed, "must be writeable"),
        (source, index, np.lib.stride_tricks.as_strided(out, (2, 3), (0, 8)), "must not overlap"),
    ]
    for rows, indices, target, message in calls:
        with pytest.raises(ValueError, match=message):
            native.gather_rows(np.asarray(rows), indices, target)
    assert not out.any()


# ---- programs; test_native_equals_definition.py compares them with the transforms ----

Steps = list[tuple[str, tuple[float, ...]]]


def pixels(shape: tuple[int, ...], dtype: str = "u1", seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if dtype == "u1":
        return rng.integers(0, 256, shape, dtype=np.uint8)
    return rng.random(shape, dtype=np.float32) * 1.5 - 0.2


def test_bytes_are_cast_where_out_is_float(native: Any) -> None:
    images = pixels((2, 3, 5, 3))
    out = np.empty((2, 3, 5, 3), np.float32)
    native.run_images([], [], images, None, out, 1)
    assert np.array_equal(out, images)


def run_one(name: str, constants: tuple[float, ...], row: Any, image: Array, out: Array) -> Array:
    """Return ``out`` after one step over one image."""
    rows = np.array([row], np.float64)
    module().data.run_images([(name, constants)], [rows], [image], None, out[None], 1)
    return out


def test_colours_round_halves_to_even_and_saturate() -> None:
    def colours(image: Array, matrix: Any) -> Array:
        return run_one("colour", NOTHING, np.ravel(matrix), image, np.zeros_like(image))

    image = np.arange(256, dtype=np.uint8).reshape(4, 64, 1)
    want = np.rint(np.arange(256) / 2).reshape(4, 64, 1)
    np.testing.assert_array_equal(colours(image, [[0.5, 0, 0, 0]] * 3), want)
    rgb = np.repeat(image, 3, axis=2)
    np.testing.assert_array_equal(colours(rgb, np.eye(3, 4) / 2), np.repeat(want, 3, axis=2))
    for scale, offset in [(1e30, 0.0), (0.0, 1e30), (-1e30, 0.0), (0.0, -1e30)]:
        wanted = np.where(scale * rgb.astype(float) + offset > 0, 255, 0)
        for matrix in ([[scale, scale, scale, offset]] * 3,
                       np.eye(3, 4) * scale + np.eye(4)[3] * offset):  # fmt: skip
            np.testing.assert_array_equal(colours(rgb, matrix), wanted)


def test_weights_kept_for_other_sizes_do_not_matter(native: Any) -> None:
    """A thread caches weights for some sizes; a new entry must not evict the other axis's entry."""
    images = pixels((1, 60, 60, 1))

    def resized(height: int, width: int) -> Array:
        out = np.empty((1, 7, 9, 1), np.uint8)
        box = np.array([[0, 0, height, width]], float)
        native.run_images([("resize", (7.0, 9.0, 1.0, 1.0))], [box], images, None, out, 1)
        return out

    for i in range(40):
        sizes = [(10 + i, 20 + i), (10, 21 + i), (10 + i % 3, 60 - i)]
        for size in sizes:
            with ThreadPoolExecutor(1) as fresh:  # a new thread has an empty cache
                alone = fresh.submit(resized, *size).result()
            assert np.array_equal(resized(*size), alone), (i, size)


def test_degenerate_batches(native: Any) -> None:
    out = np.empty((0, 4, 4, 3), np.uint8)
    native.run_images([], [], [], None, out, 0)
    native.run_images([], [], np.empty((0, 4, 4, 3), np.uint8), None, out, 0)
    native.run_images([], [], pixels((3, 4, 4, 3)), np.empty(0, np.int64), out, 0)
    empty = np.empty((2, 0, 5, 3), np.uint8)
    filled = np.zeros((2, 2, 2, 3), np.uint8)
    native.run_images([("crop", (2.0, 2.0, 4.0))], [np.zeros((2, 2))], empty, None, filled, 0)
    assert (filled == 4).all()
    native.run_images([], [], empty, None, np.empty((2, 0, 5, 3), np.uint8), 0)
    native.run_images([], [], np.empty((2, 4, 5, 0), np.uint8), None,
                      np.empty((2, 4, 5, 0), np.uint8), 0)  # fmt: skip


E1 = np.empty((1, 0))
IMAGE = np.zeros((1, 4, 5, 3), np.uint8)
OUT = np.zeros((1, 4, 5, 3), np.uint8)
FLOAT_OUT = OUT.astype(np.float32)
Z2, Z4 = np.zeros((1, 2)), np.zeros((1, 4))
INF = float("inf")
WRONG: list[tuple[Any, Any, Any, Any, Any, str]] = [
    ([("twist", ())], [E1], IMAGE, None, OUT, "'twist' is not a step; the steps are crop"),
    ([("crop", (4, 5))], [Z2], IMAGE, None, OUT, "crop: takes 3 constants, got 2"),
    ([("crop", (4, 5, 0))], [E1], IMAGE, None, OUT, "crop: takes 2 parameters an image, got 0"),
    ([("crop", (0, 5, 0))], [Z2], IMAGE, None, OUT, "crop: output sizes must be whole"),
    ([("crop", (4.5, 5, 0))], [Z2], IMAGE, None, OUT, "crop: output sizes must be whole"),
    ([("crop", (2**24, 2**24, 0))], [Z2], IMAGE, None, OUT, "at most 2\\*\\*31 elements"),
    ([("crop", (INF, 5, 0))], [Z2], IMAGE, None, OUT, "crop: constants must be finite"),
    ([("crop", (4, 5, 256))], [Z2], IMAGE, None, OUT, "crop: fill must be a whole number"),
    ([("crop", (4, 5, 0))], [Z2 + 0.5], IMAGE, None, OUT, "crop: parameters must be whole"),
    ([("crop", (4, 5, 0))], [Z2 + INF], IMAGE, None, OUT, "crop: parameters must be whole"),
    ([("crop", (4, 5, 0))], [Z2 + 1e18], IMAGE, None, OUT, "below 2\\*\\*31"),
    ([("crop", (3, 5, 0))], [Z2], IMAGE, None, OUT, "height 3 and width 5, got 4 and 5"),
    ([("flip", ())], [Z2 + 2], IMAGE, None, OUT, "flip: parameters must be 0 or 1"),
    ([("resize", (4, 5, 1, 0))], [Z4], IMAGE, None, OUT, "resize: the box"),
    ([("resize", (4, 5, 1, 0))], [Z4 + 3], IMAGE, None, OUT, "inside the image of 4x5"),
    ([("resize", (4, 5, 2, 0))], [Z4 + 1], IMAGE, None, OUT, "resize: method must be 0 or 1"),
    ([("affine", (4, 5, 1, 0))], [np.full((1, 6), np.nan)], IMAGE, None, OUT, "affine: .*finite"),
    ([("colour", ())], [np.full((1, 12), 1e300)], IMAGE, None, OUT, "colour: parameters must be"),
    ([("erase", (0,))], [Z4 - 1], IMAGE, None, OUT, "erase: height and width must not"),
    ([("normalize", (3, 0, 0, 0, 1, 1, 0))], [E1], IMAGE, None, FLOAT_OUT, "deviations not zero"),
    ([("normalize", (1, 0, 1))], [E1], IMAGE, None, FLOAT_OUT, "the count of channels \\(3\\)"),
    ([("to_float", ())], [E1], IMAGE, None, OUT, "got an out of uint8"),
    ([TO_CHW, ("flip", ())], [E1, Z2], IMAGE, None, OUT, "put it before ToCHW"),
    ([("permute", (0, 0, 1))], [E1], IMAGE, None, OUT, "axes must be an order"),
    ([TO_CHW], [E1], IMAGE, None, OUT, "out must have 3 channels on axis 0"),
    ([("flip", ())], [], IMAGE, None, OUT, "one array of parameters a step"),
    ([("flip", ())], [Z2.astype(np.float32)], IMAGE, None, OUT, "compact float64"),
    ([("flip", ())], [np.zeros((2, 2))], IMAGE, None, OUT, "compact float64 \\(1, k\\)"),
    ([("flip", ())], [np.zeros((1, 4))[:, ::2]], np.zeros((1, 4, 5, 3), "u1"), [0], OUT, "int64"),
    (["flip"], [Z2], IMAGE, None, OUT, "a step must be"),
    ([], [], IMAGE, np.array([1]), OUT, "every index must be in \\[0, 1\\), got 1"),
    ([], [], IMAGE, np.array([-1]), OUT, "every index must be in"),
    ([], [], [IMAGE[0]], np.array([0]), OUT, "takes no indices"),
    ([], [], [IMAGE], None, OUT, "must be an array \\(H, W, C\\)"),
    ([], [], [[1, 2]], None, OUT, "must be an array \\(H, W, C\\)"),
    ([], [], 5, None, OUT, "an array or a list"),
    ([], [], IMAGE[0], None, OUT, "images must be \\(N, H, W, C\\)"),
    ([], [], IMAGE.astype(np.float64), None, OUT, "must be uint8 or float32, got float64"),
    ([], [], IMAGE.astype(">f4"), None, FLOAT_OUT, "must be uint8 or float32, got >f4"),
    ([], [], IMAGE, None, OUT.astype(np.int8), "out must be uint8 or float32"),
    ([], [], IMAGE, None, OUT[0], "out must have 4 axes"),
    ([], [], IMAGE, None, OUT.repeat(2, 0), "and 1 rows"),
    ([], [], IMAGE, None, np.zeros((1, 4, 10, 3), "u1")[:, :, ::2], "C-contiguous"),
    ([("colour", ())], [np.zeros((1, 12))], np.zeros((1, 4, 5, 2), "u1"), None,
     np.zeros((1, 4, 5, 2), "u1"), "colour: images must have 1 or 3 channels"),
]  # fmt: skip


@pytest.mark.parametrize("call", WRONG, ids=[w[-1][:40] for w in WRONG])
def test_wrong_calls_of_run_images(native: Any, call: Any) -> None:
    *arguments, message = call
    for threads in (0, 1):
        with pytest.raises(ValueError, match=message):
            native.run_images(*arguments, threads)


def test_wrong_outs_and_threads(native: Any) -> None:
    fixed = OUT.copy()
    fixed.setflags(write=False)
    with pytest.raises(ValueError, match="must be writeable"):
        native.run_images([], [], IMAGE, None, fixed, 0)
    overlapping = np.lib.stride_tricks.as_strided(OUT.copy(), (2, 4, 5, 3), (0, 15, 3, 1))
    with pytest.raises(ValueError, match="rows of out must not overlap"):
        native.run_images([], [], IMAGE, np.array([0, 0]), overlapping, 0)
    unaligned = np.zeros(4 * 60 + 1, np.uint8)[1:].view(np.float32).reshape(1, 4, 5, 3)
    with pytest.raises(ValueError, match="aligned"):
        native.run_images([], [], unaligned, None, FLOAT_OUT, 0)
    for threads in (-1, 2):
        with pytest.raises(ValueError, match="threads must be 0"):
            native.run_images([], [], IMAGE, None, OUT, threads)
    with pytest.raises(TypeError):
        native.run_images([], [], IMAGE, None, [[1]], 0)


def test_lowered_programs_describe_their_windows(native: Any) -> None:
    """Devices get parameters of a crop, a flip and a normalisation as in core/image_pass.h."""
    steps = [("crop", (4.0, 4.0, 0.0)), ("flip", NOTHING), ("to_float", NOTHING), NORMALIZE]
    crops, flips = np.array([[1.0, 2.0], [-1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    rows = [crops, flips, np.zeros((2, 0)), np.zeros((2, 0))]
    places = np.array([[0, 6, 7, 21, 3, 1], [126, 6, 7, 21, 3, 1]])
    passes, words = native.lower_images(steps, rows, places, 3, False, [4, 4, 3], True)
    (numbers,) = passes
    assert numbers[:3] == [3, 4, 4] and numbers[5:8] == [12, 3, 1]
    assert numbers[9] == 3 and numbers[13:16] == [False, False, True]
    (window, place, _), (scale, *_), (normalize, means, _) = np.reshape(numbers[16:], (3, 3))
    assert (window, scale, normalize) == (0, 4, 5)
    np.testing.assert_array_equal(words[means : means + 6].view("f4"), np.float32(NORMALIZE[1][1:]))
    records = words[numbers[4] :].view("i4").reshape(2, numbers[3])
    assert records[:, 0].tolist() == [0, 126]
    # top, left, bottom, right; sign and first row; sign and first column
    assert records[0, place : place + 8].tolist() == [0, 0, 4, 4, 1, 1, -1, 5]
    assert records[1, place : place + 8].tolist() == [0, 0, 3, 4, -1, 2, 1, 0]


def test_wrong_calls_of_lower_images(native: Any) -> None:
    places = np.array([[0, 6, 7, 21, 3, 1]])
    wrong = np.full((1, 2), 2.0)
    with pytest.raises(ValueError, match="flip: parameters must be 0 or 1, got 2"):
        native.lower_images([("flip", NOTHING)], [wrong], places, 3, False, [6, 7, 3], False)
    with pytest.raises(ValueError, match=r"places must be \(images, 6\), got \(1, 5\)"):
        native.lower_images([], [], places[:, :5], 3, False, [6, 7, 3], False)
    with pytest.raises(ValueError, match="out must"):
        native.lower_images([], [], places, 3, False, [6, 8, 3], False)


def test_several_threads_call_at_once(native: Any) -> None:
    """The pool serves one caller while the others run their own work; no memory is shared."""
    images = pixels((16, 40, 50, 3))
    steps: Steps = [("crop", (48.0, 48.0, 3.0)), ("flip", NOTHING), ("crop", (52.0, 52.0, 7.0))]
    wants, outs, parameters = [], [], []
    for i in range(4):
        rng = np.random.default_rng(i)
        limits = ((-6, 6), (0, 2), (-3, 3))
        rows = [rng.integers(low, high, (16, 2)).astype(float) for low, high in limits]
        parameters.append(rows)
        outs.append(np.empty((16, 52, 52, 3), np.uint8))
        native.run_images(steps, rows, images, None, outs[-1], 1)
        wants.append(outs[-1].copy())

    def work(i: int) -> None:
        for _ in range(20):
            native.run_images(steps, parameters[i], images, None, outs[i], 0)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert all(np.array_equal(o, w) for o, w in zip(outs, wants, strict=True))
