"""Augmentation on a device, for the tests of CUDA and WebGPU: cases and assertions."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from test_native_equals_definition import assert_equal, chains, one_by_one, pixels

import needle
from needle import data
from needle.data import transforms as T
from needle.data.samples.ticket import Ticket
from needle.data.transforms import ImageSpec
from needle.data.transforms.compile import Chain, placed
from needle.data.transforms.execute import Destination, Images

SIZES = st.integers(1, 20)
DTYPES = st.sampled_from(["uint8", "float32"])
CHANNELS = st.sampled_from([1, 3, 4])
PHOTO = [
    T.RandomResizedCrop(16),
    T.RandomFlipHorizontal(),
    T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    T.ToFloat(),
    T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),
    T.RandomErasing(0.5),
    T.ToCHW(),
]


def check_chain(drawn: Any, device: str) -> None:
    """Assert that a drawn chain of transforms gives the bits of its definition on the device."""
    dtype, channels = drawn.draw(DTYPES), drawn.draw(CHANNELS)
    height, width = drawn.draw(SIZES), drawn.draw(SIZES)
    seed = drawn.draw(st.integers(0, 2**64 - 1))
    images = pixels((3, height, width, channels), dtype, seed)
    layout = drawn.draw(st.sampled_from(["rows", "planes", "mirrored"]))
    if layout == "planes":
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    if layout == "mirrored":
        images = images[:, ::-1]
    chain = drawn.draw(chains(ImageSpec(height, width, channels, np.dtype(dtype))))
    indices = np.array(drawn.draw(st.lists(st.integers(0, 2), min_size=1, max_size=4)))
    want = one_by_one(chain, images, indices, seed, indices)
    got = Chain(placed(chain)).run(
        Images(images, indices), Ticket(0, seed, 1, indices), Destination(device=device)
    )
    assert_equal(got, want)


def check_many_sizes(device: str) -> None:
    """Assert that images of different sizes give the CPU's bits in one call."""
    images = [pixels((h, w, 3), "uint8", h) for h, w in [(20, 31), (33, 17), (16, 16)]]
    images[1] = images[1][::-1]
    keys = Ticket(0, 7, 1, np.arange(3))
    chain = Chain(placed(PHOTO))
    got = chain.on_device(images, keys, device)
    assert got.device.name == device and got.shape == (3, 3, 16, 16)
    np.testing.assert_array_equal(got.numpy(), chain.run(Images(images), keys))


def check_images_of_the_device(device: str, dtype: str) -> None:
    """Assert that images which are on the device are flipped there."""
    host = pixels((2, 9, 7, 3), dtype, 1)
    place = needle.device(device)
    images = needle.backend_ndarray.asarray(host, device=place)
    out = place.empty((2, 7, 9, 3), dtype)
    flips = np.array([[1.0, 0.0], [0.0, 1.0]])
    turned = images.permute((0, 2, 1, 3))
    place.run_images([("flip", ())], [flips], turned.view, None, out.view)
    want = host.transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(out.numpy(), [want[0][:, ::-1], want[1][::-1]])


def batches(
    device: str | None, augment: str, workers: int = 0, transforms: Any = PHOTO
) -> list[Any]:
    """Return two epochs from a loader with images of one size."""
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
            assert f"native ({device}), one call" in loader.explain()
    return [[field.numpy() for field in batch] for batch in found]


def assert_same_batches(got: list[Any], want: list[Any]) -> None:
    for batch, expected in zip(got, want, strict=True):
        assert_equal(batch, expected)
