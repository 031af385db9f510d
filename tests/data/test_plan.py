"""Test plans: where choices run, which values are refused, and which error is raised."""

from dataclasses import dataclass

import numpy as np
import pytest

from needle.data.samples.pytree import tagged_sample
from needle.data.samples.random_source import keyed
from needle.data.samples.ticket import Ticket
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
from needle.data.transforms import execute as executing
from needle.data.transforms.compile import Chain, placed
from needle.data.transforms.execute import Destination, Images


def one_by_one(transforms, images, seed, samples):
    made = []
    for image, sample in zip(images, samples):
        with keyed(seed, 0, int(sample)):
            made.append(Compose(transforms)(image))
    return made


def pixels(*shape, dtype="u1"):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


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
    for i in range(16):  # values exceed 0..1 unless a colour step clips them
        try:
            one_by_one(chain, images[i : i + 1], 1, [i])
        except ValueError as error:
            assert "ColorJitter: floating images must be in 0..1, got" in str(error)
            with pytest.raises(ValueError, match="ColorJitter: floating images must be in 0..1"):
                plan.run(Images(images), Ticket(0, 1, 0, np.arange(16)))
            images[i] = images[i] % 1
            refused += 1
    assert 0 < refused < 16
    got = plan.run(Images(images), Ticket(0, 1, 0, np.arange(16)))
    np.testing.assert_array_equal(got, one_by_one(chain, images, 1, range(16)))


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
        lambda: Chain(placed(chain)).run(Images(images), ticket),
        lambda: one_by_one(chain, images, 1, range(2)),
    ):
        if good:
            np.testing.assert_array_equal(run(), one_by_one(chain, images, 1, range(2)))
            continue
        with pytest.raises(ValueError, match=f"{type(colours).__name__}: floating images must be"):
            run()


def test_an_error_of_one_image_names_its_sample():
    def fail(image):
        if image[0, 0, 0] == 32:
            raise RuntimeError("no")
        return image

    images = pixels(4, 4, 4, 1)
    for chain in ([fail], [RandomErasing(0.0), fail]):
        with pytest.raises(RuntimeError) as caught:
            ticket = Ticket(0, 0, 0, np.arange(4) + 70)
            Chain(placed(chain)).run(Images(images), ticket, Destination(device="none"))
        assert tagged_sample(caught.value) == 72


def test_an_error_of_a_kernel_carries_the_index_of_its_image(monkeypatch):
    def refuse(*arguments):
        raise ValueError("small: no")

    monkeypatch.setattr(executing, "executor_for", lambda device: refuse)

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
        Chain(placed([Small()])).run(Images(images), Ticket(0, 0, 0, np.arange(4)))
    assert tagged_sample(caught.value) == 2


def test_a_callable_may_change_its_argument():
    def clear(image):
        image[...] = 0
        return image

    images = pixels(2, 2, 2, 1)
    twice, ticket = Images(images, np.array([1, 1])), Ticket(0, 0, 0, np.arange(2))
    got = Chain(placed([clear])).run(twice, ticket)
    assert (np.asarray(got) == 0).all() and images.max() == 7


def test_images_without_channels_are_refused_by_the_transform():
    with pytest.raises(ValueError, match="ToCHW"):
        Chain(placed([ToCHW()])).run(Images(np.zeros((2, 4, 4))), Ticket(0, 0, 0, np.arange(2)))
