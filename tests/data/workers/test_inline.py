"""The engine without workers makes small batches together, and each is its owner's alone."""

import numpy as np

from needle import data


def pictures(count, **options):
    """Yield a loader of small images that kernels transform, batch by batch as NumPy arrays."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, 9, 7, 3), np.uint8)
    dataset = data.ImageArrays(images, np.arange(count), dtype="uint8", layout="HWC")
    chain = [data.RandomCrop(8, size=8, fill=9), data.ToFloat(), data.ToCHW()]
    return data.DataLoader(dataset, seed=3, transforms=chain, **options)


def arrays(loader):
    return [tuple(field.numpy() for field in batch) for batch in loader]


def test_a_batch_is_its_owners_alone():
    (expected, _), (after, _) = arrays(pictures(8, batch_size=4))
    batches = iter(pictures(8, batch_size=4))
    images = next(batches)[0].realize_cached_data()
    np.testing.assert_array_equal(images.numpy(), expected)
    images[...] = -1
    assert (images.numpy() == -1).all()
    np.testing.assert_array_equal(next(batches)[0].numpy(), after)
