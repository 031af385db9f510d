"""Corrupt files of every format that needle reads: each is rejected by name, or read correctly.

``garble`` tries mutations of one format in its own process, which may crash: it runs ``python -m
tests.fuzz.fuzz_files NAME FIRST COUNT``. make fuzz and the tests call it.
"""

import io
import json
import pickle
import resource
import signal
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import needle as ndl
from needle import data, nn
from needle import io as checkpoints
from needle.data.datasets import cifar10
from needle.data.formats.decoding import decode
from needle.errors import DataError, NeedleError
from needle.remote.catalogue import INDEX, read_catalogue
from needle.remote.store import Store
from tests.programs import python

from .mutations import mutated, mutated_json

SECONDS = 20
"""Time limit for reading one small file on a busy machine."""
MEMORY = 1 << 30
"""Bytes by which reading small files may increase the memory of the process."""
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
PAIRS = [(image, i) for i, image in enumerate(IMAGES)]


@dataclass(frozen=True)
class Format:
    """A file format: ``make`` writes a file, ``read`` reads all of it and returns the content.

    exact: the format has checksums, so whatever is read must be what was written. named: errors
    contain the name of the file.
    """

    make: Callable[[Path], Any]
    read: Callable[[Path], Any]
    exact: bool = False
    named: bool = True
    mutate: Callable[[bytes, int], bytes] = mutated


# ---- one pair of functions per format
# --------------------------------------------------------------


def write_mixed(path: Path) -> None:
    samples = [
        {"image": image[: 3 + i % 3], "text": "é" * i, "raw": bytes(i), "number": np.float32(i)}
        for i, image in enumerate(IMAGES)
    ]
    data.pack(samples, path, progress=False)


def read_packed(path: Path) -> Any:
    dataset = data.PackedDataset(path)
    found = [dataset[i] for i in range(len(dataset))]
    batch = dataset.fetch(np.arange(len(dataset)))
    return found, batch


def write_tar(path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        for i, image in enumerate(IMAGES[:6]):
            array = io.BytesIO()
            np.save(array, image)
            members = {
                "jpg": jpeg(image),
                "cls": str(i).encode(),
                "json": b'{"a": [1, 2]}',
                "npy": array.getvalue(),
            }
            for extension, content in members.items():
                info = tarfile.TarInfo(f"folder/{'x' * 90}/{i:04d}.{extension}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def jpeg(image: Any, form: str = "JPEG", **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, form, **options)
    return stream.getvalue()


def read_npy(path: Path) -> Any:
    dataset = data.NpyDataset(path)
    return [dataset[i][0].sum() for i in range(min(len(dataset), 100))]


def write_cifar(path: Path) -> None:
    record = {b"data": RNG.integers(0, 256, (4, 3072), dtype=np.uint8), b"labels": [1, 2, 3, 4]}
    path.write_bytes(pickle.dumps(record, protocol=2))


def write_index(path: Path) -> None:
    few = data.Subset(data.Digits(train=False, layout="HWC"), np.arange(8))
    few.classes = data.Digits.classes  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        data.upload(few, folder, progress=False)
        path.write_bytes((Path(folder) / INDEX).read_bytes())


def read_index(path: Path) -> Any:
    catalogue = read_catalogue(Store(path.parent, data.Retry(tries=1)))
    return [catalogue.wanted(i) for i in range(min(len(catalogue), 10))]


def read_text(path: Path) -> Any:
    path.with_name("test.txt").write_text("a b\n")
    return data.Corpus(path.parent).train


def model() -> Any:
    return nn.Linear(4, 3)


def write_checkpoint(path: Path) -> None:
    loader = data.DataLoader(data.ArrayDataset(np.arange(10)), 2, shuffle=True, seed=1)
    made = model()
    sgd = ndl.optim.SGD(made.parameters(), lr=0.1, momentum=0.9)
    checkpoints.save_checkpoint(path, model=made, optimizer=sgd, loader=loader, extra={"a": [1]})


def read_checkpoint(path: Path) -> Any:
    made = model()
    loader = data.DataLoader(data.ArrayDataset(np.arange(10)), 2, shuffle=True, seed=1)
    extra = checkpoints.load_checkpoint(path, model=made, loader=loader)
    return extra, [p.numpy() for p in made.parameters()]


def write_state(path: Path) -> None:
    loader = data.DataLoader(data.ArrayDataset(np.arange(40)), 2, shuffle=True, seed=1)
    iterator = iter(loader)
    next(iterator)
    path.write_text(json.dumps(loader.state_dict()))


def read_state(path: Path) -> Any:
    try:
        state = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: {error}") from None
    loader = data.DataLoader(data.ArrayDataset(np.arange(40)), 2, shuffle=True, seed=1)
    try:
        loader.load_state_dict(state)
    except (ValueError, TypeError) as error:
        if "load_state_dict" not in str(error):
            raise
        raise DataError(str(error)) from None
    return [batch[0].numpy() for batch in loader]


FORMATS = {
    "raw.arrow": Format(lambda p: data.pack(PAIRS, p, progress=False), read_packed, exact=True),
    "jpeg.arrow": Format(
        lambda p: data.pack(PAIRS, p, encode="jpeg", progress=False), read_packed, exact=True
    ),
    "mixed.arrow": Format(write_mixed, read_packed, exact=True),
    "a.npy": Format(lambda p: np.save(p, IMAGES), read_npy),
    "a.tar": Format(write_tar, lambda p: list(data.TarShards([p]))),
    "a.idx": Format(lambda p: data.write_idx(p, IMAGES), data.read_idx),
    "idx.gz": Format(lambda p: data.write_idx(p, IMAGES), data.read_idx, exact=True),
    "cifar": Format(write_cifar, cifar10.read_python_batch),
    "cifar.bin": Format(
        lambda p: p.write_bytes(bytes([3]) + bytes(3072)), cifar10.read_binary_batch
    ),
    "train.txt": Format(lambda p: p.write_text("thé cat\n" * 50, "utf-8"), read_text),
    INDEX: Format(write_index, read_index, mutate=mutated_json),
    "a.safetensors": Format(
        lambda p: checkpoints.save(p, {"a": IMAGES, "b": np.zeros((2, 0))}),
        checkpoints.load,
        exact=True,
    ),
    "checkpoint": Format(write_checkpoint, read_checkpoint, exact=True),
    "state.json": Format(write_state, read_state, named=False, mutate=mutated_json),
    "a.jpg": Format(lambda p: p.write_bytes(jpeg(IMAGES[0], quality=90)), decode),
    "part.jpg": Format(
        lambda p: p.write_bytes(jpeg(np.tile(IMAGES[0], (6, 5, 1)), restart_marker_blocks=2)),
        lambda p: decode(p, region=lambda h, w: (h // 3, w // 3, h // 2 + 1, w // 2 + 1)),
    ),
    "a.png": Format(lambda p: p.write_bytes(jpeg(IMAGES[0], "PNG")), decode),
    "a.gif": Format(lambda p: p.write_bytes(jpeg(IMAGES[0][..., 0], "GIF")), decode),
    "a.webp": Format(lambda p: p.write_bytes(jpeg(IMAGES[0], "WEBP")), decode),
    "a.tif": Format(lambda p: p.write_bytes(jpeg(IMAGES[0], "TIFF")), decode),
    "a.bmp": Format(lambda p: p.write_bytes(jpeg(IMAGES[0], "BMP")), decode),
}


with suppress(ImportError):
    from . import onnx_files

    FORMATS["model.onnx"] = Format(
        lambda path: path.write_bytes(onnx_files.models()[0]),
        onnx_files.read,
        mutate=onnx_files.mutated_model,
    )


# ---- trials --------------------------------------------------------------------------------------


class Finding(Exception):
    """A mutation that was neither rejected by name nor read correctly."""


def tries(name: str, folder: Path) -> Callable[[int], str]:
    """Return a function that tries the mutation of a seed: "read", "refused" or a Finding."""
    form, path = FORMATS[name], folder / name / name
    path.parent.mkdir()
    form.make(path)
    content, whole = path.read_bytes(), _bytes(form.read(path))

    def attempt(seed: int) -> str:
        path.unlink()
        path.write_bytes(form.mutate(content, seed))
        start = memory()
        try:
            with limited(SECONDS):
                found = form.read(path)
        except NeedleError as error:
            if form.named and path.name not in str(error):
                raise Finding(f"the error names no file: {error!r}") from error
            outcome = "refused"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise Finding(f"{type(error).__name__}: {error}") from error
        else:
            outcome = "read"
            if form.exact and _bytes(found) != whole:
                raise Finding("a wrong result")
        if memory() - start > MEMORY:
            raise Finding(f"it took {memory() - start} bytes of memory")
        return outcome

    return attempt


def garble(name: str, first: int, count: int) -> dict[str, int]:
    """Return how many mutations of a format were refused and how many were read.

    Raise AssertionError with the child's last output on a finding.
    """
    command = ["-W", "ignore", "-m", "tests.fuzz.fuzz_files", name, first, count]
    done = python(*command, check=False)
    assert done.returncode == 0, (
        f"{name}, seeds from {first}: finding, exit {done.returncode}\n{done.stderr[-3000:]}"
    )
    return {"read": 0, "refused": 0, **json.loads(done.stdout)}


def memory() -> int:
    """Return the peak of this process's memory in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the block after this time."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"it takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _bytes(value: Any) -> Any:
    """Return a value that can be compared with ==, in which arrays are replaced by their bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: _bytes(each) for key, each in value.items()}
    return [_bytes(each) for each in value] if isinstance(value, (list, tuple)) else value


def main(name: str, first: str, count: str) -> None:
    found = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="needle-fuzz-") as folder:
        attempt = tries(name, Path(folder))
        for seed in range(int(first), int(first) + int(count)):
            print(f"seed {seed}", file=sys.stderr)  # the last line of output before a crash
            found[attempt(seed)] += 1
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
