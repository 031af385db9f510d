"""Read malicious files: an error that names the file rejects each quickly and in little memory."""

import gzip
import io
import json
import os
import pickle
import re
import socket
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needle import data
from needle import io as checkpoints
from needle.data.datasets import cifar10
from needle.data.formats import idx
from needle.data.formats.decoding import decode
from needle.errors import DataError, NeedleError
from tests.fuzz.fuzz_files import limited, memory
from tests.programs import python

pa = pytest.importorskip("pyarrow")
pytest.importorskip("PIL.Image")


@pytest.fixture(autouse=True)
def soon_and_in_little_memory() -> Iterator[None]:
    start = memory()
    with limited(30):
        yield
    assert memory() - start < 300 << 20


def of_one_file(path: Path) -> Any:
    return data.MNISTDataset(path, path)


READERS: dict[str, Callable[[Path], Any]] = {
    "packed": data.PackedDataset,
    "npy": data.NpyDataset,
    "tar": lambda path: list(data.TarShards([path])),
    "idx": data.read_idx,
    "mnist": of_one_file,
    "pickle": cifar10.read_python_batch,
    "binary": cifar10.read_binary_batch,
    "image": decode,
    "text": lambda path: data.Corpus(path.parent),
    "weights": checkpoints.load,
    "store": lambda path: data.open_remote(path.parent, retry=data.Retry(tries=1)),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "device", "empty"])
def test_only_files_are_read(tmp_path: Path, reader: str, kind: str) -> None:
    path = tmp_path / {"text": "train.txt", "store": "needle-index.json"}.get(reader, "file")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(os.path.relpath(path))
    else:
        path.touch()
    with pytest.raises(NeedleError, match=path.name):
        if reader == "text" and kind == "empty":
            raise DataError(path.name)  # a text may be empty
        READERS[reader](path)


def test_links_to_nothing_follow_on_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 4, 3), dtype=np.uint8)
    for i, image in enumerate(images):
        (tmp_path / "a" / f"{i}.png").write_bytes(png(image))
    (tmp_path / "a" / "2.png").unlink()
    (tmp_path / "a" / "2.png").symlink_to("nowhere")
    (tmp_path / "a" / "9.png").symlink_to("9.png")
    dataset = data.ImageFolder(tmp_path)
    for index in (2, 5):
        with pytest.raises(
            DataError, match=r"\d\.png: the image no longer exists, or is a broken link"
        ):
            dataset[index]
    loader = data.DataLoader(dataset, 2, on_error="skip")
    assert [len(labels) for _, labels in loader] == [2, 1, 1]


def png(image: Any) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return stream.getvalue()


# ---- .npy ----------------------------------------------------------------------------------------


def npy(header: str, body: bytes = b"", version: bytes = b"\1\0") -> bytes:
    text = header.encode() + b"\n"
    size = struct.pack("<H" if version == b"\1\0" else "<I", len(text))
    return b"\x93NUMPY" + version + size + text + body


HEADER = "{{'descr': '{0}', 'fortran_order': False, 'shape': {1}, }}"
BAD_NPY = {
    "more": npy(HEADER.format("|u1", "(3,)"), b"abcd"),
    "less": npy(HEADER.format("|u1", "(3,)"), b"ab"),
    "huge": npy(HEADER.format("<f8", "(4611686018427387904, 8)")),
    "wraps": npy(HEADER.format("<f8", "(4294967296, 4294967296, 4294967296)")),
    "negative": npy(HEADER.format("|u1", "(-1, -3)"), b"abc"),
    "bools": npy(HEADER.format("|u1", "(True,)"), b"a"),
    "objects": npy(HEADER.format("|O", "(1,)"), pickle.dumps(print)),
    "text": npy(HEADER.format("<U3", "(1,)"), bytes(12)),
    "structure": npy(
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", bytes(4)
    ),
    "names": npy(HEADER.format("|u1", "(1,)"), b"a", b"\3\0"),
    "nested": npy("(" * 5000),
    "no axes": npy(HEADER.format("|u1", "3"), b"abc"),
    "long header": b"\x93NUMPY\2\0\xff\xff\xff\x7f" + b" " * 100,
}


@pytest.mark.parametrize("name", BAD_NPY)
def test_npy_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(BAD_NPY[name])
    with pytest.raises(DataError, match=r"x\.npy: not a whole \.npy file of \d+ bytes"):
        data.NpyDataset(path)
    tar = tmp_path / "a.tar"
    tar.write_bytes(tarred(("1.npy", BAD_NPY[name])))
    with pytest.raises(DataError, match=r"a\.tar: member '1\.npy' at byte 512: it cannot be read"):
        list(data.TarShards([tar]))


# ---- tar -----------------------------------------------------------------------------------------


def tarred(*members: Any, **fields: Any) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def test_tar_members_that_are_no_files(tmp_path: Path) -> None:
    path, secret = tmp_path / "a.tar", tmp_path / "secret.txt"
    secret.write_text("secret")
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
        links = tarred(("1.txt", b""), type=kind, linkname=str(secret))
        path.write_bytes(links[:512] + tarred(("2.txt", b"kept")))
        assert [each["txt"] for each in data.TarShards([path])] == ["kept"]
    path.write_bytes(tarred(("/../etc/1.txt", b"x")))
    assert [each["__key__"] for each in data.TarShards([path])] == ["/../etc/1"]
    for size in (-1, -(2**40), 2**40, 2**63 - 1):
        head = tarfile.TarInfo("1.txt")
        head.size = size
        path.write_bytes(head.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
        with pytest.raises(DataError, match=r"a\.tar: not a whole tar file"):
            list(data.TarShards([path]))
    path.write_bytes(tarred(("1.txt", b"x"), type=tarfile.GNUTYPE_SPARSE))
    with pytest.raises(DataError, match=r"a\.tar"):
        list(data.TarShards([path]))
    path.write_bytes(tarred(("1.json", b"[" * 100_000)))
    with pytest.raises(DataError, match=r"a\.tar: member '1\.json'.*RecursionError"):
        list(data.TarShards([path]))


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_headers_of_a_member_take_no_memory(tmp_path: Path, kind: bytes) -> None:
    path, head = tmp_path / "a.tar", tarfile.TarInfo("1.bin")
    head.type, head.size = kind, 1 << 30
    path.write_bytes(head.tobuf(tarfile.USTAR_FORMAT))
    os.truncate(path, head.size + 4096)
    before = peak()
    with pytest.raises(DataError, match=r"a\.tar: not a whole tar file .*headers of a member"):
        list(data.TarShards([path]))
    assert peak() - before < 50 << 20


def test_global_headers_do_not_add_up(tmp_path: Path) -> None:
    path, before = tmp_path / "a.tar", peak()
    with open(path, "wb") as file:
        for i in range(300):
            extra = {f"a{i}": "x" * (900 << 10)}
            file.write(tarfile.TarInfo.create_pax_global_header(extra))
            file.write(tarred((f"{i}.txt", b"x"))[:1024])
        file.write(bytes(1024))
    with pytest.raises(DataError, match="headers of a member have more than 1048576 bytes"):
        list(data.TarShards([path]))
    assert peak() - before < 50 << 20


def peak() -> int:
    """Return the largest memory of this process so far in bytes; 0 where it is unknown."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) << 10 if found else 0


def test_a_tar_with_holes_takes_no_memory(tmp_path: Path) -> None:
    path, head = tmp_path / "a.tar", tarfile.TarInfo("1.bin")
    head.size = 1 << 36
    path.write_bytes(head.tobuf(tarfile.GNU_FORMAT))
    os.truncate(path, head.size + 4096)
    with pytest.raises(DataError, match=r"a\.tar: .*at most 1073741824 bytes, got 68719476736"):
        list(data.TarShards([path]))


@pytest.mark.parametrize("reader", ["image", "pickle", "binary"])
def test_a_file_with_holes_takes_no_memory(tmp_path: Path, reader: str) -> None:
    (tmp_path / "x").touch()
    os.truncate(tmp_path / "x", 1 << 38)
    with pytest.raises(DataError, match="x: a file read in one piece may have at most"):
        READERS[reader](tmp_path / "x")


# ---- pickles, in a process that may crash --------------------------------------------------------

DEEP = b"\x80\x02})" + b"\x85" * 1_000_000 + b"K\x01s."
DEEP_ITEMS = b"\x80\x02}()" + b"\x85" * 1_000_000 + b"K\x01u."
DEEP_DICT = b"(" + b"(t" + b"\x85" * 1_000_000 + b"I1\nd."
TEXT = b"X" + struct.pack("<I", 1 << 20) + b"x" * (1 << 20)
MANY = (
    b"\x80\x02]("
    + b"c_codecs\nencode\nq\0"
    + TEXT
    + b"q\1X\6\0\0\0latin1q\2\x87"
    + b"h\0h\1h\2\x86R" * 20_000
    + b"e."
)


def many_arrays() -> bytes:
    """Return a pickle of 2 000 arrays over one megabyte; Fortran order would copy each of them."""
    start = b"\x80\x02(cnumpy.core.multiarray\n_reconstruct\nq\0cnumpy\nndarray\nq\1cnumpy\ndtype\n"
    kind = b"X\2\0\0\0u1K\0K\1\x87Rq\2B" + struct.pack("<I", 1 << 20) + bytes(1 << 20) + b"q\3"
    each = b"h\0h\1K\0\x85X\1\0\0\0b\x87R(K\1M\0\4M\0\4\x86h\2\x88h\3tb"
    return start + kind + each * 2000 + b"l."


PICKLES = {
    "item": DEEP,
    "items": DEEP_ITEMS,
    "dict": DEEP_DICT,
    "many": MANY,
    "arrays": many_arrays(),
}


@pytest.mark.parametrize("name", PICKLES)
def test_pickles(tmp_path: Path, name: str) -> None:
    content = PICKLES[name]
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    code = """
import re, sys
from pathlib import Path
from needle.data.formats.pickle_reading import read_pickle
from needle.errors import DataError
try:
    read_pickle(sys.argv[1])
except DataError as error:
    print(str(error)[:300])
status = Path("/proc/self/status")  # ru_maxrss would count the parent's memory before exec
print(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1] if status.exists() else 0)
"""
    done = python("-c", code, path)
    assert str(path) in done.stdout and int(done.stdout.split()[-1]) < 700_000


# ---- decompression bombs
# ---------------------------------------------------------------------------


def test_a_gzipped_idx_file(tmp_path: Path) -> None:
    path, size = tmp_path / "x.gz", 3 << 30
    head = struct.pack(">HBBI", 0, 8, 1, size)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head + bytes(1 << 22))
    path.write_bytes(path.read_bytes() + bytes(size // 1000))
    with pytest.raises(DataError, match=r"x\.gz: the header promises .* can hold"):
        data.read_idx(path)
    assert size > idx.MAX_BYTES


def test_a_long_footer_of_a_packed_file(tmp_path: Path) -> None:
    path = data.pack([np.zeros(8, np.uint8)] * 4, tmp_path / "x.arrow", progress=False)
    content = path.read_bytes()
    path.write_bytes(content[:-10] + struct.pack("<i", (1 << 26) + 1) + content[-6:])
    with pytest.raises(DataError, match=r"x\.arrow: .*its metadata have 67108865 bytes, more"):
        data.PackedDataset(path)


def test_an_index_of_empty_rows(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    head = '{"needle": 1, "kind": "images", "classes": ["a"], "layout": "HWC", "objects": ['
    (tmp_path / "needle-index.json").write_text(head + "[]," * (10 << 20) + "[]]}")
    before = peak()
    with pytest.raises(DataError, match="more rows than its bytes can hold"):
        data.open_remote(tmp_path, retry=data.Retry(tries=1))
    assert peak() - before < 200 << 20


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_packed_file(tmp_path: Path, codec: str) -> None:
    path = data.pack([np.zeros(1 << 20, np.uint8)] * 4, tmp_path / "x.arrow", progress=False)
    with pa.ipc.open_file(str(path)) as file:
        table = file.read_all()
    rows = pa.Table.from_batches(table.to_batches() * 1).combine_chunks().to_batches()[0]
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_file(str(path), table.schema, options=options) as writer:
        writer.write_batch(rows)
    with pytest.raises(DataError, match=r"x\.arrow: not a whole packed file .*compressed"):
        data.PackedDataset(path)


def test_a_deep_header_of_weights(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    huge = {"a": {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 8]}}
    for text in ("[" * 100_000, json.dumps(huge)):
        path.write_bytes(struct.pack("<Q", len(text)) + text.encode() + bytes(8))
        with pytest.raises(NeedleError, match=r"x\.safetensors"):
            checkpoints.load(path)
