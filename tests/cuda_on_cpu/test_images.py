"""Augmentation on the emulated GPU: bitwise the images of the definitions and of the CPU.

Also ``DataLoader(augment="device")`` from pinned slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_native_equals_definition import assert_equal, chains, one_by_one, pixels

import needle
from apps.training.recipes import augmentations, find_recipe
from apps.training.sources import find_source, training_loader
from needle import backends, data
from needle.backends import View
from needle.data import transforms as T
from needle.data.samples.ticket import Ticket
from needle.data.transforms import ImageSpec
from needle.data.transforms.compile import Chain, placed
from tests.cuda_on_cpu import emulated

pytestmark = pytest.mark.skipif(emulated.module is None, reason="not built: target cuda_on_cpu")
SIZES = st.integers(1, 20)
PHOTO = [
    T.RandomResizedCrop(16),
    T.RandomFlipHorizontal(),
    T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    T.ToFloat(),
    T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),
    T.RandomErasing(0.5),
    T.ToCHW(),
]


@pytest.fixture(autouse=True)
def _memory_given_back() -> Iterator[None]:
    yield
    backends.get(emulated.NAME).empty_cache()


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(["uint8", "float32"]), st.sampled_from([1, 3, 4]))
def test_chains_are_equal_to_their_definition(data: Any, dtype: str, channels: int) -> None:
    height, width, seed = data.draw(SIZES), data.draw(SIZES), data.draw(st.integers(0, 2**64 - 1))
    images = pixels((3, height, width, channels), dtype, seed)
    layout = data.draw(st.sampled_from(["rows", "planes", "mirrored"]))
    if layout == "planes":
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    if layout == "mirrored":
        images = images[:, ::-1]
    chain = data.draw(chains(ImageSpec(height, width, channels, np.dtype(dtype))))
    indices = np.array(data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=4)))
    want = one_by_one(chain, images, indices, seed, indices)
    got = Chain(placed(chain)).run(
        images, indices, Ticket(0, seed, 1, indices), device=emulated.NAME
    )
    assert_equal(got, want)


def test_images_of_many_sizes_are_one_launch() -> None:
    images = [pixels((h, w, 3), "uint8", h) for h, w in [(20, 31), (33, 17), (16, 16)]]
    images[1] = images[1][::-1]
    keys = Ticket(0, 7, 1, np.arange(3))
    chain = Chain(placed(PHOTO))
    before = emulated.module.launches()
    got = chain.on_device(images, keys, emulated.NAME)
    assert emulated.module.launches() == before + 1
    assert got.device.name == emulated.NAME and got.shape == (3, 3, 16, 16)
    np.testing.assert_array_equal(got.numpy(), chain.run(images, None, keys))


def test_images_that_are_on_the_device_stay_there() -> None:
    host = pixels((2, 9, 7, 3), "uint8", 1)
    place = needle.device(emulated.NAME)
    images = needle.backend_ndarray.asarray(host, device=place)
    out = place.empty((2, 7, 9, 3), "uint8")
    flips = np.array([[1.0, 0.0], [0.0, 1.0]])
    turned = images.permute((0, 2, 1, 3))
    place.run_images([("flip", ())], [flips], turned.view, None, out.view)
    want = host.transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(out.numpy(), [want[0][:, ::-1], want[1][::-1]])


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
    with pytest.raises(ValueError, match="out must have 4 axes, a row an image, and be compact"):
        place.run_images([], [], images, None, place.empty((1, 5, 6, 3), "uint8").view)


def test_uploads_from_pinned_memory_may_change_at_once() -> None:
    """The emulator copies from pinned memory as late as possible."""
    backend = backends.get(emulated.NAME)
    for size in (100, 50_000):  # the host copies the first of them
        memory = bytearray(4 * size)
        pinned = backend.pin(memory)
        source = np.frombuffer(memory, np.float32)
        source[:] = np.arange(size)
        view = View(backend.allocate(size, source.dtype), (size,), (1,), 0, source.dtype)
        backend.upload(source, view)
        source[:] = -1
        np.testing.assert_array_equal(backend.download(view), np.arange(size))
        del pinned


def batches(device: str | None, augment: str, workers: int, transforms: Any) -> list[Any]:
    """Return two epochs of a loader of images of one size."""
    images = pixels((14, 18, 12, 3), "uint8", 3)
    with data.DataLoader(
        data.ArrayDataset(images, np.arange(14)),
        5,
        shuffle=True,
        seed=3,
        num_workers=workers,
        transforms=transforms,
        augment=augment,
        device=None if device is None else needle.device(device),
    ) as loader:
        found = [batch for _ in range(2) for batch in loader]
        if augment == "device":
            assert all(each.device.name == device for batch in found for each in batch)
            assert "native (cuda_emulated), one call" in loader.explain()
    return [[field.numpy() for field in batch] for batch in found]


def test_a_loader_augments_on_the_device() -> None:
    want = batches(None, "worker", 0, PHOTO)
    assert len(want) == 6
    for workers in (0, 2):
        before = emulated.module.bytes_from_slots()
        got = batches(emulated.NAME, "device", workers, PHOTO)
        read = emulated.module.bytes_from_slots() - before
        # directly from the slots, except for a batch when all slots are lent
        images = 28 * 18 * 12 * 3
        assert read == 0 if workers == 0 else read >= images / 2
        for ours, theirs in zip(got, want, strict=True):
            assert_equal(ours, theirs)


def test_what_has_no_native_form_runs_in_python() -> None:
    mixed = [T.RandomFlipHorizontal(), lambda image: image[:9], T.ToFloat()]
    for ours, theirs in zip(
        batches(emulated.NAME, "main", 0, mixed), batches(None, "worker", 0, mixed), strict=True
    ):
        assert_equal(ours, theirs)


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
    for ours, theirs in zip(*found, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
