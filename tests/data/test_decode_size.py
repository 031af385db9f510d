"""Test how far transforms let a decoder shrink an image, and which data sets use this."""

import pickle

import numpy as np
import pytest

from needle import data
from needle.data.batching.pipeline import Pipeline
from needle.data.datasets.decode_size import Needed
from needle.data.samples.ticket import Ticket
from needle.data.transforms.base import decode_size

Image = pytest.importorskip("PIL.Image")
LATE = [data.ToFloat(), data.RandomFlipHorizontal(), data.ColorJitter(0.2), data.Resize((9, 7))]


@pytest.fixture
def root(tmp_path):
    (tmp_path / "a").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (64, 48, 3), dtype=np.uint8)
    for name in "xyz":
        Image.fromarray(noise).resize((48, 64)).save(tmp_path / "a" / f"{name}.jpg")
    return tmp_path


def folder(root, transforms=None, **options):
    return data.ImageFolder(
        root,
        transforms=transforms,
        layout="HWC",
        dtype="uint8",
        **{"scaled_decode": True} | options,
    )


def first(pipeline):
    indices = np.array([1])
    return pipeline.prepare(Ticket(0, 5, 0, indices)).batch()[0][0]


@pytest.mark.parametrize(
    ("transforms", "size"),
    [
        ([data.Resize((20, 30))], (20, 30)),
        ([data.Resize(20)], (20, 20)),
        (LATE, (9, 7)),
        ([data.Compose(LATE)], (9, 7)),
        ([], None),
        ([data.ToFloat()], None),
        ([data.RandomCrop(2), data.Resize((20, 30))], None),
        ([data.Resize((20, 30), antialias=False)], None),
        ([data.Resize((20, 30), method="nearest")], None),
        ([data.OneOf([data.Resize((20, 30))])], None),
        ([np.copy, data.Resize((20, 30))], None),
    ],
)
def test_what_suffices(transforms, size):
    assert decode_size(transforms) == size


class OwnResize(data.Resize):
    """A user's class, which may read pixels anywhere in the image."""

    def apply(self, image, row):
        return image[:20, :30]


class OwnInvert(data.Transform):
    """A user's class that declares how many pixels it needs."""

    def apply(self, image, row):
        return 255 - image

    def input_size(self, size):
        return size


class OwnSubclass(OwnInvert):
    """A subclass inherits no declaration, since its behaviour may differ."""


def test_a_users_transform_counts_where_its_own_class_says_so():
    resize = data.Resize((20, 30))
    assert decode_size([OwnResize((20, 30))]) is None
    assert decode_size([OwnInvert(), resize]) == (20, 30)
    assert decode_size([OwnSubclass(), resize]) is None


@pytest.mark.parametrize("ratio", [(3 / 4, 4 / 3), (1.5, 3.0), (0.2, 0.3)])
def test_a_random_crop_is_not_enlarged_by_decoding_less(ratio):
    crop = data.RandomResizedCrop((24, 16), scale=(0.1, 1.0), ratio=ratio)
    side = decode_size([crop])[0]
    words = np.random.default_rng(0).integers(0, 2**32, (4000, crop.words), dtype=np.uint32)
    for size in ((side, side), (side, 3 * side), (7 * side, side)):
        boxes = crop.parameters(words, np.tile(size, (4000, 1)))
        assert boxes[:, 2].min() >= 24 and boxes[:, 3].min() >= 16


def test_a_loader_that_resizes_decodes_less_and_says_so(root):
    dataset = folder(root)
    pipeline = Pipeline(dataset, [data.Resize((16, 12))])
    half = folder(root)
    assert half.set_decoding(Needed((16, 12))) and half[1][0].shape == (16, 12, 3)
    np.testing.assert_array_equal(first(pipeline), half[1][0])
    np.testing.assert_array_equal(first(pickle.loads(pickle.dumps(pipeline))), half[1][0])
    assert "half their size or less where 16 x 12 are left" in pipeline.explain()
    assert dataset[1][0].shape == (64, 48, 3)  # the dataset itself still decodes whole images
    later = Pipeline(dataset, [data.Resize((16, 12))], augment="main")
    assert first(later).shape == (16, 12, 3)


def test_subsets_and_concatenations_pass_it_on(root):
    for dataset in (
        data.Subset(folder(root), [2, 0, 1]),
        data.ConcatDataset(folder(root), folder(root, scaled_decode=False)),
    ):
        pipeline = Pipeline(dataset, [data.Resize((16, 12))], augment="main")
        assert first(pipeline).shape == (16, 12, 3)
        assert dataset[1][0].shape == (64, 48, 3)
        assert "16 x 12 are left" in pipeline.explain()
    assert not data.Subset(folder(root, scaled_decode=False), [0]).set_decoding(Needed((16, 12)))


def test_not_where_it_was_not_allowed_or_the_datasets_own_transforms_come_first(root):
    plain = Pipeline(folder(root, scaled_decode=False), [data.Resize((16, 12))], augment="main")
    assert first(plain).shape == (64, 48, 3) and "half" not in plain.explain()
    cropping = folder(root, [data.CenterCrop((40, 40))])
    pipeline = Pipeline(cropping, [data.Resize((16, 12))], augment="main")
    np.testing.assert_array_equal(first(pipeline), cropping[1][0])
    full = folder(root, [data.CenterCrop((40, 40))], scaled_decode=False)
    np.testing.assert_array_equal(first(pipeline), full[1][0])


def test_the_datasets_own_resize_counts_by_itself(root):
    dataset = folder(root, [data.Resize((16, 12))])
    assert dataset.decode_at_least == (16, 12)
    assert folder(root, iter([data.Resize((16, 12))])).decode_at_least == (16, 12)
    assert folder(root, [data.Resize((16, 12))], scaled_decode=False).decode_at_least is None
    assert "16 x 12 are left" in Pipeline(dataset, [data.Resize((4, 4))]).explain()
