"""Bound memory, descriptors and threads: complaints 1, 2, 3, 10 and 18."""

import gc
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from proc import Leftovers, alive, becomes, children

from needle import data
from needle.errors import WorkerError

from .programs import (
    linux,
    own_shared_memory,
    proportional_bytes,
    resident_bytes,
    run,
    start,
)
from .sets import Enormous, Numbers, Paths

pytestmark = linux

MIB = 1 << 20


def memory_by_epoch(count: int, batch_size: int, epochs: int = 3) -> list[int]:
    """Return the memory of this process and 4 workers after each epoch over ``count`` paths."""
    found = []
    with data.DataLoader(Paths(count), batch_size, True, num_workers=4, seed=1) as loader:
        for _ in range(epochs):
            assert sum(len(batch.numpy()) for batch in loader) == count
            gc.collect()
            found.append(proportional_bytes({os.getpid(), *children()}))
    return found


@pytest.mark.parametrize("paths", [12_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_1_memory_does_not_grow_with_epochs(paths: int):
    """With 4 workers, PSS grows by less than 5 % after the first of 3 epochs."""
    first, *later = memory_by_epoch(paths, paths // 1000 + 250)
    assert max(later) < first * 1.05


KEEP = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import numpy as np
from needle import data
rows = np.arange(40_000, dtype=np.int64)
with data.DataLoader(data.ArrayDataset(rows), 4, num_workers=2) as loader:
    kept = [batch for (batch,) in loader]
assert len(kept) == 10_000
assert all((batch.numpy() == np.arange(4 * i, 4 * i + 4)).all() for i, batch in enumerate(kept))
print("all there")
"""


@pytest.mark.slow
def test_2_ten_thousand_batches_are_kept_with_64_descriptors(tmp_path: Path):
    """Under `ulimit -n 64` a list can hold every batch: none is overwritten, no open() fails."""
    assert run(tmp_path, KEEP) == "all there\n"


TIGHT = """
import os, sys
import numpy as np
{before}
from needle import data
from needle.errors import WorkerError
rows = np.zeros((64, {row}), np.uint8)
class Large:
    def __len__(self): return 64
    def __getitem__(self, index): return np.zeros({row}, np.uint8)
for made in (lambda: data.ArrayDataset(rows), Large):
    try:
        with data.DataLoader(made(), 16, num_workers=2) as loader:
            for batch in loader: pass
    except (WorkerError, MemoryError) as error:
        print(error)
    else:
        print("it fits")
with data.DataLoader(data.ArrayDataset(np.arange(8)), 2, num_workers=2) as loader:
    print(sum(len(batch[0].numpy()) for batch in loader))
"""


def test_3_shared_memory_of_16_megabytes_is_an_error_that_says_so(tmp_path: Path):
    """16 MB of /dev/shm without memfd cause an error, not a bus error; the loader stays usable."""
    before = "del os.memfd_create"
    text = TIGHT.format(before=before, row=1 << 20)
    out = run(tmp_path, text, wrapper=own_shared_memory(16)).splitlines()
    assert len(out) == 3 and out[2] == "8"
    for line in out[:2]:
        assert "shared memory for" in line and "needs" in line and "engine='threads'" in line


def test_3_a_limit_on_files_or_address_space_is_an_error_too(tmp_path: Path):
    """A memory file that cannot grow or be mapped raises an error that names the limit."""
    for name, size in (("RLIMIT_FSIZE", 8 * MIB), ("RLIMIT_AS", 1 << 30)):
        limit = f"import resource; resource.setrlimit(resource.{name}, ({size}, {size}))"
        row = (1 << 20) if name == "RLIMIT_FSIZE" else (1 << 23)
        text = TIGHT.format(before=limit, row=row).replace("np.zeros((64,", "np.zeros((16,")
        text = text.replace("lambda: data.ArrayDataset(rows), Large", "Large,")
        variables = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        out = run(tmp_path, text, variables=variables).splitlines()
        reasons = r"DataLoader: (shared|there is no) memory for|Unable to allocate"
        assert re.match(reasons, out[0]), name
        assert out[1:] == ["8"], name


def test_3_what_the_machine_does_not_have_is_refused_before_it_is_touched():
    """The message states both the required and the available memory."""
    before = resident_bytes()
    with (
        data.DataLoader(Enormous(), 16, num_workers=1) as loader,
        pytest.raises(WorkerError, match=r"needs .*TiB, have .*iB; use a smaller batch_size"),
    ):
        next(iter(loader))
    assert resident_bytes() - before < 256 * MIB


KILLED = """
import os, sys, time
import numpy as np
from proc import children
from complaints.sets import Numbers
from needle import data
from needle.data.workers import launch
launch.START_METHOD = sys.argv[1]
loader = data.DataLoader(Numbers(1000), 8, num_workers=2)
batches = iter(loader)
kept = [next(batches) for _ in range(3)]
print(*children(), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_10_nothing_named_is_left_when_everything_is_killed(method: str, tmp_path: Path):
    """/dev/shm, System V segments and the temporary folder are left as they were."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    wrapper = own_shared_memory(64)
    program = start(tmp_path, KILLED, method, wrapper=wrapper, variables={"TMPDIR": str(temporary)})
    assert program.stdout is not None
    pids = [int(word) for word in program.stdout.readline().split()]
    try:
        assert len(pids) == 3, program.communicate(timeout=60)
        shared = Path(f"/proc/{program.pid}/root/dev/shm")  # the program's own /dev/shm
        segments = Path("/proc/sysvipc/shm").read_text()
        assert os.listdir(shared) == []
        keeper = os.open(shared, os.O_RDONLY)
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.communicate(timeout=60)
    assert becomes(lambda: not any(alive(pid) for pid in pids))
    assert os.listdir(keeper) == [] and os.listdir(temporary) == []
    os.close(keeper)
    assert Path("/proc/sysvipc/shm").read_text() == segments


@pytest.mark.parametrize("times", [300, pytest.param(10_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_18_early_breaks_leave_nothing(engine: str, times: int) -> None:
    """``next(iter(loader))`` many times: resources stay constant and no stale batch arrives."""
    options: dict[str, Any] = {"num_workers": 2, "engine": engine, "seed": 3}
    with data.DataLoader(Numbers(10_000), 4, True, **options) as loader:
        first_rows = []
        for turn in range(times):
            images, labels = next(iter(loader))
            assert (images.numpy()[:, 0, 0] == labels.numpy()).all()
            first_rows.append(labels.numpy()[0])
            assert labels.numpy()[0] == loader.ordering[0][0]
            if turn == times // 3:
                gc.collect()
                held, memory = Leftovers(), resident_bytes()
        gc.collect()
        held.assert_none()
        assert resident_bytes() - memory < 16 * MIB
        assert len(set(first_rows)) > times // 2  # each epoch has its own order


@pytest.mark.parametrize("engine", ["threads", "processes"])
@pytest.mark.parametrize("end", ["close", "drop", "drop the iterator too"])
def test_18_loaders_made_and_dropped_leave_nothing(engine: str, end: str):
    """An abandoned loader or iterator releases its threads, processes and descriptors."""
    with data.DataLoader(Numbers(), 4, num_workers=1, engine=engine) as loader:
        next(iter(loader))
    gc.collect()
    before = Leftovers()
    loader = data.DataLoader(Numbers(), 4, num_workers=2, engine=engine)
    batches = iter(loader)
    next(batches)
    if end == "close":
        loader.close()
    elif end == "drop":
        next(iter(loader))
        del batches, loader
    else:
        del loader, batches
    gc.collect()
    before.assert_none()
