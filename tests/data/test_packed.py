"""Test packed files: they round-trip through a memory map and are written in full or not at all."""

import os
import pickle
import signal
import subprocess
import sys
from enum import IntEnum

import numpy as np
import pytest

from needle import data
from needle.data.datasets import packed_reading as reading
from needle.data.datasets.decode_size import Needed
from needle.errors import DataError

pa = pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")
simplejpeg = pytest.importorskip("simplejpeg")

Grade = IntEnum("Grade", "GOOD BAD")
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)


def packed(tmp_path, samples, **options):
    return data.PackedDataset(data.pack(samples, tmp_path / "x.arrow", progress=False, **options))


def assert_same(got, want):
    assert type(got) is type(want)
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for left, right in zip(got, want):
            assert_same(left, right)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            assert_same(got[key], want[key])
    elif isinstance(want, np.ndarray):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_array_equal(got, want)
    else:
        assert got == want


SAMPLES = {
    "tuples": [(image, i) for i, image in enumerate(IMAGES)],
    "several sizes": [(image[: 1 + i % 6], np.int32(i)) for i, image in enumerate(IMAGES)],
    "dicts": [{"a": image.astype(np.float32), "text": "ü" * i} for i, image in enumerate(IMAGES)],
    "lists": [[i * 0.5, i % 2 == 0, bytes(i), np.bool_(i % 3)] for i in range(20)],
    "single": list(RNG.normal(size=(20, 4))),
    "complex, empty": [(np.full(2, i + 1j), np.zeros((i % 2, 0), np.int16)) for i in range(20)],
    "transposed": [(image.transpose(2, 0, 1), np.float16(i)) for i, image in enumerate(IMAGES)],
    "long": [(np.longdouble(i) / 3, np.complex64(1j * i)) for i in range(20)],
    "big-endian": [(np.arange(3, dtype=">i4") + i,) for i in range(20)],
}


@pytest.mark.parametrize("samples", SAMPLES.values(), ids=SAMPLES)
def test_samples_come_back(tmp_path, samples):
    dataset = packed(tmp_path, samples)
    assert len(dataset) == 20
    for i in range(20):
        want = samples[i]
        if isinstance(want, tuple) and want[0].dtype == np.dtype(">i4"):
            want = (want[0].astype(np.int32),)
        assert_same(dataset[i], want)
    assert_same(dataset[-1], dataset[19])
    assert len(dataset[3:9:2]) == 3
    with pytest.raises(IndexError, match="PackedDataset: index must be in"):
        dataset[20]


def test_other_arrow_programs_read_the_columns(tmp_path):
    packed(tmp_path, SAMPLES["tuples"])
    with pa.memory_map(str(tmp_path / "x.arrow")) as source:
        table = pa.ipc.open_file(source).read_all()
    table.validate(full=True)
    assert table.column("1").to_pylist() == list(range(20))
    assert table.column("0").to_pylist() == [image.tobytes() for image in IMAGES]


def test_arrays_lie_in_the_map(tmp_path):
    dataset = packed(tmp_path, SAMPLES["tuples"])
    images, labels = dataset.in_memory()
    np.testing.assert_array_equal(images, IMAGES)
    np.testing.assert_array_equal(labels, np.arange(20))
    assert images.flags.c_contiguous and not images.flags.writeable
    assert np.shares_memory(images, dataset[7][0])
    base = images
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base.base, memoryview) or type(base.base).__name__ == "mmap"
    got = dataset.fetch(np.array([3, 1, 3]))
    assert_same(got, (IMAGES[[3, 1, 3]], np.array([3, 1, 3])))
    assert packed(tmp_path, SAMPLES["several sizes"]).in_memory() is None
    assert packed(tmp_path, SAMPLES["several sizes"]).fetch(np.arange(2)) is None
    fetched = packed(tmp_path, SAMPLES["dicts"][:1] * 2).fetch(np.arange(2))
    assert fetched is None  # text has no array representation


def test_transforms_see_the_first_field(tmp_path):
    path = data.pack(SAMPLES["tuples"], tmp_path / "x", progress=False)
    dataset = data.PackedDataset(path, [data.ToCHW()])
    assert_same(dataset[4], (np.ascontiguousarray(IMAGES[4].transpose(2, 0, 1)), 4))
    assert dataset.fetch(np.arange(3)) is None


def test_jpegs(tmp_path):
    images = [np.full((9, 7 + i, 1 + i % 1), 40 * i, np.uint8) for i in range(5)]
    dataset = packed(tmp_path, list(zip(images, "abcde")), encode="jpeg", quality=90)
    for i, image in enumerate(images):
        want = simplejpeg.decode_jpeg(
            simplejpeg.encode_jpeg(image, quality=90, colorspace="GRAY"), "GRAY"
        )
        assert_same(dataset[i], (want, "abcde"[i]))
    assert dataset.fetch(np.arange(2)) is None and dataset.layout == "HWC"
    with pytest.raises(TypeError, match=r"sample 0: encode='jpeg' needs .*got float32 \(6, 5, 3\)"):
        packed(tmp_path, [(IMAGES[0].astype(np.float32), 1)], encode="jpeg")


@pytest.fixture
def photographs(tmp_path):
    """Return a folder of photographs in two classes; their metadata turns them by 90 degrees."""
    exif = Image.Exif()
    exif[274] = 6
    for i, name in enumerate(("b/1.jpg", "a/2.png", "a/1.jpg")):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.kron(IMAGES[i], np.ones((8, 8, 1), np.uint8))
        Image.fromarray(pixels).save(path, exif=exif)
    return tmp_path / "root"


def opened(folder, **options):
    return data.ImageFolder(folder, layout="HWC", dtype="uint8", **options)


@pytest.mark.parametrize("options", [{}, {"mode": "L"}, {"oriented": False}])
def test_files_are_kept_as_they_are(tmp_path, photographs, options):
    folder = opened(photographs, **options)
    for dataset in (folder, data.Subset(folder, [2, 1]), data.ConcatDataset([folder, folder])):
        found = packed(tmp_path, dataset, encode="keep")
        assert (found.classes, found.layout) == (("a", "b"), "HWC") and len(found) == len(dataset)
        for i in range(len(dataset)):
            assert_same(found[i], dataset[i])


def test_kept_files_are_decoded_as_the_reader_asks(tmp_path, photographs):
    raw, turned = (opened(photographs, oriented=o) for o in (False, True))
    packed(tmp_path, turned, encode="keep")
    assert_same(data.PackedDataset(tmp_path / "x.arrow", oriented=False)[0], raw[0])
    whole, scaled = (
        data.PackedDataset(tmp_path / "x.arrow", scaled_decode=scaled) for scaled in (False, True)
    )
    assert not whole.set_decoding(Needed((20, 16))) and scaled.set_decoding(Needed((20, 16)))
    assert [scaled[i][0].shape[:2] for i in range(3)] == [(20, 24), (40, 48), (20, 24)]
    both = data.ConcatDataset(raw, turned)
    for dataset in (both, data.Subset(both, [0, 3]), data.ConcatDataset(both, raw)):
        with pytest.raises(TypeError, match="needs datasets that agree on mode and oriented"):
            packed(tmp_path, dataset, encode="keep")
    with pytest.raises(TypeError, match="encode='keep' needs a dataset of image files"):
        packed(tmp_path, SAMPLES["tuples"], encode="keep")


def test_it_pickles_as_its_path(tmp_path):
    dataset = packed(tmp_path, SAMPLES["tuples"] * 100)
    message = pickle.dumps(dataset)
    assert len(message) < 1000
    assert_same(pickle.loads(message)[1999], SAMPLES["tuples"][19])
    data.pack(SAMPLES["tuples"], tmp_path / "x.arrow", progress=False)
    with pytest.raises(DataError, match=r"x\.arrow: the file has changed since it was opened"):
        pickle.loads(message)[0]
    # files that are already open keep their content
    assert_same(dataset[1999], SAMPLES["tuples"][19])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_reads_on(tmp_path):
    dataset = packed(tmp_path, SAMPLES["tuples"])
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(dataset[5][0], IMAGES[5]) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_first_sample_decides_the_order_of_keys(tmp_path):
    samples = [{"a": Grade.GOOD, "b": 0.5}, {"b": 1.5, "a": 3}]
    got = list(packed(tmp_path, samples))
    assert got == samples and all(list(sample) == ["a", "b"] for sample in got)


@pytest.mark.parametrize(
    "samples, message",
    [
        ([], "must have at least one sample, got none"),
        ([(1, 2), (1,)], r"sample 1 must be a tuple of 2, like sample 0, got a tuple of 1"),
        ([()], "sample 0 must have a field, got an empty tuple"),
        ([1, "a"], "sample 1: expected a Python int in field '0', as in sample 0, got text"),
        ([1, 2.0], "sample 1: expected a Python int in field '0'.*got a Python float"),
        ([1, np.int64(2)], r"sample 1: expected a Python int in .* got int64 \(\); give"),
        ([np.zeros(2), np.zeros((2, 2))], r"expected float64 \(2,\).*got float64 \(2, 2\)"),
        ([{"a": 1}, {"b": 1}], "expected a Python int"),
        ([{"a": 1, "b": 2}, {"a": 1, "c": 2}], "expected a Python int in field 'b'"),
        ([True, 1], "expected a Python bool in field '0', as in sample 0, got a Python int"),
        ([{1: 1}], r"keys of a dict must be text, got \[1\]"),
        ([(1, object())], "sample 0: field '1': it must be an array of numbers, a number, text"),
        ([(1, [[1, 2], [3]])], "sample 0: field '1': .* inhomogeneous shape"),
        ([2**63], "sample 0: field '0': an int must fit int64, got 9223372036854775808; pack"),
    ],
)
def test_samples_that_do_not_fit_leave_nothing(tmp_path, samples, message):
    (tmp_path / "x.arrow").write_bytes(b"what was there")
    with pytest.raises((TypeError, DataError), match=message):
        packed(tmp_path, samples)
    assert [path.name for path in tmp_path.iterdir()] == ["x.arrow"]
    assert (tmp_path / "x.arrow").read_bytes() == b"what was there"
    with pytest.raises(ValueError, match="encode must be 'raw', 'jpeg' or 'keep', got"):
        packed(tmp_path, [1], encode="png")


KILLED = """
import os, sys
from needle import data
class Slow(list):
    def __getitem__(self, i):
        if i == 5:
            print("packing", flush=True)
            sys.stdin.read()
        return i
data.pack(Slow(range(9)), sys.argv[1], progress=False)
"""


def test_a_killed_run_leaves_what_the_next_one_removes(tmp_path):
    target = tmp_path / "x[1].arrow"
    run = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.stdout.readline() == b"packing\n"
    data.pack([1, 2], tmp_path / "x[1].arrow", progress=False)
    assert len(list(tmp_path.iterdir())) == 2  # the scratch folder of a live run is kept
    run.send_signal(signal.SIGKILL)
    run.communicate()
    left = [path.name for path in tmp_path.iterdir() if path != target]
    assert len(left) == 1 and left[0].startswith(".x[1].arrow.packing~")
    assert [data.PackedDataset(target)[i] for i in range(2)] == [1, 2]
    data.pack([3], target, progress=False)
    assert list(tmp_path.iterdir()) == [target] and data.PackedDataset(target)[0] == 3


def test_garbled_pixels_are_found_where_they_are(tmp_path):
    path = data.pack(SAMPLES["tuples"], tmp_path / "x", progress=False)
    content = bytearray(path.read_bytes())
    byte = bytes(content).index(IMAGES[7].tobytes())
    content[byte + 4] ^= 1
    path.write_bytes(content)
    dataset = data.PackedDataset(path)
    with pytest.raises(DataError, match=rf"x: sample 7, field '0' at byte {byte} is garbled"):
        dataset.fetch(np.arange(len(dataset)))
    assert_same(dataset[6], SAMPLES["tuples"][6])
    np.testing.assert_array_equal(dataset.fetch(np.arange(6))[0], IMAGES[:6])
    for read in (lambda: dataset[7], lambda: dataset.fetch(np.array([1, 7]))):
        with pytest.raises(DataError, match="sample 7"):
            read()
    for workers in (0, 2):
        options = {"num_workers": workers, "engine": "threads"} if workers else {}
        with pytest.raises(DataError, match="sample 7"):
            list(data.DataLoader(data.PackedDataset(path), 4, **options))
        skipping = data.DataLoader(data.PackedDataset(path), 4, on_error="skip", **options)
        assert sum(len(labels) for _, labels in skipping) == len(dataset) - 1
    unchecked = data.PackedDataset(path, checked=False)
    assert (unchecked[7][0] != SAMPLES["tuples"][7][0]).sum() == 1


def test_a_garbled_jpeg_is_always_found(tmp_path):
    path = data.pack(SAMPLES["tuples"], tmp_path / "x", encode="jpeg", progress=False)
    content = bytearray(path.read_bytes())
    byte = bytes(content).index(simplejpeg.encode_jpeg(IMAGES[3], quality=95))
    content[byte + 400] ^= 1
    path.write_bytes(content)
    dataset = data.PackedDataset(path)
    assert dataset[2][1] == 2
    with pytest.raises(
        DataError, match=rf"sample 3, field '0' at byte {byte} is garbled: its checksum"
    ):
        dataset[3]


def test_other_files_are_named(tmp_path):
    path = tmp_path / "y"
    for content, words in (
        (b"", "of 0 bytes"),
        (b"PK\3\4 something else", "it has another format: it starts with b'PK"),
        (b"ARROW1\0\0 and no end", "it is truncated: it ends with b'no end'"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"y: not a whole packed file.*{words}"):
            data.PackedDataset(path)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema([])):
        pass
    with pytest.raises(DataError, match="it has no metadata 'needle'"):
        data.PackedDataset(path)
    with pytest.raises(FileNotFoundError):
        data.PackedDataset(tmp_path / "none")


def test_without_pyarrow(tmp_path, monkeypatch):
    path = data.pack([1], tmp_path / "x", progress=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (lambda: data.pack([1], path), lambda: reading.PackedDataset(path)):
        with pytest.raises(ImportError, match=r"pip install 'needle\[packed\]'"):
            call()
