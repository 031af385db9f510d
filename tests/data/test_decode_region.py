"""Test partial decoding: the region that transforms read is decoded to the same pixels."""

import io
import pickle
import re
from types import SimpleNamespace

import numpy as np
import pytest

from needle import data
from needle.data.batching.pipeline import Pipeline
from needle.data.formats import decoding
from needle.data.samples.random_source import LOADER_STREAM, keyed
from needle.data.samples.ticket import Ticket
from needle.data.transforms.base import Compose, ImageSpec
from needle.data.transforms.compile import Chain, placed
from needle.data.transforms.execute import Images
from needle.data.transforms.region import Region, regions_of
from needle.errors import DataError

Image = pytest.importorskip("PIL.Image")
simplejpeg = pytest.importorskip("simplejpeg")

FLIPS = data.RandomFlipHorizontal(), data.RandomFlipVertical()
COLOUR = data.ColorJitter(0.3, 0.3, 0.3, 0.1)
VALUES = data.ToFloat(), data.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
CHAINS = {
    "crop": [data.RandomCrop(size=17)],
    "centre": [data.CenterCrop((20, 9)), FLIPS[0]],
    "resize, crop": [data.Resize((40, 32)), data.RandomCrop(size=(25, 16)), *FLIPS],
    "shorter side, centre": [data.Resize(32), data.CenterCrop(28)],
    "flips first": [*FLIPS, data.Resize((44, 40)), *FLIPS, data.RandomCrop(size=20)],
    "nearest": [data.Resize((33, 20), method="nearest"), FLIPS[1], data.RandomCrop(size=9)],
    "not antialiased": [data.Resize((20, 20), antialias=False), data.RandomCrop(size=9)],
    "enlarged": [data.Resize((90, 130)), data.RandomCrop(size=40)],
    "box": [data.RandomResizedCrop(16, scale=(0.1, 0.6)), FLIPS[0], *VALUES, data.ToCHW()],
    "box, nearest": [data.RandomResizedCrop((9, 24), method="nearest"), FLIPS[0]],
    "box of a box": [data.RandomResizedCrop(40), FLIPS[0], data.RandomResizedCrop(16)],
    "over the edge": [data.RandomCrop(size=70, padding=12), data.RandomCrop(size=30, padding=9)],
    "padded": [data.Pad(5), data.RandomCrop(size=20)],
    "colour and floats": [
        *(COLOUR, VALUES[0], data.Resize((40, 40)), COLOUR, VALUES[1], data.RandomCrop(size=20))
    ],
    "composed": [Compose([data.Resize((40, 32)), Compose([data.RandomCrop(size=11)])])],
    "then a function": [data.Resize((40, 32)), data.RandomCrop(size=11), np.ascontiguousarray],
}


def regions(transforms):
    return regions_of(placed(transforms, LOADER_STREAM))


def region(transforms, sample, size=(61, 47), dtype="uint8"):
    with keyed(7, 1, sample):
        return regions(transforms).of(ImageSpec(*size, 3, np.dtype(dtype)))


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def transformed(transforms, image, sample):
    ticket = Ticket(0, 7, 1, np.array([sample]))
    return np.asarray(Chain(placed(transforms, LOADER_STREAM)).run(Images(image[None]), ticket))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name", CHAINS)
def test_pixels_outside_of_the_region_do_not_count(name, dtype):
    smaller = 0
    for sample in range(40):
        size = (61, 47) if sample % 2 else (33, 90)
        image = noise(*size, sample)
        image = image if dtype == "uint8" else image / np.float32(255)
        box = region(CHAINS[name], sample, size, dtype)
        if box is None:
            continue
        smaller += 1
        other = 1 - image if dtype == "float32" else 255 - image
        inside = (slice(box.top, box.bottom), slice(box.left, box.right))
        other[inside] = image[inside]
        want = transformed(CHAINS[name], image, sample)
        np.testing.assert_array_equal(transformed(CHAINS[name], other, sample), want)
    assert smaller > 10


@pytest.mark.parametrize("name", ["crop", "resize, crop", "nearest", "box"])
def test_the_region_is_no_larger_than_need_be(name):
    """A change two pixels inside an edge is visible; the outermost taps may have weight zero."""
    for sample in range(10):
        image = noise(61, 47, sample)
        box = region(CHAINS[name], sample)
        want = transformed(CHAINS[name], image, sample)
        for edge in ("top", "left", "bottom", "right"):
            place = getattr(box, edge)
            inner = slice(place, place + 3) if edge in ("top", "left") else slice(place - 3, place)
            other = image.copy()
            other[(inner,) if edge in ("top", "bottom") else (slice(None), inner)] ^= 255
            assert (transformed(CHAINS[name], other, sample) != want).any()


def test_the_region_in_numbers():
    centre = [data.Resize((100, 200)), data.CenterCrop((50, 60))]
    # At half the size, position i reads 2i - 1 to 2i + 2: rows 25 to 74, columns 70 to 129.
    assert region(centre, 0, (200, 400)) == Region(49, 139, 151, 261)
    assert region([data.CenterCrop(10)], 0, (30, 40)) == Region(10, 15, 20, 25)
    assert region([data.CenterCrop(50)], 0, (30, 40)) is None
    beside = [data.Pad(30), data.RandomCrop(size=5)]
    assert {region(beside, sample, (3, 3)) for sample in range(9)} == {Region(0, 0, 1, 1)}


@pytest.mark.parametrize(
    "transforms",
    [
        [],
        [data.Resize((20, 30)), *FLIPS],
        [data.RandomAffine(10), data.RandomCrop(size=9)],
        [data.OneOf([data.RandomCrop(size=9)])],
        [np.copy, data.RandomCrop(size=9)],
        [type("Own", (data.RandomCrop,), {})(size=9)],
    ],
)
def test_no_region_is_known(transforms):
    found = regions(transforms)
    with keyed(7, 0, 0):
        assert found is None or found.of(ImageSpec(40, 50, 3, "uint8")) is None


def test_without_a_seed_only_what_is_not_drawn_counts():
    spec = ImageSpec(40, 50, 3, "uint8")
    assert regions([data.RandomCrop(size=9)]).of(spec) is None
    drawn_later = [data.CenterCrop(20), data.RandomCrop(size=9)]
    assert regions(drawn_later).of(spec) == Region(10, 15, 30, 35)


# ---- decoding ------------------------------------------------------------------------------------

compiled = pytest.mark.skipif(
    decoding.jpeg_region() is None, reason="jpeg_region was not built: no libjpeg-turbo"
)
SUBSAMPLINGS = ("444", "422", "420", "440", "411", "Gray")


def jpeg(image, subsampling="420", quality=92):
    if subsampling == "Gray":
        return simplejpeg.encode_jpeg(image[..., :1].copy(), quality, "GRAY")
    return simplejpeg.encode_jpeg(image, quality, colorsubsampling=subsampling)


def picture(height, width):
    """Return an image of shapes in strong colours, and noise."""
    y, x = np.mgrid[0:height, 0:width] / 9
    planes = [np.sin(x) * np.cos(y), np.sin(x + y), np.cos(x - y / 2)]
    smooth = 127 + 100 * np.stack(planes, -1)
    return np.clip(smooth + noise(height, width) / 5 - 25, 0, 255).astype(np.uint8)


def random_boxes(height, width, count):
    generator = np.random.default_rng(height * width)
    for _ in range(count):
        rows = np.sort(generator.choice(height + 1, 2, replace=False)).tolist()
        columns = np.sort(generator.choice(width + 1, 2, replace=False)).tolist()
        yield Region(rows[0], columns[0], rows[1], columns[1])


def decoded(content, box, mode="RGB", at_least=None):
    """Return the box's pixels decoded alone and cropped from the whole image."""
    alone = decoding.decode(content, mode, at_least, region=lambda height, width: box)
    whole = decoding.decode(content, mode, at_least)
    assert alone.shape == whole.shape
    inside = (slice(box.top, box.bottom), slice(box.left, box.right))
    return alone[inside], whole[inside]


@pytest.fixture
def parts(monkeypatch):
    """Replace ``decode_region`` by a wrapper that records its results."""
    module, answers = decoding.jpeg_region(), []

    def decode_region(content, out, *numbers):
        out[...] = 99
        answers.append(module.decode_region(content, out, *numbers))
        return answers[-1]

    monkeypatch.setattr(
        decoding, "jpeg_region", lambda: SimpleNamespace(decode_region=decode_region)
    )
    return answers


def check_boxes(content, parts, mode="RGB", at_least=None):
    """Compare random regions of a JPEG with the whole image; return the image's size."""
    height, width = decoding.decode(content, mode, at_least).shape[:2]
    for box in random_boxes(height, width, 30):
        np.testing.assert_array_equal(*decoded(content, box, mode, at_least))
    assert parts == [True] * 30
    return height, width


@compiled
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
@pytest.mark.parametrize("size", [(64, 96), (71, 53), (130, 203), (9, 300), (300, 5)])
def test_the_regions_pixels_are_those_of_the_whole_image(parts, size, subsampling, mode):
    check_boxes(jpeg(picture(*size), subsampling), parts, mode)


@compiled
@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
@pytest.mark.parametrize("scale", [2, 4, 8])
def test_at_a_smaller_size_too(parts, scale, subsampling):
    content = jpeg(picture(261, 307), subsampling)
    size = check_boxes(content, parts, at_least=(261 // scale, 307 // scale))
    assert size == (-(-261 // scale), -(-307 // scale))


@compiled
@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("at_least", [None, (30, 30)])
def test_of_an_image_that_is_turned(parts, turn, at_least):
    exif, stream = Image.Exif(), io.BytesIO()
    exif[0x0112] = turn
    Image.fromarray(picture(71, 130)).save(stream, "JPEG", exif=exif)
    height, width = check_boxes(stream.getvalue(), parts, at_least=at_least)
    assert (height > width) == (turn > 4)


@compiled
def test_files_of_other_encoders(parts):
    image = Image.fromarray(picture(120, 150))
    box = Region(30, 40, 90, 100)
    for options, by_region in (
        ({"quality": 75}, True),
        ({"optimize": True}, True),
        ({"restart_marker_blocks": 3}, True),
        ({"keep_rgb": True}, True),
        ({"progressive": True}, False),
    ):
        stream = io.BytesIO()
        image.save(stream, "JPEG", **options)
        np.testing.assert_array_equal(*decoded(stream.getvalue(), box))
        assert parts[-1] == by_region, options
    for mode, by_region in (("CMYK", False), ("L", True)):
        stream = io.BytesIO()
        image.convert(mode).save(stream, "JPEG")
        del parts[:]
        np.testing.assert_array_equal(*decoded(stream.getvalue(), box))
        assert any(parts) == by_region


def test_other_formats_and_no_region_are_decoded_whole():
    stream = io.BytesIO()
    Image.fromarray(noise(20, 30)).save(stream, "PNG")
    for content in (stream.getvalue(), jpeg(noise(20, 30))):
        whole = decoding.decode(content)
        np.testing.assert_array_equal(decoding.decode(content, region=lambda *size: None), whole)
    other = decoding.decode(stream.getvalue(), region=lambda *size: Region(0, 0, 1, 1))
    np.testing.assert_array_equal(other, noise(20, 30))


def error_of(content, **options):
    with pytest.raises(DataError) as caught:
        decoding.decode(content, name="x.jpg", **options)
    return re.sub("0x[0-9a-f]+", "", str(caught.value))


def test_damaged_files_are_the_same_errors():
    content = jpeg(picture(256, 256), quality=95)
    corner = {"region": lambda *size: Region(0, 0, 200, 8)}
    for length in (2, 4, 100, len(content) // 3, len(content) - 2, len(content) - 1):
        assert error_of(content[:length], **corner) == error_of(content[:length])
    hole = bytearray(content)
    hole[len(hole) // 2 : len(hole) // 2 + 2] = decoding.JPEG_END
    assert error_of(bytes(hole), **corner) == error_of(bytes(hole))
    small = {"max_pixels": 256 * 256 - 1}
    assert error_of(content, **corner, **small) == error_of(content, **small)
    tail = decoding.decode(content + b"tail", **corner)
    np.testing.assert_array_equal(tail, decoding.decode(content))


@compiled
def test_a_wrong_call_is_refused():
    decode_region, content = decoding.jpeg_region().decode_region, jpeg(picture(20, 30))
    out = np.zeros((20, 30, 3), np.uint8)
    for box in ((5, 5, 5, 9), (0, 0, 21, 30), (0, 9, 20, 8), (0, 0, 20, 31)):
        with pytest.raises(ValueError, match="must have pixels and lie inside of out"):
            decode_region(content, out, 1, *box)
    with pytest.raises(ValueError, match=r"uint8 \(H, W, 1\) or \(H, W, 3\)"):
        decode_region(content, out[..., :2].copy(), 1, 0, 0, 1, 1)
    for wrong in (out.astype(np.int64), out[:, ::2], memoryview(bytes(1800))):
        with pytest.raises(TypeError):
            decode_region(content, wrong, 1, 0, 0, 1, 1)
    assert not decode_region(content, np.zeros((20, 31, 3), np.uint8), 1, 0, 0, 1, 1)
    assert not decode_region(b"", out, 1, 0, 0, 1, 1)
    assert decode_region(content, out, 1, 3, 4, 9, 12)


# ---- data sets and loaders -----------------------------------------------------------------------

SIZES = ((75, 100), (100, 75), (64, 48), (90, 91))


@pytest.fixture
def root(tmp_path):
    for label in "ab":
        (tmp_path / label).mkdir()
        for i, size in enumerate(SIZES):
            content = jpeg(noise(*size, i), SUBSAMPLINGS[i])
            (tmp_path / label / f"{i}.jpg").write_bytes(content)
    return tmp_path


def folder(root, **options):
    return data.ImageFolder(root, **{"layout": "HWC", "dtype": "uint8"} | options)


def batch(dataset, transforms, seed=7, **options):
    ticket = Ticket(0, seed, 3, np.array([3, 0, 5]))
    pipeline = pickle.loads(pickle.dumps(Pipeline(dataset, transforms, **options)))
    part = pipeline.prepare(ticket)
    return np.asarray(pipeline.finish(part, ticket)[0])


TRANSFORMS = [data.Resize((60, 50)), FLIPS[0], data.RandomCrop(size=32), *VALUES, data.ToCHW()]
RANDOM_BOX = [data.RandomResizedCrop(24), FLIPS[0]]


def both(monkeypatch, *arguments, **options):
    """Return a batch of partially decoded images and one of fully decoded images."""
    alone = batch(*arguments, **options)
    with monkeypatch.context() as patch:
        patch.setattr(decoding, "jpeg_region", lambda: None)
        return alone, batch(*arguments, **options)


@pytest.mark.parametrize("transforms", [TRANSFORMS, RANDOM_BOX])
@compiled
def test_batches_are_the_same(root, parts, monkeypatch, transforms):
    for dataset in (
        folder(root),
        folder(root, dtype="float32"),
        folder(root, mode="L") if transforms is RANDOM_BOX else folder(root),
        folder(root, scaled_decode=True),
        data.Subset(folder(root), [3, 1, 0, 5, 7, 2]),
        data.ConcatDataset(data.Subset(folder(root), [4]), folder(root)),
    ):
        del parts[:]
        np.testing.assert_array_equal(*both(monkeypatch, dataset, transforms))
        assert parts == [True] * 3


@compiled
def test_packed_images_too(root, parts, monkeypatch, tmp_path):
    pytest.importorskip("pyarrow")
    data.pack(folder(root), tmp_path / "packed.arrow", encode="keep")
    packed = data.PackedDataset(tmp_path / "packed.arrow")
    np.testing.assert_array_equal(*both(monkeypatch, packed, TRANSFORMS))
    assert parts == [True] * 3
    np.testing.assert_array_equal(batch(packed, TRANSFORMS), batch(folder(root), TRANSFORMS))


@compiled
def test_without_a_seed_nothing_is_drawn_twice(root, parts, monkeypatch):
    np.random.seed(3)
    alone = batch(folder(root), TRANSFORMS, seed=None)
    np.random.seed(3)
    monkeypatch.setattr(decoding, "jpeg_region", lambda: None)
    np.testing.assert_array_equal(alone, batch(folder(root), TRANSFORMS, seed=None))
    assert parts == []


@compiled
def test_evaluation_needs_no_seed(root, parts, monkeypatch):
    centre = [data.Resize((60, 50)), data.CenterCrop(32)]
    np.testing.assert_array_equal(*both(monkeypatch, folder(root), centre, seed=None))
    assert parts == [True] * 3


class Halved(data.ImageFolder):
    """A user's subclass whose items have other pixels."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image[::2], label


@compiled
def test_whole_images_where_others_see_them(root, parts):
    dataset = folder(root)
    for made, options in (
        (Halved(root, layout="HWC", dtype="uint8"), {}),
        (folder(root, transforms=[data.Resize((70, 70))]), {}),
        (data.Subset(Halved(root, layout="HWC", dtype="uint8"), range(8)), {}),
        (dataset, {"augment": "main"}),
    ):
        batch(made, TRANSFORMS, **options)
    Pipeline(dataset, TRANSFORMS)
    dataset[1]
    batch(dataset, [np.copy, data.Resize((60, 50))])
    assert parts == []
    moved = Pipeline(folder(root, layout="CHW"), [data.RandomCrop(size=3)])
    moved.prepare(Ticket(0, 7, 3, np.array([3])))
    assert parts == []


@compiled
def test_a_loader_says_so(root, parts):
    said = "only the part of a JPEG that the first transforms read is decoded"
    assert said in Pipeline(folder(root), TRANSFORMS).explain()
    assert said in Pipeline(data.Subset(folder(root), [1]), RANDOM_BOX).explain()
    assert said not in Pipeline(folder(root), [data.Resize((60, 50))]).explain()
