"""Test that IDX files round-trip, and that errors for damaged ones name file and offset."""

import gzip
import struct

import numpy as np
import pytest

from needle.data import read_idx, write_idx
from needle.errors import DataError, DTypeError

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.fixture(params=["a.idx", "a.idx.gz"])
def path(request, tmp_path):
    return tmp_path / request.param


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4), (0, 5)])
def test_round_trip(path, dtype, shape):
    array = (np.random.default_rng(0).random(shape) * 100).astype(dtype)
    write_idx(path, array)
    got = read_idx(path, ndim=len(shape))
    assert got.dtype == array.dtype and got.dtype.isnative and got.flags.writeable
    np.testing.assert_array_equal(got, array)


def test_the_bytes_are_the_formats_own(tmp_path):
    write_idx(tmp_path / "a", np.array([[1, -2]], dtype=np.int16))
    want = bytes([0, 0, 0x0B, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 1, 0xFF, 0xFE])
    assert (tmp_path / "a").read_bytes() == want


def test_gzip_is_recognised_by_content_not_by_name(tmp_path):
    write_idx(tmp_path / "a.gz", PIXELS)
    (tmp_path / "a.gz").rename(tmp_path / "a")
    np.testing.assert_array_equal(read_idx(tmp_path / "a"), PIXELS)


def test_equal_arrays_give_equal_files(tmp_path):
    write_idx(tmp_path / "a.gz", PIXELS)
    write_idx(tmp_path / "b.gz", PIXELS)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def header(*sizes, code=8):
    return struct.pack(f">HBB{len(sizes)}I", 0, code, len(sizes), *sizes)


HUGE = (2**32 - 1,) * 3


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "starts with 00 00, a type code .* got an empty file"),
        (b"\0\0\x08", "got 00 00 08"),
        (b"\x89PNG" + bytes(50), "got 89 50 4e 47; this is another format"),
        (header(2, code=7) + b"ab", "got 00 00 07 01"),
        (b"\0\0\x08\0", r"expected 1 to 8 axes \(byte 3\), got 0"),
        (b"\0\0\x08\xff" + bytes(2000), r"expected 1 to 8 axes \(byte 3\), got 255"),
        (header(2, 3)[:9], "header needs 12 bytes, got 9; the file is cut short"),
    ],
)
def test_a_wrong_header(path, content, message):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_a_lying_header_takes_no_memory(path):
    content = header(*HUGE) + bytes(100)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    with pytest.raises(DataError, match=r"the header promises shape \(4294967295, .* bytes after"):
        read_idx(path)


def test_data_cut_short(tmp_path):
    plain, zipped = tmp_path / "a", tmp_path / "a.gz"
    plain.write_bytes(header(2, 3, 4) + bytes(23))
    with pytest.raises(DataError, match="24 bytes after byte 16, got a file that can hold 23;"):
        read_idx(plain)
    zipped.write_bytes(gzip.compress(header(2, 3, 4) + bytes(23)))
    with pytest.raises(DataError, match="expected 24 bytes of data after byte 16 .* got 23"):
        read_idx(zipped)


def test_more_data_than_the_header_says(path):
    content = header(2, 3, 4) + bytes(25)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    with pytest.raises(DataError, match="expected the end at byte 40 .* got more data"):
        read_idx(path)


def test_a_missing_file_and_a_dtype_that_idx_lacks(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_idx(tmp_path / "none")
    with pytest.raises(DTypeError, match="IDX cannot store int64; convert to one of uint8, int8"):
        write_idx(tmp_path / "a", np.arange(3))
