"""Test augmentation on WebGPU: it equals the definitions and the CPU bit for bit.

Also ``DataLoader(augment="device")``.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needle
from needle.backends.webgpu.images import lowering
from tests import device_images
from tests.device_images import assert_same_batches, batches


@pytest.fixture(scope="module", autouse=True)
def _usable() -> None:
    device = needle.webgpu()
    if not device.enabled():
        pytest.skip(str(device.why()))
    if lowering() is None:
        pytest.skip("the compiled module is missing or old: make build")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_chains_are_equal_to_their_definition(drawn: Any) -> None:
    device_images.check_chain(drawn, "webgpu")


def test_images_of_many_sizes() -> None:
    device_images.check_many_sizes("webgpu")


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_images_that_are_on_the_device_stay_there(dtype: str) -> None:
    device_images.check_images_of_the_device("webgpu", dtype)


def test_what_does_not_fit_is_refused() -> None:
    place = needle.webgpu()
    images, out = np.zeros((2, 5, 6, 3), np.uint8), place.empty((2, 5, 6, 3), "uint8")
    flips = np.full((2, 2), 2.0)
    with pytest.raises(ValueError, match=r"flip: parameters must be 0 or 1, got 2 \(image"):
        place.run_images([("flip", ())], [flips], images, None, out.view)
    with pytest.raises(ValueError, match="out must have 4 axes, one row per image, and be compact"):
        place.run_images([], [], images, None, place.empty((1, 5, 6, 3), "uint8").view)
    with pytest.raises(ValueError, match="images must be uint8 or float32, got int32"):
        place.run_images([], [], images.astype("int32"), None, out.view)
    with pytest.raises(ValueError, match="must be uint8 or float32, got >f4"):
        place.run_images([], [], images.astype(">f4"), None, out.view)
    with pytest.raises(ValueError, match=r"with one dtype and number of channels, got uint8"):
        place.run_images([], [], [images[0], images[1, :, :, :1]], None, out.view)
    with pytest.raises(ValueError, match="take no indices"):
        place.run_images([], [], out.view, np.arange(2), out.view)


@pytest.mark.slow
def test_a_loader_augments_on_the_device() -> None:
    want, got = batches(None, "worker"), batches("webgpu", "device")
    assert len(got) == 6
    assert_same_batches(got, want)
