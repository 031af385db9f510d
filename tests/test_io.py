"""Test that files of named arrays round-trip bit for bit, and that damaged ones raise errors."""

import enum
import json
import os
import resource
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from needle import io
from needle.errors import CheckpointError
from tests.programs import python

ARRAYS = {
    "float32": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
    "float64": np.array([np.nan, np.inf, -0.0, 1e-310]),
    "int32": np.array([[1], [-2]], dtype=np.int32),
    "int64": np.array(2**62),
    "uint8": np.zeros((0, 3), dtype=np.uint8),
    "bool": np.array([True, False]),
    "big-endian": np.array([1.5, -2.0], ">f4"),
    "transposed": np.arange(6, dtype=">i8").reshape(2, 3).T,
    "": np.zeros((), np.float16),
    "a.b/é": np.array([2**64 - 1], np.uint64),
    "strided": np.arange(24.0).reshape(4, 6)[::-2, 1::2],
}


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Limit the file size in this process, which simulates a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# ---- named arrays --------------------------------------------------------------------------------


def test_arrays_come_back_with_dtype_shape_and_bits(tmp_path: Path) -> None:
    io.save(tmp_path / "a.safetensors", ARRAYS, {"who": "é"})
    arrays, metadata = io.load_with_metadata(tmp_path / "a.safetensors")
    assert metadata == {"who": "é"}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype.newbyteorder("=")
        assert arrays[name].shape == array.shape
        assert arrays[name].tobytes() == array.astype(arrays[name].dtype).tobytes()


def test_tensors_lists_and_numbers_can_be_saved(tmp_path: Path) -> None:
    tensor = needle.Tensor(np.ones((2, 2), np.float32))
    io.save(tmp_path / "a", {"t": tensor, "data": tensor.cached_data, "list": [1, 2], "n": 3.5})
    loaded = io.load(str(tmp_path / "a"))
    assert loaded["t"].dtype == np.float32 and loaded["data"].sum() == 4
    assert loaded["list"].tolist() == [1, 2] and loaded["n"].item() == 3.5


def test_another_program_can_read_the_file(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    io.save(tmp_path / "a", ARRAYS)
    read = library.load_file(tmp_path / "a")
    assert {name: repr(array.tolist()) for name, array in read.items()} == {
        name: repr(array.tolist()) for name, array in ARRAYS.items()
    }


def test_two_saves_of_one_state_give_the_same_bytes(tmp_path: Path) -> None:
    """Equal states give equal bytes, whatever the order of keys or the hashes of strings."""
    program = (
        "import sys, numpy as np; from needle import io, nn, optim; np.random.seed(0);"
        "model = nn.Linear(2, 2); adam = optim.Adam(model.parameters());"
        "io.save_checkpoint(sys.argv[1] + '/run', model=model, optimizer=adam, extra={'a': 1});"
        "io.save(sys.argv[1] + '/weights', {k: np.ones(3) for k in sys.argv[2].split()},"
        "{k: 'text' for k in sys.argv[2].split()})"
    )
    contents = []
    for number, names in enumerate(("a b c d", "d c b a")):
        (folder := tmp_path / names).mkdir()
        python("-c", program, folder, names, PYTHONHASHSEED=str(number))
        contents.append([(folder / name).read_bytes() for name in ("run", "weights")])
    assert contents[0] == contents[1]


@pytest.mark.parametrize(
    ("arrays", "metadata"),
    [
        ({"__metadata__": [1.0]}, None),
        ({1: [1.0]}, None),
        ({("a",): [1.0]}, None),
        ({"a": [1.0]}, {"crc32": "mine"}),
        ({"a": [1.0]}, {"epoch": 1}),
        ({"a": [1.0]}, {1: "epoch"}),
        ({"a": [1j]}, None),
        ({"a": ["text"]}, None),
        ({"a": np.ones(1, np.longdouble)}, None),
        ({"a": np.array([1.0, None])}, None),
    ],
)
def test_what_load_could_not_return_is_not_saved(
    arrays: Any, metadata: Any, tmp_path: Path
) -> None:
    with pytest.raises((TypeError, ValueError), match="save: "):
        io.save(tmp_path / "a", arrays, metadata)
    assert not (tmp_path / "a").exists()


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    io.save(tmp_path / "a", ARRAYS)
    modes = [stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("plain", "a")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.99])
def test_a_file_cut_short_is_named(tmp_path: Path, share: float) -> None:
    path = tmp_path / "a.safetensors"
    io.save(path, ARRAYS)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(CheckpointError, match=r"load: .*a\.safetensors .*truncated"):
        io.load(path)


def test_every_flipped_byte_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    io.save(path, {"w": np.arange(4.0)}, {"note": "text"})
    content = path.read_bytes()
    name = content.index(b"crc32")  # a file without crc32 counts as another program's
    for place in set(range(len(content))) - set(range(name, name + 5)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            arrays, metadata = io.load_with_metadata(path)
        except CheckpointError:
            continue
        # Only changes in the whitespace that pads the header are harmless.
        assert arrays["w"].tolist() == [0, 1, 2, 3] and metadata == {"note": "text"}


def write_raw(path: Path, header: Any, data: bytes = b"") -> None:
    """Write a safetensors file as another program might."""
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_bfloat16_of_other_programs_is_read_as_float32(tmp_path: Path) -> None:
    values = np.array([[1.0, -2.5, np.inf], [2.0**-130, np.nan, 3.140625]], np.float32)
    upper = (values.view(np.uint32) >> 16).astype("<u2")
    entry = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}
    write_raw(tmp_path / "a", {"w": entry}, upper.tobytes())
    read = io.load(tmp_path / "a")["w"]
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, values)


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "C64", "F4"])
def test_a_dtype_missing_in_numpy_is_named(dtype: str, tmp_path: Path) -> None:
    write_raw(
        tmp_path / "a", {"w": {"dtype": dtype, "shape": [8], "data_offsets": [0, 8]}}, b"8" * 8
    )
    with pytest.raises(CheckpointError, match=f"'w' has dtype {dtype}") as caught:
        io.load(tmp_path / "a")
    assert "corrupt" not in str(caught.value)


@pytest.mark.parametrize(
    "entries",
    [
        {"w": [[2], [0, 8]], "v": [[1], [4, 8]]},  # overlap
        {"w": [[1], [4, 8]]},  # a hole
        {"w": [[1], [0, 4]]},  # bytes of no array
        {"w": [[3], [0, 8]]},
        {"w": [[-2], [0, -8]]},
        {"w": [[-1, -2], [0, 8]]},
        {"w": [[2.0], [0, 8]]},
        {"w": [[2], [0, 8, 8]]},
        {"w": [[2**62], [0, 8]]},
        {"w": [[2**62, 4], [0, 2**66]]},
        {"w": ["2", [0, 8]]},
        {"w": [[2], ["0", "8"]]},
    ],
)
def test_a_header_that_does_not_fit_the_data(entries: Any, tmp_path: Path) -> None:
    header = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": places}
        for name, (shape, places) in entries.items()
    }
    write_raw(tmp_path / "a", header, bytes(8))
    with pytest.raises(CheckpointError, match="corrupt"):
        io.load(tmp_path / "a")


def test_bools_are_0_or_1(tmp_path: Path) -> None:
    header = {"w": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}}
    write_raw(tmp_path / "a", header, b"\x01\x00")
    assert io.load(tmp_path / "a")["w"].tolist() == [True, False]
    write_raw(tmp_path / "a", header, b"\x01\x07")
    with pytest.raises(CheckpointError, match="'w' has bools that are neither 0 nor 1"):
        io.load(tmp_path / "a")


def test_a_header_cut_in_its_padding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes((8).to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointError, match="its header claims 8 bytes"):
        io.load(tmp_path / "a")


@pytest.mark.parametrize("header", [[], 1, None, {"__metadata__": {"a": 1}}, {"a": 1}, {"a": {}}])
def test_a_header_of_another_kind(header: Any, tmp_path: Path) -> None:
    write_raw(tmp_path / "a", header)
    with pytest.raises(CheckpointError, match="corrupt"):
        io.load(tmp_path / "a")


def test_a_header_larger_than_any_that_is_written(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="save: .*must fit in"):
        io.save(tmp_path / "a", {}, {"long": "x" * (64 << 20)})
    (tmp_path / "a").write_bytes((1 << 40).to_bytes(8, "little") + bytes(8))
    with pytest.raises(CheckpointError, match="corrupt"):
        io.load(tmp_path / "a")


def test_swapped_arguments_of_save_are_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"got dict and PosixPath; call save\(path, state\)"):
        io.save({"a": np.ones(2)}, tmp_path / "a")  # type: ignore[arg-type]


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="load: no file at .*missing"):
        io.load(tmp_path / "missing")


def test_a_checksum_whose_name_is_damaged_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x"
    io.save(path, {"a": np.arange(9)}, {"note": "kept"})
    content = path.read_bytes()
    for name in (b"c0c32", b"Crc32", b"crc42", b"cRC32"):
        path.write_bytes(content.replace(b"crc32", name))
        with pytest.raises(CheckpointError, match="do not match their checksum"):
            io.load(path)
    assert safetensors_of_others(path) == {"crc": "0123abcd", "note": "kept"}


def safetensors_of_others(path: Path) -> dict[str, str]:
    library = pytest.importorskip("safetensors.numpy")
    library.save_file({"a": np.arange(3)}, path, metadata={"crc": "0123abcd", "note": "kept"})
    return io.load_with_metadata(path)[1]


# ---- writing -------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    io.save(path, {"w": np.zeros(10)})
    before = path.read_bytes()
    with (
        files_no_larger_than(len(before) + 100),
        pytest.raises(CheckpointError, match=r"save: could not write \d+ bytes .*free some space"),
    ):
        io.save(path, {"w": np.ones(1000)})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_an_interrupted_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io.save(tmp_path / "a", {"w": np.zeros(10)})

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        io.save(tmp_path / "a", {"w": np.ones(10)})
    assert io.load(tmp_path / "a")["w"].sum() == 0
    assert os.listdir(tmp_path) == ["a"]


def test_a_save_replaces_the_file_at_once(tmp_path: Path) -> None:
    """A reader with the old file open keeps reading the old content, which is never overwritten."""
    io.save(tmp_path / "a", {"w": np.zeros(10)})
    before = (tmp_path / "a").read_bytes()
    with open(tmp_path / "a", "rb") as reader:
        io.save(tmp_path / "a", {"w": np.ones(10)})
        assert reader.read() == before != (tmp_path / "a").read_bytes()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="could not write .*nowhere"):
        io.save(tmp_path / "nowhere" / "a", {"w": np.zeros(1)})
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "a", tmp_path / ("a" * 300)):
        with pytest.raises(CheckpointError, match="could not write"):
            io.save(place, {"w": np.zeros(1)})


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_only_files_are_replaced(kind: str, tmp_path: Path) -> None:
    """A rename would replace a device such as /dev/null by a file."""
    place = tmp_path / "a"
    os.mkdir(place) if kind == "folder" else os.mkfifo(place)
    with pytest.raises(CheckpointError, match="must be a regular file or not exist, got a folder"):
        io.save(place, {"w": np.zeros(1)})
    assert not place.is_file()


def test_threads_may_save_under_one_name(tmp_path: Path) -> None:
    """A reader always sees the complete content of one save, and no save fails."""
    place, size = tmp_path / "a", 50_000
    io.save(place, {"w": np.zeros(size)})

    def save(value: int) -> None:
        for _ in range(5):
            io.save(place, {"w": np.full(size, value)})

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(save, value) for value in range(4)]
        while not all(future.done() for future in running):
            assert np.ptp(io.load(place)["w"]) == 0
        for future in running:
            future.result()
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "a")
    io.save(tmp_path / "link", {"w": np.ones(2)})
    assert (tmp_path / "link").is_symlink()
    assert io.load(tmp_path / "there" / "a")["w"].sum() == 2


class Level(enum.IntEnum):
    LOW = 1


class Mode(str, enum.Enum):
    FAST = "fast"


@pytest.mark.parametrize(
    "extra", [[1], "a", 0, {"a": Level.LOW}, {"a": [Mode.FAST]}, {Mode.FAST: 1}]
)
def test_extra_that_would_come_back_as_something_else_is_refused(
    tmp_path: Path, extra: Any
) -> None:
    with pytest.raises(TypeError, match="save_checkpoint: "):
        io.save_checkpoint(tmp_path / "c", model=needle.nn.Linear(2, 2), extra=extra)
    assert not (tmp_path / "c").exists()


HALF = "\ud83d"


def test_halves_of_surrogate_pairs_are_refused(tmp_path: Path) -> None:
    """Reject lone surrogates: two in a row would be read back as one character."""
    for tensors, about in (({HALF: 1.0}, {}), ({"a": 1.0}, {"b": HALF}), ({"a": 1.0}, {HALF: "b"})):
        with pytest.raises(ValueError, match="text must be valid Unicode, got '.ud83d'"):
            io.save(tmp_path / "c", tensors, about)
    for extra in ({"a": HALF + "\ude00"}, {HALF: 1}):
        with pytest.raises(ValueError, match="text must be valid Unicode"):
            io.save_checkpoint(tmp_path / "c", model=needle.nn.Linear(2, 2), extra=extra)
    io.save_checkpoint(tmp_path / "c", model=needle.nn.Linear(2, 2), extra={"😀": "é"})
    assert io.checkpoint_extra(tmp_path / "c") == {"😀": "é"}
