"""A chain of transforms is bit-identical to calling them one by one, wherever it runs.

This holds for floats too, since the kernels fix the order and rounding of their sums.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_native_kernels import isa as isa  # repeats these tests with each instruction set

from needle.data import transforms as T
from needle.data.samples import native_kernels as native
from needle.data.samples.random_source import keyed, random_source
from needle.data.samples.ticket import IndexRun, Ticket
from needle.data.transforms import Compose, ImageSpec, OneOf, output_of
from needle.data.transforms.compile import Chain, placed
from needle.data.transforms.execute import Destination, Images

pytestmark = pytest.mark.skipif(not native.has("run_images"), reason="the kernels are not built")

DEVICES = st.sampled_from(["cpu", "none"])
"""A device without an executor runs the definitions."""
SIZES = st.integers(1, 40)
UNIT = st.sampled_from([0.0, 0.3, 1.0])


def chance():
    return st.sampled_from([0.5, 1.0])


@dataclass(frozen=True)
class Place(T.Transform):
    """A user's transform that adds a random number to ten times the height plus the width."""

    words = 1

    def parameters(self, words, sizes, spec=None):
        return sizes.astype(np.float64) @ np.array([[10.0], [1.0]]) + words % 50

    def apply(self, image, row):
        return image + image.dtype.type(row[0] % 256 if image.dtype == np.uint8 else 0)

    def identity(self, sizes):
        return np.zeros((len(sizes), 1))

    def output(self, spec):
        return spec


def shuffled(image):
    """Roll the rows by a random number, as a user's own function may."""
    return np.roll(image, random_source().randint(0, 9), 0)


def geometry(spec):
    """Return transforms that keep size and type."""
    fill = st.sampled_from([0.0, 1.0] if spec.dtype != np.uint8 else [0.0, 7.0, 255.0])
    method = st.sampled_from(["nearest", "bilinear"])
    return [
        st.builds(T.RandomFlipHorizontal, chance()),
        st.builds(T.RandomFlipVertical, chance()),
        st.builds(T.RandomCrop, st.integers(0, 50), fill=fill, p=chance()),
        st.builds(T.RandomRotation, st.sampled_from([10.0, 180.0]), chance(), fill, method),
        st.builds(
            T.RandomAffine,
            st.just(20.0),
            st.sampled_from([0.0, 0.3]),
            st.just((0.5, 2.0)),
            st.sampled_from([0.0, 15.0]),
            chance(),
            fill,
            method,
        ),
        st.builds(T.RandomErasing, chance(), fill=fill),
        st.builds(T.Cutout, st.integers(1, 20), p=chance(), fill=fill),
        st.sampled_from([Place(), shuffled]),
    ]


def colours():
    return [
        st.builds(T.RandomBrightnessContrast, UNIT, UNIT, p=chance()),
        st.builds(T.ColorJitter, UNIT, UNIT, UNIT, st.sampled_from([0.0, 0.2]), p=chance()),
    ]


def sizing():
    methods = st.sampled_from(["nearest", "bilinear"])
    return [
        st.builds(T.RandomCrop, st.integers(0, 4), st.tuples(SIZES, SIZES)),
        st.builds(T.CenterCrop, st.tuples(SIZES, SIZES)),
        st.builds(T.Pad, st.tuples(st.integers(0, 5), st.integers(0, 5)), UNIT),
        st.builds(T.Resize, st.tuples(SIZES, SIZES), st.booleans(), methods),
        st.builds(T.Resize, SIZES, st.booleans(), methods),
        st.builds(T.RandomResizedCrop, st.tuples(SIZES, SIZES), method=methods),
        st.just(T.Permute((1, 0, 2))),
    ]


@st.composite
def chains(draw, spec):
    """Return a list of transforms that accepts images of this kind."""
    found = []
    for _ in range(draw(st.integers(0, 5))):
        kinds = geometry(spec)
        if spec.channels in (1, 3):
            kinds += colours()
        if draw(st.integers(0, 4)) == 0:
            made = draw(st.lists(st.one_of(kinds), min_size=1, max_size=3))
            made += draw(st.sampled_from([[], [Compose([OneOf(made[:1], 0.5), *made])]]))
            found.append(OneOf(made, draw(chance())))
            continue
        kinds += sizing() + [st.just(T.ToFloat())]
        if draw(st.integers(0, 5)) == 0:
            stays = T.Normalize(-51.0, 318.75), T.Normalize(-0.2, 1.25)  # keeps 0..1 for colours
            kinds = [st.just(stays[spec.dtype != np.uint8])]
        found.append(draw(st.one_of(kinds)))
        spec = output_of(found[-1], spec) or spec
    ends = [
        [],
        [T.ToCHW()],
        [T.Permute((2, 1, 0))],
        [T.ToFloat(), T.Normalize(0.5, 0.2), T.ToCHW()],
    ]
    return found + draw(st.sampled_from(ends))


def pixels(shape, dtype, seed):
    image = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return image if dtype == "uint8" else (image / np.float32(255)).astype(dtype)


def one_by_one(chain, images, indices, seed, samples, first=0):
    made = []
    for i, sample in enumerate(samples.tolist()):
        with keyed(seed, 1, sample) as source:
            source.seek(first)
            made.append(Compose(chain)(images[i if indices is None else indices[i]]))
    return made


def assert_equal(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@settings(max_examples=50, deadline=None)
@given(st.data(), st.sampled_from(["uint8", "float32"]), st.sampled_from([1, 3, 4]))
def test_arrays(data, dtype, channels):
    height, width, seed = data.draw(SIZES), data.draw(SIZES), data.draw(st.integers(0, 2**64 - 1))
    images = pixels((4, height, width, channels), dtype, seed)
    if data.draw(st.booleans(), "channels first in memory"):
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    chain = data.draw(chains(ImageSpec(height, width, channels, np.dtype(dtype))))
    indices = np.array(data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=6)))
    samples = indices + data.draw(st.integers(-5, 2**40))
    want = one_by_one(chain, images, indices, seed, samples, 5)
    threads, device = data.draw(st.sampled_from([0, 1])), data.draw(DEVICES)
    keys, made = Ticket(0, seed, 1, samples), Chain(placed(chain, 5))
    row = data.draw(st.integers(0, 3))
    run = IndexRun(np.concatenate([np.arange(row), samples, samples + 1]))
    for among in (keys, keys._replace(run=run, row=row)):
        got = made.run(Images(images, indices), among, Destination(None, threads, device))
        assert_equal(got, want)
    row = want[0]
    slots = np.full((len(indices), row.size + 3), 77, row.dtype)
    out = slots[:, : row.size].reshape(len(indices), *row.shape)
    again = made.run(Images(images, indices), keys, Destination(out, threads, device))
    assert again is out or not len(chain)
    assert_equal(out if again is out else again, got)
    assert (slots[:, row.size :] == 77).all()


@settings(max_examples=50, deadline=None)
@given(st.data(), st.sampled_from(["uint8", "float32"]), st.sampled_from([1, 3, 4]))
def test_lists_of_images_of_many_sizes(data, dtype, channels):
    sizes = data.draw(st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=5))
    seed = data.draw(st.integers(0, 2**64 - 1))
    images = [pixels((*size, channels), dtype, i) for i, size in enumerate(sizes)]
    if data.draw(st.booleans(), "mirrored views"):
        images = [image[::-1, ::-1] for image in images]
    chain = data.draw(chains(ImageSpec(None, None, channels, np.dtype(dtype))))
    samples = np.arange(len(images)) * 3
    want = one_by_one(chain, images, None, seed, samples)
    keys = Ticket(0, seed, 1, samples)
    got = Chain(placed(chain)).run(Images(images), keys, Destination(None, 1, data.draw(DEVICES)))
    assert_equal(got, want)


def check(chain, images, count=None):
    """Compare a chain with its definition, for each of ``count`` samples, which repeat images."""
    indices = np.arange(count or len(images))[::-1] % len(images)
    want = one_by_one(chain, images, indices, 3, indices + 1)
    for threads in (0, 1):
        into = Destination(threads=threads)
        made = Chain(placed(chain)).run(Images(images, indices), Ticket(0, 3, 1, indices + 1), into)
        assert_equal(made, want)


BYTES, UNIT_SCALE = T.Normalize((125, 123, 114), (63, 62, 66)), T.Normalize((0.5, 0.4, 0.3), 0.2)


@pytest.mark.parametrize("steps", [[T.ToFloat()], [BYTES], [T.ToFloat(), UNIT_SCALE]])
def test_every_byte_is_scaled_and_normalised(steps):
    images = np.arange(256, dtype=np.uint8).reshape(1, 1, 256, 1).repeat(3, axis=3)
    check(steps, images)
    check([*steps, T.ToCHW()], images)


def layouts(images):
    """Return equal images in four memory layouts: HWC, CHW, transposed, negative strides."""
    major = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    turned = np.ascontiguousarray(images.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    backward = np.ascontiguousarray(images[:, ::-1, ::-1])[:, ::-1, ::-1]
    return [images, major, turned, backward]


@pytest.mark.parametrize(
    "size", [(1, 1), (1, 7), (5, 6), (6, 9), (3, 16), (6, 33), (4, 37), (2, 2051), (3, 4097)]
)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_the_common_chain(size, channels, dtype):
    scale = T.Normalize((0.1, 0.2, 0.3, 0.4)[:channels], (0.5, 0.6, 0.7, 0.8)[:channels])
    chain = [T.RandomCrop(3), T.RandomFlipHorizontal(), T.RandomFlipVertical(), T.ToFloat(), scale]
    for images in layouts(pixels((5, *size, channels), dtype, size[1])):
        for kept in (3, 4, 5):  # fewer steps give other dtypes
            check(chain[:kept], images)
        check([*chain[:3], T.ToCHW()], images)
        check([*chain, T.ToCHW()], images)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize(
    "size, new_size", [((3, 2), (90, 401)), ((500, 731), (3, 2)), ((1, 900), (1, 31))]
)
def test_far_enlargements_and_reductions(size, new_size, antialias):
    check([T.Resize(new_size, antialias)], pixels((1, *size, 3), "uint8", 0))


def test_long_programs_settle_on_the_way():
    """A program with more pending stages and rectangles than one pass takes is split."""
    colour = T.RandomBrightnessContrast(0.1, 0.1, p=1)
    chain = [step for i in range(40) for step in (T.RandomErasing(1.0, fill=i), colour)]
    check(chain, pixels((2, 9, 17, 3), "uint8", 3))


@pytest.mark.parametrize(
    "chain",
    [
        [T.RandomCrop(10, fill=5)],
        [T.Pad(2, 5), T.Pad(2, 9)],
        [T.Pad(1, 5), T.ToFloat(), T.Pad(1, 0.5)],
    ],
)
def test_windows_wholly_outside_and_two_kinds_of_outside(chain):
    check(chain, pixels((1, 4, 4, 3), "uint8", 0), count=60)


def test_the_chains_above_do_run_natively():
    """Without native steps, the comparisons would compare the definitions with themselves."""
    spec = ImageSpec(32, 32, 3, np.dtype(np.uint8))
    every = [
        T.RandomFlipHorizontal(), T.RandomFlipVertical(), T.RandomCrop(4), T.RandomRotation(10.0),
        T.RandomAffine(10.0), T.RandomErasing(), T.Cutout(4), T.ColorJitter(0.2),
        T.RandomBrightnessContrast(), T.CenterCrop(20), T.Pad(2), T.Resize(16),
        T.RandomResizedCrop(12), OneOf([T.RandomFlipVertical(), T.ColorJitter(0.1)]),
        T.Permute((1, 0, 2)), T.ToFloat(), T.Normalize(0.5, 0.5), T.ToCHW(),
    ]  # fmt: skip
    plan = Chain(placed(every)).plan(spec)
    assert {segment.kind for segment in plan.segments} == {"native"} and plan.rest is None


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["uint8", "float32"]), st.sampled_from([1, 3, 5]))
def test_only_the_cropped_part_of_a_resized_image_is_computed(data, dtype, channels):
    seed, size = data.draw(st.integers(0, 2**64 - 1)), st.tuples(SIZES, SIZES)
    images = pixels((3, *data.draw(size), channels), dtype, seed)
    if data.draw(st.booleans(), "mirrored"):
        images = images[:, ::-1, ::-1]
    method = data.draw(st.sampled_from(["nearest", "bilinear"]))
    chain = [
        data.draw(
            st.builds(T.Resize, size, st.booleans(), st.just(method))
            | st.builds(T.RandomResizedCrop, size, method=st.just(method))
        ),
        data.draw(
            st.builds(T.RandomCrop, st.integers(0, 9), size | st.none(), fill=st.just(3.0))
            | st.builds(T.CenterCrop, size)
        ),
        *data.draw(st.sampled_from([[], [T.RandomFlipHorizontal(), T.ToFloat(), T.ToCHW()]])),
    ]
    samples = np.arange(3) * 5
    want = one_by_one(chain, images, None, seed, samples)
    got = Chain(placed(chain)).run(Images(images), Ticket(0, seed, 1, samples))
    assert_equal(got, want)
