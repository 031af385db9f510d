"""Opens and reads thousands of garbled copies of a file, in a process that may crash.

``python garbling.py KIND FILE FOLDER FIRST COUNT``: reads ``COUNT`` mutations of FILE, made from
the seeds FIRST on, by the reader of that kind; prints how many were errors, how many were not.
Whatever is neither a good read nor a DataError ends the process, as a segmentation fault would.
"""

import json
import sys
from pathlib import Path

import numpy as np

from needle.data.datasets.npy_files import NpyDataset
from needle.data.datasets.packed_reading import PackedDataset
from needle.data.datasets.tar_shards import TarShards
from needle.errors import DataError


def mutated(content, seed):
    """One garbled copy: cut, bytes flipped, a piece zeroed, filled, repeated or moved."""
    r = np.random.default_rng(seed)
    data = bytearray(content)
    kind = r.integers(7)
    # Half of the wounds are where the structure is: at the two ends.
    where = r.integers(len(data), size=1 + r.integers(8))
    if r.integers(2):
        where = np.where(r.integers(2, size=len(where)), where % 1500, -1 - where % 1500)
    if kind == 0:
        return bytes(data[: r.integers(len(data))])
    if kind == 1:
        for place in where:
            data[place] ^= 1 << r.integers(8)
    elif kind == 2:
        for place in where:
            data[place] = r.choice([0, 1, 0x7F, 0x80, 0xFF])
    elif kind == 3:
        start = where[0] % len(data)
        data[start : start + r.integers(1, 64)] = bytes(int(r.integers(1, 64)))
    elif kind == 4:
        start = where[0] % len(data) & ~7
        number = int(r.choice([-1, 2**31, 2**40, 2**62, -(2**63), len(data), 8]))
        data[start : start + 8] = number.to_bytes(8, "little", signed=True)
    elif kind == 5:
        start = where[0] % len(data)
        data[start:start] = data[: r.integers(1, 100)]
    else:
        start = where[0] % len(data)
        del data[start : start + r.integers(1, 100)]
    return bytes(data)


def read_packed(path):
    dataset = PackedDataset(path)
    for i in range(len(dataset)):
        dataset[i]
    batch = dataset.fetch(np.arange(len(dataset)))
    if batch is not None:
        [np.asarray(leaf).sum() for leaf in batch]
    dataset.verify()


def read_tar(path):
    for _ in TarShards([path]):
        pass


def read_npy(path):
    dataset = NpyDataset(path)
    for i in range(min(len(dataset), 100)):
        dataset[i][0].sum()


READERS = {"packed": read_packed, "tar": read_tar, "npy": read_npy}


def main(kind, source, folder, first, count):
    content, path = Path(source).read_bytes(), Path(folder) / f"garbled{Path(source).suffix}"
    found = {"read": 0, "refused": 0}
    for seed in range(int(first), int(first) + int(count)):
        garbled = mutated(content, seed)
        path.unlink(missing_ok=True)
        path.write_bytes(garbled)
        try:
            READERS[kind](path)
        except DataError as error:
            if str(path) not in str(error):
                raise AssertionError(f"seed {seed}: the error names no file: {error}") from error
            found["refused"] += 1
        except BaseException:
            print("seed", seed, file=sys.stderr)
            raise
        else:
            found["read"] += 1
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
