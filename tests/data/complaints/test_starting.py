"""Start workers, pickle for them, lack optional packages: complaints 7, 8, 21 and 22."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proc import remaining

from needle import data
from needle.data.workers import launch

from .programs import PATIENCE, environment, linux, run
from .sets import Numbers, Paths

MANY = 1_200_000


@pytest.fixture
def spawned(monkeypatch):
    """Return a loader that spawns its workers as new interpreters, as on macOS."""
    monkeypatch.setattr(launch, "START_METHOD", "spawn")


def first_batch(dataset: Any) -> float:
    """Return the seconds from constructing a loader with 4 spawned workers to its first batch."""
    began = time.perf_counter()
    with data.DataLoader(dataset, 8, True, seed=1, num_workers=4) as loader:
        next(iter(loader))
        return time.perf_counter() - began


def next_epochs(loader: data.DataLoader, epochs: int = 9) -> float:
    """Return the median time to an epoch's first batch while workers run."""
    times = []
    for _ in range(epochs):
        began = time.perf_counter()
        next(iter(loader))
        times.append(time.perf_counter() - began)
    return sorted(times)[epochs // 2]


def test_7_a_large_data_set_travels_once_and_epochs_begin_at_once(spawned):
    """A large table reaches each of 2 spawned workers once; the second epoch starts no process."""
    with data.DataLoader(Paths(MANY // 10), 8, True, seed=1, num_workers=2) as loader:
        next(iter(loader))
        pids = loader._engine.running().process_ids()
        for _ in range(9):
            assert next(iter(loader)).numpy()[:, 1].tolist() == [1] * 8
        assert loader._engine.running().process_ids() == pids


@pytest.mark.soak
def test_7_a_large_data_set_starts_within_a_second_of_an_empty_one(spawned):
    """1.2 M entries add less than 1 s to the start-up; a second epoch begins in < 5 ms."""
    large, small = Paths(MANY), Paths(8)
    extra = [first_batch(large) - first_batch(small) for _ in range(5)]
    assert sorted(extra)[2] < 1
    with data.DataLoader(large, 8, True, seed=1, num_workers=4) as loader:
        next(iter(loader))
        assert next_epochs(loader) < 5e-3


@linux
def test_8_what_cannot_travel_is_named_before_a_process_starts():
    """Before a process starts, the error names the attribute's path, the cause and a remedy."""
    before = remaining()
    dataset, lock = Numbers(), threading.Lock()
    dataset.cache = {"open": [lock]}  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"dataset\.cache\['open'\]\[0\] -> .*lock.*threads"):
        data.DataLoader(dataset, 4, num_workers=2)

    def collate(samples: list[Any]) -> Any:
        return lock

    def default(samples: list[Any], lock: Any = lock) -> Any:
        return lock

    for function, place in ((collate, "its variable lock"), (default, "a default value")):
        with pytest.raises(TypeError, match=rf"collate \({place}\) -> .*lock"):
            data.DataLoader(Numbers(), 4, num_workers=2, collate=function)
    assert remaining() == before
    with data.DataLoader(dataset, 4, num_workers=2, engine="threads") as loader:
        # the threads engine is one of the remedies that the error names
        assert len(list(loader)) == 25


GUARDLESS = """
import sys
import numpy as np
from needle import data
from needle.data.workers import launch
launch.START_METHOD = sys.argv[1]
print("once")
class Mine:
    double = lambda self, index: index * 2
    def __len__(self): return 15
    def __getitem__(self, index):
        if index == 14: raise MyError("fourteen", index)
        return self.double(index)
class MyError(Exception):
    def __init__(self, word, number):
        super().__init__(word)
        self.number = number
with data.DataLoader(Mine(), 5, num_workers=2) as loader:
    batches = iter(loader)
    print(*[next(batches).numpy().sum() for _ in range(2)])
    try:
        next(batches)
    except MyError as error:
        print(error.args, error.number)
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_forgotten_guard_does_no_harm(method, tmp_path: Path):
    """Without ``if __name__ == "__main__"`` the program runs once, and workers get its classes."""
    assert run(tmp_path, GUARDLESS, method) == "once\n20 70\n('fourteen',) 14\n"


INSIDE = """
import multiprocessing, sys
from needle import data
try:
    loader = data.DataLoader(range(10), 5, num_workers=2)
except Exception as error:
    print(error, flush=True)
    raise SystemExit
loader.close()
process = multiprocessing.get_context(sys.argv[1]).Process(target=print)
try:
    process.start()
    process.join()
except ConnectionError:  # since 3.14 the fork server runs the program, too, and ends with it
    pass
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_forgotten_guard_under_multiprocessing_is_told(method, tmp_path: Path):
    """A program that multiprocessing runs again in its child gets an error, not a recursion."""
    out = run(tmp_path, INSIDE, method)
    assert out.count("\n") == 1 and "if __name__ == '__main__':" in out


NOTEBOOK = """
import numpy as np
from needle import data
class Cell(data.Dataset):
    def __len__(self):
        return 10
    def __getitem__(self, index):
        return helper(index)

def helper(index):
    return index * factor

factor = 2
loader = data.DataLoader(Cell(), 5, num_workers=2)
print("sums", *[int(batch.numpy().sum()) for batch in loader])

factor = 3
print("sums", *[int(batch.numpy().sum()) for batch in data.DataLoader(Cell(), 5, num_workers=2)])

loader.close()
exit()
"""


def test_classes_of_a_notebook_travel():
    """Classes typed at the prompt, which no file defines, reach the workers as last defined."""
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=NOTEBOOK,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
    )
    assert done.stdout.splitlines() == ["sums 20 70", "sums 30 105"], done.stderr
    assert "Traceback" not in done.stderr


BARE = """
import sys
class Missing:
    names = {"cv2", "simplejpeg", "pyarrow", "PIL", "tqdm", "torch", "cloudpickle", "safetensors"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import numpy as np
from needle import data
from complaints.sets import Numbers
images = np.zeros((20, 8, 8, 3), np.uint8)
made = [data.RandomCrop(1), data.Resize(6), data.Normalize(0.0, 1.0), data.ToCHW()]
for options in ({}, {"num_workers": 2}, {"num_workers": 2, "engine": "threads"}):
    with data.DataLoader(data.ArrayDataset(images), 5, True, seed=1, transforms=made,
                         **options) as loader:
        assert [batch.shape for (batch,) in loader] == [(5, 3, 6, 6)] * 4
    with data.DataLoader(Numbers(10), 5, **options) as loader:
        assert len(list(loader)) == 2
for action in (
    lambda: data.pack(data.ArrayDataset(images), "a.arrow", progress=False),
    lambda: data.PackedDataset(sys.argv[1]),
    lambda: data.ImageFolder(sys.argv[2]),
):
    try:
        action()
    except ImportError as error:
        print(error)
try:
    data.DataLoader(Numbers(10), 5, num_workers=1, collate=lambda samples: samples)
except TypeError as error:
    print(error)
"""


def test_21_nothing_but_numpy_is_needed(tmp_path: Path):
    """Without OpenCV, simplejpeg, pyarrow and Pillow needle loads, and says what to install."""
    pytest.importorskip("pyarrow")
    packed = tmp_path / "numbers.arrow"
    data.pack(data.ArrayDataset(np.arange(4)), packed, progress=False)
    folder = tmp_path / "images" / "cat"
    folder.mkdir(parents=True)
    (folder / "a.jpg").write_bytes(b"no image")
    out = run(tmp_path, BARE, str(packed), str(folder.parent)).splitlines()
    assert len(out) == 4, out
    assert "needle[packed]" in out[0] and "needle[packed]" in out[1]
    assert "needle[images]" in out[2]
    assert "pip install cloudpickle" in out[3]


@pytest.mark.soak
@linux
def test_22_opening_a_packed_file_reads_no_sample(tmp_path: Path):
    """The number of bytes read on opening does not grow with the number of samples."""
    pytest.importorskip("pyarrow")
    taken = []
    for count in (200, 20_000):
        path = tmp_path / f"{count}.arrow"
        data.pack(data.ArrayDataset(np.zeros((count, 256), np.uint8)), path, progress=False)
        times = []
        for _ in range(5):
            began = time.perf_counter()
            dataset = data.PackedDataset(path)
            times.append(time.perf_counter() - began)
            assert len(dataset) == count
        taken.append(min(times))
    assert taken[1] < 10 * taken[0] + 0.02
