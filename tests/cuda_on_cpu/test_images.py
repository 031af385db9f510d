"""Test augmentation on the emulated GPU: it equals the definitions and the CPU bit for bit.

Also ``DataLoader(augment="device")`` from pinned slots.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needle
from apps.training.recipes import augmentations, find_recipe
from apps.training.sources import find_source, training_loader
from needle import backends, data
from needle.backends import View
from needle.data import transforms as T
from tests import device_images
from tests.cuda_on_cpu import emulated
from tests.device_images import assert_same_batches, batches

pytestmark = pytest.mark.skipif(emulated.module is None, reason="not built: target cuda_on_cpu")


@pytest.fixture(autouse=True)
def _memory_given_back() -> Iterator[None]:
    yield
    backends.get(emulated.NAME).empty_cache()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_chains_are_equal_to_their_definition(drawn: Any) -> None:
    device_images.check_chain(drawn, emulated.NAME)


def test_images_of_many_sizes_are_one_launch() -> None:
    before = emulated.module.launches()
    device_images.check_many_sizes(emulated.NAME)
    assert emulated.module.launches() == before + 1


def test_images_that_are_on_the_device_stay_there() -> None:
    device_images.check_images_of_the_device(emulated.NAME, "uint8")


@pytest.mark.parametrize(
    ("steps", "rows", "message"),
    [
        ([("flip", ())], [np.full((2, 2), 2.0)], r"flip: parameters must be 0 or 1, got 2 \(image"),
        ([("crop", (4.0, 4.0, 0.0))], [np.zeros((2, 2))], "out must take an image of height 4"),
        ([("flip", ())] * 40, [np.zeros((2, 2))] * 40, None),
        ([("erase", (1.0,))] * 40, [np.zeros((2, 4))] * 40, "at most 32 steps go together"),
    ],
    ids=["parameters", "size", "flips are one step", "steps"],
)
def test_what_does_not_fit_is_refused(steps: Any, rows: Any, message: str | None) -> None:
    place = needle.device(emulated.NAME)
    images, out = np.zeros((2, 5, 6, 3), np.uint8), place.empty((2, 5, 6, 3), "uint8")
    if message is None:
        return place.run_images(steps, rows, images, None, out.view)
    with pytest.raises(ValueError, match=message):
        place.run_images(steps, rows, images, None, out.view)
    with pytest.raises(ValueError, match="out must have 4 axes, one row per image, and be compact"):
        place.run_images([], [], images, None, place.empty((1, 5, 6, 3), "uint8").view)


def test_uploads_from_pinned_memory_may_change_at_once() -> None:
    """The emulator copies from pinned memory as late as possible."""
    backend = backends.get(emulated.NAME)
    for size in (100, 50_000):  # a buffer of 100 elements is copied by the host
        memory = bytearray(4 * size)
        pinned = backend.pin(memory)
        source = np.frombuffer(memory, np.float32)
        source[:] = np.arange(size)
        view = View(backend.allocate(size, source.dtype), (size,), (1,), 0, source.dtype)
        backend.upload(source, view)
        source[:] = -1
        np.testing.assert_array_equal(backend.download(view), np.arange(size))
        del pinned


def test_a_loader_augments_on_the_device() -> None:
    want = batches(None, "worker")
    assert len(want) == 6
    for workers in (0, 2):
        before = emulated.module.bytes_from_slots()
        got = batches(emulated.NAME, "device", workers)
        read = emulated.module.bytes_from_slots() - before
        # directly from the slots, except for a batch when all slots are lent
        images = 28 * 18 * 12 * 3
        assert read == 0 if workers == 0 else read >= images / 2
        assert_same_batches(got, want)


def test_what_has_no_native_form_runs_in_python() -> None:
    mixed = [T.RandomFlipHorizontal(), lambda image: image[:9], T.ToFloat()]
    got, want = batches(emulated.NAME, "main", 0, mixed), batches(None, "worker", 0, mixed)
    assert_same_batches(got, want)


def test_a_recipe_for_cifar10_is_augmented_on_the_device_as_on_the_cpu() -> None:
    recipe = find_recipe("resnet18-cifar10-short").options
    pixels = np.random.default_rng(2).integers(0, 256, (10, 32, 32, 3)).astype(np.uint8)
    images = data.ImageArrays(pixels, np.arange(10), layout="HWC")
    found = []
    for device in (needle.cpu(), needle.device(emulated.NAME)):
        steps = augmentations(recipe["augment"])
        loader = training_loader(find_source("cifar10"), images, (32, 32), 4, 0, device, steps)
        found.append([[field.numpy() for field in batch] for batch in loader])
        assert (loader.augment == "device") == (device.name == emulated.NAME)
    assert_same_batches(*found)
