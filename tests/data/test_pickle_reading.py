"""Test that the restricted unpickler reads the globals it needs and refuses all others."""

import os
import pickle
import struct

import numpy as np
import pytest

from needle.data.formats.pickle_reading import read_pickle
from needle.errors import DataError

PIXELS = np.arange(12, dtype=np.uint8).reshape(3, 4)
RECORD = {b"data": PIXELS, b"labels": [1, 2, 3], b"filenames": [b"a.png"] * 3}


def python2_pickle(pixels=PIXELS, core="numpy.core", dtype=b"u1"):
    """{'data': pixels, 'labels': [7]}, pickled by Python 2 with an old NumPy in protocol 2."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    shape = b"K" + bytes([pixels.shape[0]]) + b"K" + bytes([pixels.shape[1]]) + b"\x86"
    raw = pixels.tobytes()
    array = (
        f"c{core}.multiarray\n_reconstruct\n".encode()
        + b"cnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
        + b"(K\x01" + shape
        + b"cnumpy\ndtype\n" + text(dtype) + b"K\x00K\x01\x87R"
        + b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89" + b"T" + struct.pack("<i", len(raw)) + raw + b"tb"
    )  # fmt: skip
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + b"]K\x07a" + b"u."


def read(tmp_path, content):
    path = tmp_path / "batch"
    path.write_bytes(content)
    return read_pickle(path)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_pickles_today(tmp_path, protocol, order):
    record = {**RECORD, b"data": np.asarray(PIXELS, order=order)}
    got = read(tmp_path, pickle.dumps(record, protocol=protocol))
    np.testing.assert_array_equal(got[b"data"], PIXELS)
    assert got[b"data"].dtype == np.uint8 and got[b"data"].flags.c_contiguous
    assert got[b"labels"] == [1, 2, 3] and got[b"filenames"] == [b"a.png"] * 3


@pytest.mark.parametrize("core", ["numpy.core", "numpy._core"])
def test_what_python_2_pickled(tmp_path, core):
    got = read(tmp_path, python2_pickle(core=core))
    np.testing.assert_array_equal(got[b"data"], PIXELS)
    assert got[b"labels"] == [7]


class Evil:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


@pytest.mark.parametrize(
    "value, name",
    [
        (Evil(os.system, "touch evil"), "(posix|nt).system"),
        (Evil(eval, "1+1"), "builtins.eval"),
        (Evil(getattr, (), "__class__"), "builtins.getattr"),
        (Evil(np.load, "x"), "numpy.load"),
        (Evil(np.fromfile, "x"), "numpy.fromfile"),
        (np.float64(3), "numpy._core.multiarray.scalar"),
        ({1, 2}, "builtins.set"),
        (os.path.join, "posixpath.join|ntpath.join"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("protocol", [0, 2])
def test_every_other_global_is_refused_by_name(tmp_path, monkeypatch, value, name, protocol):
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({b"data": value}, protocol=protocol, fix_imports=False)
    with pytest.raises(DataError, match=rf"batch: the pickle asks for ({name})\b.*refused"):
        read(tmp_path, content)
    assert not (tmp_path / "evil").exists()


def test_the_admitted_names_run_nothing_and_take_no_memory(tmp_path):
    huge = b"\x80\x02cnumpy\nndarray\n(\x8a\x08" + struct.pack("<q", 2**60) + b"t\x85R."
    objects = pickle.dumps({b"data": np.array([[1], None], dtype=object)}, protocol=2)
    for content in (huge, objects, python2_pickle(dtype=b"f8"), python2_pickle(dtype=b"O8")):
        with pytest.raises(DataError, match="batch: not a whole data set pickle"):
            read(tmp_path, content)
    codec = b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R."
    with pytest.raises(DataError, match="bytes must be written as latin1 text"):
        read(tmp_path, codec)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"ab.",
        b"\x80\x05\x96" + struct.pack("<Q", 2**62) + b"ab.",
        b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"ab.",
        b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"ab.",
        b"\x80\x02K\x01r\xff\xff\xff\xff.",
        b"\x80\x02" + b"(" * 100000,
        b"",
        b"not a pickle",
        bytes(100),
    ],
    ids=["bytes8", "bytearray8", "unicode8", "frame", "memo", "marks", "empty", "text", "zeros"],
)
def test_lying_lengths_and_other_formats(tmp_path, content):
    try:
        got = read(tmp_path, content)
    except DataError as error:
        assert "batch: not a whole data set pickle, reading stopped at byte" in str(error)
    else:
        assert got == 1  # any memo index is legal


def test_a_file_too_large_is_not_read(tmp_path):
    path = tmp_path / "batch"
    path.write_bytes(bytes(101))
    with pytest.raises(DataError, match="at most 100 bytes, got 101"):
        read_pickle(path, limit=100)
