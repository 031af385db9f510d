"""Plans give the same result as calling the transforms one by one, whatever runs natively."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle.data.samples.pytree import tagged_sample
from needle.data.samples.random_source import keyed, random_source
from needle.data.samples.ticket import IndexRun, Ticket
from needle.data.transforms import (
    ColorJitter,
    Compose,
    ImageSpec,
    Normalize,
    OneOf,
    Pad,
    RandomBrightnessContrast,
    RandomErasing,
    RandomFlipVertical,
    Resize,
    Step,
    ToCHW,
    ToFloat,
    Transform,
)
from needle.data.transforms import compile as compiling
from needle.data.transforms import execute as executing
from needle.data.transforms.compile import Chain, placed, spec_of
from needle.data.transforms.execute import Destination, Images


@dataclass(frozen=True)
class Add(Transform):
    """A transform that adds a random number below ``most``; bytes wrap around."""

    most: int = 50
    native: bool = True
    words = 1

    def parameters(self, words, sizes, spec=None):
        return (words % self.most).astype(np.float64)

    def identity(self, sizes):
        return np.zeros((len(sizes), 1))

    def apply(self, image, row):
        return image + image.dtype.type(row[0])

    def output(self, spec):
        return spec

    def step(self, spec):
        return Step("add", ()) if self.native and spec.native else None


@dataclass(frozen=True)
class Halve(Transform):
    """A transform that keeps every second row and column."""

    def apply(self, image, row):
        return image[::2, ::2]

    def output(self, spec):
        half = [None if s is None else (s + 1) // 2 for s in (spec.height, spec.width)]
        return ImageSpec(*half, spec.channels, spec.dtype)

    def step(self, spec):
        return Step("halve") if spec.native and spec.height is not None else None


@dataclass(frozen=True)
class Place(Transform):
    """A transform that adds ten times the height plus the width of the image."""

    def parameters(self, words, sizes, spec=None):
        return sizes.astype(np.float64) @ np.array([[10.0], [1.0]])

    def apply(self, image, row):
        return image + image.dtype.type(row[0] % 256)

    def output(self, spec):
        return spec


def jitter(image):
    """Add random numbers, as a user's own transform may."""
    return image + image.dtype.type(random_source().randint(0, 9))


calls = []


def run_steps(steps, parameters_of, images, indices, out, threads):
    """Execute the steps "add" and "halve"."""
    calls.append([name for name, _ in steps])
    rows = range(len(out)) if indices is None else indices
    for i, row in enumerate(rows):
        image = images[row]
        for (name, _), parameters in zip(steps, parameters_of):
            assert parameters.dtype == np.float64 and parameters.flags.c_contiguous
            halve = name == "halve"
            image = image[::2, ::2] if halve else image + image.dtype.type(parameters[i, 0])
        out[i] = image


def refuse(steps, parameters, images, indices, out, threads):
    raise ValueError("small: no")


@pytest.fixture(autouse=True)
def executors(monkeypatch):
    """Register executors for two devices, "steps" and "refusing"."""
    real = executing.executor_for
    own = {"steps": run_steps, "refusing": refuse}
    for module in (compiling, executing):
        monkeypatch.setattr(module, "executor_for", lambda name: own.get(name) or real(name))


def one_by_one(transforms, images, indices, seed, epoch, samples, first=0):
    made = []
    for i, sample in enumerate(samples):
        image = images[i if indices is None else indices[i]]
        with keyed(seed, epoch, int(sample)) as source:
            source.seek(first)
            made.append(Compose(transforms)(image))
    return made


singles = st.one_of(
    st.builds(Add, st.sampled_from([3, 50]), st.booleans()),
    st.just(Halve()),
    st.just(Place()),
    st.just(jitter),
)
transforms = st.recursive(
    singles,
    lambda inner: st.one_of(
        st.builds(Compose, st.lists(inner, min_size=1, max_size=2)),
        st.builds(OneOf, st.lists(inner, min_size=1, max_size=3), st.sampled_from([0.5, 1.0])),
    ),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(transforms, max_size=4), st.sampled_from(["none", "steps"]), st.data())
def test_arrays_and_lists_are_transformed_as_one_by_one(chain, device, data):
    dtype = data.draw(st.sampled_from(["u1", "f4", "f8"]))
    sizes = data.draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1))
    samples = np.arange(len(sizes)) * 7 + 2
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 100, (*size, 2)).astype(dtype) for size in sizes]
    keys = Ticket(0, 3, 1, samples)
    got = Chain(placed(chain, 5)).run(images, None, keys, None, 1, device)
    want = one_by_one(chain, images, None, 3, 1, samples, 5)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    array = np.stack([images[0], images[0] + images[0].dtype.type(1)])
    places = np.array([1, 0, 1, 1])
    keys = Ticket(0, 3, 1, np.array([4, 5, 6, -1]))
    want = one_by_one(chain, array, places, 3, 1, keys.indices, 5)
    row = data.draw(st.integers(0, 3))
    run = IndexRun(np.concatenate([np.arange(row), keys.indices, samples]))
    arranged = Chain(placed(chain, 5))
    for among in (keys, keys._replace(run=run, row=row)):
        got = arranged.run(array, places, among, None, 1, device)
        for a, b in zip(got, want):
            np.testing.assert_array_equal(a, b)


def pixels(*shape, dtype="u1"):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def test_a_choice_among_steps_stays_one_call():
    calls.clear()
    chain = [Add(), OneOf([Add(), Compose([Add(), OneOf([Add()], p=0.5)])], p=0.5), Add()]
    plan = Chain(placed(chain)).plan(ImageSpec(4, 4, 3, "u1"))
    assert plan.is_one_call("steps") and not plan.is_one_call("cuda")
    keys = Ticket(0, 9, 2, np.arange(64))
    images = pixels(64, 4, 4, 3)
    got = plan.run(Images(images), keys, Destination(device="steps"))
    assert calls == [["add"] * 5]
    np.testing.assert_array_equal(got, one_by_one(chain, images, None, 9, 2, keys.indices))


def test_out_is_written_in_place():
    images, keys = pixels(3, 4, 4, 1), Ticket(0, 0, 0, np.arange(3))
    slot = np.zeros((3, 40), "u1")
    rows = slot[:, :4].reshape(3, 2, 2, 1)  # the rows are strided, each one contiguous
    assert np.shares_memory(rows, slot)
    for device in ("none", "steps"):
        slot[:] = 0
        plan = Chain(placed([Halve()])).plan(spec_of(images))
        got = plan.run(Images(images), keys, Destination(rows, 1, device))
        assert got is rows
        np.testing.assert_array_equal(slot[:, :4].reshape(3, 2, 2), images[:, ::2, ::2, 0])
        assert (slot[:, 4:] == 0).all()


def test_rows_of_another_shape_or_in_pieces_are_not_written():
    images, keys = pixels(3, 4, 4, 1), Ticket(0, 0, 0, np.arange(3))
    plan = Chain(placed([Halve()])).plan(spec_of(images))
    pieces = np.zeros((3, 2, 2, 2), "u1")[..., :1]
    for out in (np.zeros((3, 2, 2, 1), "f4"), np.zeros((3, 4), "u1"), pieces):
        got = plan.run(Images(images), keys, Destination(out, 1, "steps"))
        assert got is not out and (out == 0).all()
        np.testing.assert_array_equal(got, images[:, ::2, ::2])


def test_a_choice_that_would_touch_other_images_is_made_in_python():
    chain = [OneOf([Resize((4, 4)), RandomFlipVertical()], p=0.5)]
    assert Chain(placed(chain)).plan(ImageSpec(4, 4, 3, "u1")).segments[0].kind == "native"
    plan = Chain(placed(chain)).plan(
        ImageSpec(8, 4, 3, "f4")
    )  # an image of another type keeps its size
    assert plan.segments[0].kind == "python"


def test_a_choice_of_colours_leaves_other_floats_as_they_are():
    chain = [OneOf([ColorJitter(0.5), RandomFlipVertical()], p=0.5)]
    plan = Chain(placed(chain)).plan(ImageSpec(4, 4, 3, "f4"))
    assert plan.segments[0].kind == "native"
    images = (pixels(16, 4, 4, 3, dtype="f4") - 300) / 100
    refused = 0
    for i in range(16):  # values leave 0..1 unless a colour step clips them
        try:
            one_by_one(chain, images[i : i + 1], None, 1, 0, np.arange(i, i + 1))
        except ValueError as error:
            assert "ColorJitter: floating images must be in 0..1, got" in str(error)
            with pytest.raises(ValueError, match="ColorJitter: floating images must be in 0..1"):
                plan.run(Images(images), Ticket(0, 1, 0, np.arange(16)))
            images[i] = images[i] % 1
            refused += 1
    assert 0 < refused < 16
    got = plan.run(Images(images), Ticket(0, 1, 0, np.arange(16)))
    np.testing.assert_array_equal(got, one_by_one(chain, images, None, 1, 0, np.arange(16)))


COLOURS = [ColorJitter(0.2), RandomBrightnessContrast(p=0.01), ColorJitter(p=0.0)]


@pytest.mark.parametrize("colours", COLOURS, ids=repr)
@pytest.mark.parametrize(
    "before, dtype, white, good",
    [
        ([], "f4", 1, True),
        ([], "f4", 255, False),
        ([], "f4", -0.5, False),
        ([], "f8", 255, False),
        ([Resize(5), ToFloat()], "f4", 255, False),
        ([Pad(1, fill=1), ToFloat()], "f4", 1, True),
        ([Pad(1, fill=200)], "f4", 1, False),
        ([ToFloat()], "u1", 255, True),
        ([Normalize(0, 255)], "u1", 255, True),
        ([ToFloat(), Normalize(0.5, 0.25)], "u1", 255, False),
        ([Normalize(0, 255)], "f4", 255, True),
        ([Resize(5), RandomErasing(p=1, fill=9)], "f4", 1, False),
    ],
)
def test_colours_of_floats_lie_in_0_to_1(colours, before, dtype, white, good):
    images = (np.arange(2 * 6 * 6 * 3).reshape(2, 6, 6, 3) % 7 / 6 * white).astype(dtype)
    chain, ticket = [*before, colours], Ticket(0, 1, 0, np.arange(2))
    for run in (
        lambda: Chain(placed(chain)).run(images, None, ticket),
        lambda: one_by_one(chain, images, None, 1, 0, np.arange(2)),
    ):
        if good:
            np.testing.assert_array_equal(run(), one_by_one(chain, images, None, 1, 0, [0, 1]))
            continue
        with pytest.raises(ValueError, match=f"{type(colours).__name__}: floating images must be"):
            run()


def test_an_error_of_one_image_names_its_sample():
    def fail(image):
        if image[0, 0, 0] == 32:
            raise RuntimeError("no")
        return image

    images = pixels(4, 4, 4, 1)
    for chain in ([fail], [Add(1), fail]):
        with pytest.raises(RuntimeError) as caught:
            Chain(placed(chain)).run(
                images, None, Ticket(0, 0, 0, np.arange(4) + 70), device="none"
            )
        assert tagged_sample(caught.value) == 72


def test_an_error_of_a_kernel_carries_the_index_of_its_image():
    @dataclass(frozen=True)
    class Small(Transform):
        def apply(self, image, row):
            if image.max() > 40:
                raise ValueError("Small: must be at most 40")
            return image

        def output(self, spec):
            return spec

        def step(self, spec):
            return Step("small")

    with pytest.raises(ValueError, match="Small: must be at most 40") as caught:
        images = pixels(4, 4, 4, 1)
        Chain(placed([Small()])).run(images, None, Ticket(0, 0, 0, np.arange(4)), device="refusing")
    assert tagged_sample(caught.value) == 2


def test_a_callable_may_change_its_argument():
    def clear(image):
        image[...] = 0
        return image

    images = pixels(2, 2, 2, 1)
    got = Chain(placed([clear])).run(images, np.array([1, 1]), Ticket(0, 0, 0, np.arange(2)))
    assert (np.asarray(got) == 0).all() and images.max() == 7


def test_images_without_channels_are_refused_by_the_transform():
    with pytest.raises(ValueError, match="ToCHW"):
        Chain(placed([ToCHW()])).run(np.zeros((2, 4, 4)), None, Ticket(0, 0, 0, np.arange(2)))
