"""Test random draws of transforms, transforms as values, bad arguments and batch transforms.

Parameters are fair, independent along every part of the key, and independent between rows; identity
parameters change nothing.
"""

import pickle

import cloudpickle
import numpy as np
import pytest

from needle import data
from needle.backends import philox
from needle.data.samples.random_source import keyed
from needle.data.transforms import ImageSpec, Step, contains
from needle.errors import DTypeError, ShapeError

N = 4000
BYTES = ImageSpec(12, 10, 3, "uint8")
RANDOM = [
    data.RandomCrop(2),
    data.RandomCrop(2, p=0.5),
    data.RandomCrop(padding=1, size=(5, 4), fill=3),
    data.RandomFlipHorizontal(0.3),
    data.RandomFlipVertical(0.7),
    data.RandomResizedCrop((4, 5)),
    data.RandomRotation(30, p=0.5),
    data.RandomAffine(20, 0.2, (0.8, 1.2), 10, p=0.5),
    data.RandomBrightnessContrast(0.3, 0.4, p=0.5),
    data.ColorJitter(0.2, 0.3, 0.4, 0.1, p=0.5),
    data.RandomErasing(0.5),
    data.Cutout(4, 0.5, 7),
]
FIXED = [
    data.Pad((1, 2), 0.5),
    data.CenterCrop(6),
    data.Resize(4),
    data.Resize((3, 9), False, "nearest"),
    data.ToCHW(),
    data.Permute((1, 0, 2)),
    data.ToFloat(),
    data.Normalize((0.1, 0.2, 0.3), 1.5),
    data.Compose([data.Pad(1), data.OneOf([data.Pad(1), data.ToFloat()], 0.5, [1, 2])]),
    data.MixUp(0.3, 10),
    data.CutMix(1.0, 10, layout="HWC"),
]


def rows_of(transform, stream=0, epoch=0, indices=None, size=(12, 10), spec=BYTES, n=N):
    indices = np.arange(n) if indices is None else indices
    drawn = philox.words(11, epoch, indices, stream, transform.words)
    return transform.parameters(drawn, np.tile(np.array([size]), (len(indices), 1)), spec)


def fair(counts, degrees_limit):
    expected = counts.sum() / counts.size
    return ((counts - expected) ** 2 / expected).sum() < degrees_limit


def test_crop_places_are_uniform():
    whole = rows_of(data.RandomCrop(2))
    # chi-square with 24 degrees of freedom, p = 0.1 %
    assert fair(np.histogram2d(*whole.T, 5, ((-2.5, 2.5),) * 2)[0], 51.2)
    sized = rows_of(data.RandomCrop(padding=1, size=(5, 4)))
    assert sized.min(axis=0).tolist() == [-1, -1] and sized.max(axis=0).tolist() == [8, 7]
    assert fair(np.bincount((sized[:, 0] + 1).astype(int)), 27.9)  # 9 d.o.f., p = 0.1 %
    small = rows_of(data.RandomCrop(size=20))
    assert small.min(axis=0).tolist() == [-8, -10] and small.max(axis=0).tolist() == [0, 0]


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_each_happens_with_its_probability(p):
    same = np.eye(3, 4).ravel()
    changed = {
        "crop": (rows_of(data.RandomCrop(10**6, p=p)) != 0).any(axis=1),
        "flip": rows_of(data.RandomFlipHorizontal(p))[:, 0] == 1,
        "upside down": rows_of(data.RandomFlipVertical(p))[:, 1] == 1,
        "rotation": (rows_of(data.RandomRotation(30, p)) != [1, 0, 0, 0, 1, 0]).any(axis=1),
        "affine": (rows_of(data.RandomAffine(30, p=p)) != [1, 0, 0, 0, 1, 0]).any(axis=1),
        "contrast": (rows_of(data.RandomBrightnessContrast(p=p)) != same).any(axis=1),
        "jitter": (rows_of(data.ColorJitter(0.5, p=p)) != same).any(axis=1),
        "erasing": rows_of(data.RandomErasing(p))[:, 2] > 0,
        "cutout": rows_of(data.Cutout(3, p))[:, 2] > 0,
        "one of": rows_of(data.OneOf([data.ToCHW()], p))[:, 0] == 0,
    }
    for name, happened in changed.items():
        assert abs(happened.mean() - p) <= 3.5 * np.sqrt(p * (1 - p) / N), name


def test_one_of_without_weights_chooses_evenly():
    chosen = rows_of(data.OneOf([data.ToCHW()] * 3))[:, 0]
    assert fair(np.bincount(chosen.astype(int), minlength=3), 13.8)


def test_amounts_are_uniform_within_their_limits():
    angle = rows_of(data.RandomRotation((10, 50)))
    degrees = np.degrees(np.arctan2(angle[:, 3], angle[:, 0]))
    assert fair(np.histogram(degrees, 20, (10, 50))[0], 43.8)
    jitter = rows_of(data.ColorJitter((0.5, 1.5)))[:, 0]
    assert fair(np.histogram(jitter, 20, (0.5, 1.5))[0], 43.8)
    size = (1000, 1000)
    box = rows_of(data.RandomResizedCrop(4, (0.2, 0.5), (0.5, 2)), size=size)
    area, shape = box[:, 2] * box[:, 3] / 1e6, np.log(box[:, 3] / box[:, 2])
    assert fair(np.histogram(area, 20, (0.2, 0.5))[0], 43.8)
    assert fair(np.histogram(shape, 20, (-np.log(2), np.log(2)))[0], 43.8)
    place = box[:, 0] / (1000 - box[:, 2])
    assert fair(np.histogram(place, 20, (0, 1))[0], 43.8)


def test_boxes_lie_in_the_image_even_where_none_fits():
    for size in ((1, 1), (1, 500), (500, 1), (2, 3), (37, 11)):
        for transform in (data.RandomResizedCrop(3), data.RandomErasing(1.0), data.Cutout(50)):
            rows = rows_of(transform, size=size, n=300)
            assert (rows >= 0).all() and (rows == np.rint(rows)).all()
            assert (rows[:, :2] + rows[:, 2:] <= size).all()
            if isinstance(transform, data.RandomResizedCrop):
                assert rows[:, 2:].min() >= 1


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("transform", RANDOM + FIXED[:-3], ids=repr)
def test_calling_is_drawing_and_applying(transform, dtype):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 3))
    x = pixels.astype(dtype) if dtype == "uint8" else (pixels / 255).astype(dtype)
    spec = ImageSpec(12, 10, 3, dtype)
    before = x.copy()
    for index in range(6):
        with keyed(11, 0, index):
            got = transform(x)
        row = rows_of(transform, indices=np.array([index]), spec=spec)[0]
        np.testing.assert_array_equal(got, transform.apply(x, row))
        made = transform.output(spec)
        assert made is not None and made.shape == got.shape and made.dtype == got.dtype
    np.testing.assert_array_equal(x, before)
    if dtype != "float64":
        assert isinstance(transform.step(spec), Step)
    else:
        assert transform.step(spec) is None


@pytest.mark.parametrize("transform", RANDOM + FIXED, ids=repr)
def test_transforms_are_values(transform):
    again = pickle.loads(pickle.dumps(transform))
    assert again == transform and hash(again) == hash(transform)
    assert eval(repr(transform), vars(data)) == transform


@pytest.mark.parametrize("transform", RANDOM + FIXED[:-2], ids=repr)
@pytest.mark.parametrize("kind", ["picture", "list"])
def test_anything_but_an_array_is_refused(transform, kind):
    given = [[[0, 0, 0]] * 5] * 4
    if kind == "picture":
        given = pytest.importorskip("PIL.Image").new("RGB", (5, 4))
    name = "Pad" if isinstance(transform, data.Compose) else type(transform).__name__
    for call in (
        transform,
        lambda x: list(data.DataLoader([x] * 3, transforms=[transform], seed=1)),
    ):
        with pytest.raises(
            TypeError, match=f"{name}: the image must be a NumPy array .*pass numpy.asarray"
        ):
            call(given)


def test_a_transform_without_a_body_says_what_to_define():
    with pytest.raises(NotImplementedError, match="must define __call__"):
        data.Transform()(np.zeros((2, 2, 1)))


def test_lambdas_are_taken_everywhere():
    both = data.Compose([data.OneOf([lambda x: x + 1]), lambda x: x * 2])
    assert cloudpickle.loads(cloudpickle.dumps(both))(3) == both(3) == 8
    assert contains([data.OneOf([data.ToCHW()])], data.ToCHW)


def batch(n=6):
    images = np.random.default_rng(0).random((n, 3, 8, 10), dtype=np.float32)
    return images, np.arange(n) % 4


@pytest.mark.parametrize("index", range(8))
def test_mixup_and_cutmix_mix_labels_as_they_mix_images(index):
    images, labels = batch()
    with keyed(1, 0, index):
        mixed, soft = data.MixUp(1.0, 4)((images, labels))
    hot = np.eye(4)[labels]
    found = np.linalg.lstsq(images.reshape(6, -1).T, mixed.reshape(6, -1).T, rcond=None)[0].T
    np.testing.assert_allclose(found @ hot, soft, atol=1e-4)
    with keyed(1, 0, index):
        cut, soft = data.CutMix(1.0, 4)((images, hot))
    taken = (cut[:, None] == images[None]).all(axis=2).mean(axis=(2, 3))
    np.testing.assert_allclose(taken @ hot, soft, atol=1e-6)
    np.testing.assert_allclose(soft.sum(axis=1), 1, atol=1e-6)
    assert soft.dtype == np.float32


def test_batches_mix_by_key_alone_and_with_their_probability():
    def mixed(transform, index):
        with keyed(3, 1, index):
            return transform(batch())[0]

    mix = data.MixUp(1.0, 4, p=0.5)
    images = batch()[0]
    same = np.array([(mixed(mix, i) == images).all() for i in range(400)])
    assert abs(same.mean() - 0.5) < 0.09
    np.testing.assert_array_equal(mixed(mix, 7), mixed(mix, 7))
    one = data.OneOf([data.MixUp(1.0, 4), data.CutMix(1.0, 4)])
    assert len({mixed(one, i).tobytes() for i in range(20)}) == 20
    empty = data.CutMix(1.0, 4)((images[:0], np.arange(0)))
    assert empty[0].shape == (0, 3, 8, 10) and empty[1].shape == (0, 4)


GREY16 = np.zeros((3, 3, 1), np.uint16)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: data.RandomFlipHorizontal(1.5), ValueError, r"p must be in \[0, 1\], got 1.5"),
        (lambda: data.RandomCrop(-1), ValueError, "RandomCrop: padding must not be negative"),
        (lambda: data.Pad((1, -1)), ValueError, "Pad: padding must not be negative"),
        (lambda: data.Resize(0), ValueError, "Resize: size must be at least 1, got 0"),
        (lambda: data.Normalize(0, (1, 0)), ValueError, "Normalize: std must be positive"),
        (
            lambda: data.Normalize((1, 2), 1)(np.ones((2, 2, 3))),
            ShapeError,
            "mean has 2 values, got an",
        ),
        (lambda: data.RandomCrop()(np.zeros((4, 4))), ShapeError, "RandomCrop: the image must be"),
        (lambda: data.ToCHW()(np.zeros(4)), ShapeError, "ToCHW: the image must be"),
        (lambda: data.Pad(1)(np.zeros((2, 2))), ShapeError, "Pad: the image must be"),
        (lambda: data.Resize(2)(np.zeros((0, 2, 1))), ShapeError, "must have pixels"),
        (lambda: data.RandomFlipVertical(-1), ValueError, r"Vertical: p must be in \[0, 1\], got"),
        (lambda: data.RandomCrop(size=0), ValueError, "RandomCrop: size must be at least 1, got 0"),
        (lambda: data.RandomCrop(size=4, p=0.5), ValueError, "RandomCrop: p must be 1 with a size"),
        (lambda: data.RandomCrop(fill=np.nan), ValueError, "fill must be a finite number, got nan"),
        (lambda: data.CenterCrop((1, 2, 3)), ValueError, "CenterCrop: size must be an int or two"),
        (lambda: data.CenterCrop((1.5, 2)), TypeError, "CenterCrop: size must be ints, got"),
        (lambda: data.Resize(4, method="cubic"), ValueError, "method must be 'nearest' or 'bilin"),
        (lambda: data.RandomResizedCrop(4, (0.5, 0.1)), ValueError, r"scale must be \(least, most"),
        (lambda: data.RandomResizedCrop(4, ratio=(0, 1)), ValueError, "RandomResizedCrop: ratio"),
        (lambda: data.Permute((0, 1, 1)), ValueError, "Permute: axes must be 0, 1 and 2"),
        (lambda: data.RandomRotation("a"), ValueError, "RandomRotation: degrees must be a finite"),
        (lambda: data.RandomAffine(translate=2), ValueError, "translate must be fractions"),
        (lambda: data.RandomAffine(shear=60), ValueError, "RandomAffine: shear must be"),
        (lambda: data.RandomAffine(scale=(0, 1)), ValueError, "RandomAffine: scale must be"),
        (lambda: data.ColorJitter(-0.1), ValueError, "brightness must not be negative, got -0.1"),
        (lambda: data.ColorJitter(hue=0.6), ValueError, "ColorJitter: hue must be"),
        (lambda: data.RandomBrightnessContrast((1, 0)), ValueError, "brightness must be"),
        (lambda: data.RandomErasing(2), ValueError, "RandomErasing: p must be in"),
        (lambda: data.Cutout(0), ValueError, "Cutout: size must be at least 1"),
        (lambda: data.OneOf([]), ValueError, "OneOf: transforms must not be empty"),
        (lambda: data.OneOf([len], weights=[0]), ValueError, "OneOf: weights must be 1 numbers"),
        (lambda: data.OneOf(len), TypeError, "OneOf: transforms must be a list"),
        (lambda: data.MixUp(0), ValueError, "MixUp: alpha must be positive, got 0"),
        (lambda: data.CutMix(layout="WH"), ValueError, "CutMix: layout must be"),
        (lambda: data.MixUp()(batch()), ValueError, r"MixUp: labels must be \(n, classes\) unless"),
        (lambda: data.MixUp(1, 2)(batch()), ValueError, r"MixUp: labels must be in \[0, 2\), got"),
        (lambda: data.MixUp(1, 4)((np.zeros(3), [1])), ShapeError, "images and labels must have"),
        (lambda: data.ToFloat()(GREY16), DTypeError, "ToFloat: images must be uint8 or floating"),
        (lambda: data.ColorJitter()(GREY16), DTypeError, r"must be uint8 \(0..255\) or floating"),
        (
            lambda: data.ColorJitter(0.1)(np.zeros((2, 2, 4), np.uint8)),
            ShapeError,
            r"ColorJitter: images must have 1 or 3 channels, got shape \(2, 2, 4\)",
        ),
        (lambda: data.Cutout(2)(np.zeros((2, 2))), ShapeError, "Cutout: the image must be"),
        (
            lambda: data.ColorJitter().parameters(np.zeros((1, 5)), np.ones((1, 2))),
            DTypeError,
            "got no spec; pass an ImageSpec",
        ),
    ],
)
def test_refusals_name_the_rule_the_value_and_the_remedy(make, error, message):
    with pytest.raises(error, match=message) as caught:
        make()
    assert "; " in str(caught.value)
