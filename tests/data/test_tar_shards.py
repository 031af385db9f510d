"""Test tar shards in WebDataset's layout: samples, fields, resuming, damaged files."""

import io
import pickle
import tarfile

import numpy as np
import pytest

from needle import data
from needle.data.datasets import tar_shards
from needle.errors import DataError

Image = pytest.importorskip("PIL.Image")

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 6, 5, 3), dtype=np.uint8)


def png(image):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return stream.getvalue()


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def write(path, members, form=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w", format=form) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture(params=[tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def shards(request, tmp_path):
    """Write three tars of four samples, with long names, folders and extended headers."""
    paths = []
    for shard in range(3):
        members = [("._note.png", b"x"), ("__meta__.json", b"{"), ("__MACOSX/n01/1.png", b"x")]
        for i in range(4 * shard, 4 * shard + 4):
            key = f"class.v1/{'long' * 20}/{i:06d}"
            members += [
                (f"{key}.PNG", png(PIXELS[i])),
                (f"{key}.cls", f"{i}\n".encode()),
                (f"{key}.txt", "größer".encode()),
                (f"{key}.json", b'{"a": [1]}'),
                (f"{key}.seg.npy", npy(PIXELS[i, 0])),
                (f"{key}.other", b"\0\1"),
            ]
        paths.append(write(tmp_path / f"{shard}.tar", members, request.param))
    return paths


def test_samples_in_order_with_everything(shards):
    samples = list(data.TarShards(shards))
    assert len(samples) == 12
    for i, sample in enumerate(samples):
        assert list(sample) == ["__key__", "png", "cls", "txt", "json", "seg.npy", "other"]
        np.testing.assert_array_equal(sample["png"], PIXELS[i])
        np.testing.assert_array_equal(sample["seg.npy"], PIXELS[i, 0])
        assert sample["__key__"] == f"class.v1/{'long' * 20}/{i:06d}"
        assert (sample["cls"], sample["txt"]) == (i, "größer")
        assert (sample["json"], sample["other"]) == ({"a": [1]}, b"\0\1")


def test_fields_make_tuples_and_transforms_see_the_first(shards):
    stream = data.TarShards(shards, ("jpg;png", "cls"), [data.ToCHW()])
    for i, (image, label) in enumerate(stream):
        np.testing.assert_array_equal(image, PIXELS[i].transpose(2, 0, 1))
        assert label == i
    with pytest.raises(DataError, match=r"0\.tar: sample '.*000000' must have one member \.jpg or"):
        next(iter(data.TarShards(shards, ("jpg;webp",))))


@pytest.mark.parametrize("start", [0, 1, 3, 4, 9])
def test_a_shard_goes_on_where_it_was_left(shards, start, monkeypatch):
    stream = pickle.loads(pickle.dumps(data.TarShards(shards, ("png", "cls"))))
    assert stream.num_shards == 3
    read = []
    decode = tar_shards.decode
    monkeypatch.setattr(
        tar_shards, "decode", lambda *args, **kw: read.append(1) or decode(*args, **kw)
    )
    got = [label for _, label in stream.iter_shard(1, 0, start)]
    assert got == list(range(4, 8))[start:]
    assert len(read) == len(got)  # skipped samples were not decoded


ANY, BOTH = None, ("txt", "cls")


@pytest.mark.parametrize(
    "names, fields, wrong",
    [
        (["0.txt", "0.TXT"], ANY, ["0.txt", "0.TXT"]),
        (["0.cls", "0.txt", "0.cls"], BOTH, ["0.cls", "0.cls"]),
        (["0.cls", "0.txt", "./0.txt"], BOTH, ["0.txt", "./0.txt"]),
        (["0.txt", "1.txt", "0.cls", "1.cls"], ANY, ["0.txt", "0.cls"]),
        (["0.txt", "1.txt", "0.cls", "1.cls"], ("txt",), ["0.txt", "0.cls"]),
        (["a/0.txt", "b/0.txt", "a/0.cls"], ANY, ["a/0.txt", "a/0.cls"]),
        (["0.txt", "0.cls", "1.txt", "1.cls", "0.txt"], BOTH, ["0.txt", "0.txt"]),
        (["0.txt", "0.json"], ("json;txt",), ["0.txt", "0.json"]),
        (["0.txt", "0.__key__"], ANY, ["__key__", "0.__key__"]),
    ],
)
def test_members_that_make_no_sample_are_named(tmp_path, names, fields, wrong):
    path = write(tmp_path / "x.tar", [(name, b"7") for name in names])
    with pytest.raises(DataError, match=f"'{wrong[0]}'.*'{wrong[1]}'"):
        list(data.TarShards([path], fields))


def test_the_shards_of_a_rank_have_the_layout_of_all(shards):
    assert data.TarShards(shards).for_rank(0, 2).layout == "HWC"


def test_files_without_an_extension_are_no_samples(tmp_path):
    names = ["README", "a.v1/LICENSE", "a.v1/0.cls", "a.v1/notes", "a.v1/0.txt", "end."]
    path = write(tmp_path / "x.tar", [(name, b"7") for name in names])
    assert list(data.TarShards([path])) == [{"__key__": "a.v1/0", "cls": 7, "txt": "7"}]
    assert list(data.TarShards([path], ("TXT", "cls"))) == [("7", 7)]


def test_a_tar_whose_files_are_all_skipped_is_named(tmp_path):
    path = write(tmp_path / "x.tar", [("README", b"7"), ("a/1", b"7")])
    with pytest.raises(DataError, match=r"x\.tar: a tar must have members with an ext.*'README'"):
        list(data.TarShards([path]))
    with tarfile.open(path, "w") as tar:
        link = tarfile.TarInfo("1.cls")
        link.type = tarfile.SYMTYPE
        tar.addfile(link)
    with pytest.raises(DataError, match=r"x\.tar: a tar must have members .* such as '1\.cls'"):
        list(data.TarShards([path]))
    write(path, [("1.cls", b"7")])
    twice = iter([lambda x: 2 * x])
    assert list(data.TarShards([path], ["cls"], twice)) == [(14,)]


@pytest.mark.parametrize("byte", [0, 100, 148, 300])
def test_a_damaged_header_is_no_end(tmp_path, byte):
    """Python's reader takes any unreadable header but the first for the end of the archive."""
    path = write(tmp_path / "x.tar", [(f"{i}.cls", b"1") for i in range(5)])
    content = bytearray(path.read_bytes())
    content[2 * 1024 + byte] ^= 0x55
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.tar: not a whole tar file of 10240 bytes.* at byte 2"):
        list(data.TarShards([path]))


def test_damage_names_file_member_and_byte(tmp_path):
    members = [("1.cls", b"x"), ("2.json", b"{"), ("3.npy", npy(PIXELS)[:99]), ("4.txt", b"\xff")]
    members += [("5.png", png(PIXELS[0])[:60]), ("6.npy", npy(np.array([{}], dtype=object)))]
    for name, content in members:
        path = write(tmp_path / "x.tar", [(name, content)])
        with pytest.raises(DataError, match=rf"x\.tar: member '{name}' at byte 512: "):
            list(data.TarShards([path]))
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(DataError, match=r"x\.tar: not a whole tar file of 600 bytes"):
        list(data.TarShards([path]))
    path.write_bytes(b"\x1f\x8b garbage")
    with pytest.raises(DataError, match="fetch it again, unpacked if it is compressed"):
        list(data.TarShards([path]))


def test_what_it_is_given(tmp_path):
    with pytest.raises(TypeError, match="paths must be a list, got 'x.tar'; put it in brackets"):
        data.TarShards("x.tar")
    with pytest.raises(DataError, match="needs at least one tar file, got none"):
        data.TarShards([])
    with pytest.raises(FileNotFoundError):
        list(data.TarShards([tmp_path / "none.tar"]))
    assert list(data.TarShards([write(tmp_path / "empty.tar", [])])) == []
