"""Augmentation on WebGPU: bitwise the images of the definitions and of the CPU.

Also ``DataLoader(augment="device")``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_native_equals_definition import assert_equal, chains, one_by_one, pixels

import needle
from needle import data
from needle.backends.webgpu.images import lowering
from needle.data import transforms as T
from needle.data.samples.ticket import Ticket
from needle.data.transforms import ImageSpec
from needle.data.transforms.compile import Chain, placed

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


@pytest.fixture(scope="module", autouse=True)
def _usable() -> None:
    device = needle.webgpu()
    if not device.enabled():
        pytest.skip(str(device.why()))
    if lowering() is None:
        pytest.skip("the compiled module is missing or old: make build")


@settings(max_examples=60, deadline=None)
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
    got = Chain(placed(chain)).run(images, indices, Ticket(0, seed, 1, indices), device="webgpu")
    assert_equal(got, want)


def test_images_of_many_sizes() -> None:
    images = [pixels((h, w, 3), "uint8", h) for h, w in [(20, 31), (33, 17), (16, 16)]]
    images[1] = images[1][::-1]
    keys = Ticket(0, 7, 1, np.arange(3))
    chain = Chain(placed(PHOTO))
    got = chain.on_device(images, keys, "webgpu")
    assert got.device.name == "webgpu" and got.shape == (3, 3, 16, 16)
    np.testing.assert_array_equal(got.numpy(), chain.run(images, None, keys))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_images_that_are_on_the_device_stay_there(dtype: str) -> None:
    host = pixels((2, 9, 7, 3), dtype, 1)
    place = needle.webgpu()
    images = needle.backend_ndarray.asarray(host, device=place)
    out = place.empty((2, 7, 9, 3), dtype)
    flips = np.array([[1.0, 0.0], [0.0, 1.0]])
    turned = images.permute((0, 2, 1, 3))
    place.run_images([("flip", ())], [flips], turned.view, None, out.view)
    want = host.transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(out.numpy(), [want[0][:, ::-1], want[1][::-1]])


def test_what_does_not_fit_is_refused() -> None:
    place = needle.webgpu()
    images, out = np.zeros((2, 5, 6, 3), np.uint8), place.empty((2, 5, 6, 3), "uint8")
    flips = np.full((2, 2), 2.0)
    with pytest.raises(ValueError, match=r"flip: parameters must be 0 or 1, got 2 \(image"):
        place.run_images([("flip", ())], [flips], images, None, out.view)
    with pytest.raises(ValueError, match="out must have 4 axes, a row an image, and be compact"):
        place.run_images([], [], images, None, place.empty((1, 5, 6, 3), "uint8").view)
    with pytest.raises(ValueError, match="images must be uint8 or float32, got int32"):
        place.run_images([], [], images.astype("int32"), None, out.view)
    with pytest.raises(ValueError, match="must be uint8 or float32, got >f4"):
        place.run_images([], [], images.astype(">f4"), None, out.view)
    with pytest.raises(ValueError, match=r"of one dtype and number of channels, got uint8"):
        place.run_images([], [], [images[0], images[1, :, :, :1]], None, out.view)
    with pytest.raises(ValueError, match="take no indices"):
        place.run_images([], [], out.view, np.arange(2), out.view)


def batches(device: str | None, augment: str) -> list[Any]:
    """Return two epochs of a loader of images of one size."""
    images = pixels((14, 18, 12, 3), "uint8", 3)
    with data.DataLoader(
        data.ArrayDataset(images, np.arange(14)),
        5,
        shuffle=True,
        seed=3,
        transforms=PHOTO,
        augment=augment,
        device=None if device is None else needle.device(device),
    ) as loader:
        found = [batch for _ in range(2) for batch in loader]
        if augment == "device":
            assert all(each.device.name == device for batch in found for each in batch)
            assert "native (webgpu), one call" in loader.explain()
    return [[field.numpy() for field in batch] for batch in found]


def test_a_loader_augments_on_the_device() -> None:
    want, got = batches(None, "worker"), batches("webgpu", "device")
    assert len(got) == len(want) == 6
    for batch, reference in zip(got, want):
        for field, expected in zip(batch, reference):
            np.testing.assert_array_equal(field, expected)
