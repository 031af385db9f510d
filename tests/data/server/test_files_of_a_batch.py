"""One ``next()`` of a GlobalDataLoader crosses few files of data/, in the server and the loader."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from forks import HERE, ROOT

MOST_OF_SHARING = 13
IN_MEMORY = """
images = data.ImageArrays(
    np.zeros((6400, 8, 8, 3), np.uint8), np.zeros(6400, int), layout="HWC", dtype="uint8"
)
"""
READ = "from server_sets import Images; images = Images(6400)"
TRACE = """
import os, sys, tempfile, threading
from pathlib import Path
import numpy as np
from needle import data
{dataset}
from needle.data.sharing import GlobalDataLoader, Options, Server

root = os.path.dirname(data.__file__) + os.sep
files, tracing = set(), threading.Event()

def profile(frame, event, argument):
    name = frame.f_code.co_filename
    if tracing.is_set() and event == "call" and name.startswith(root):
        files.add(name[len(root):])

threading.setprofile(profile)
with tempfile.TemporaryDirectory(dir="/tmp") as folder:
    path = Path(folder) / "s.sock"
    server = Server(images, path, Options(workers={workers}))
    thread = threading.Thread(target=server.run)
    thread.start()
    transforms = [data.RandomCrop(2), data.ToFloat()]
    with GlobalDataLoader(path, 16, seed=1, transforms=transforms) as loader:
        epoch = iter(loader)
        for number in range(60):  # the first batches also compile plans and allocate memory
            if number == 20:
                sys.setprofile(profile)
                tracing.set()
            next(epoch)
        tracing.clear()
        sys.setprofile(None)
    server.stop()
    thread.join()
print(*sorted(files), sep="\\n")
"""


@pytest.mark.parametrize(("dataset", "workers", "most"), [(IN_MEMORY, 0, 30), (READ, 1, 35)])
def test_a_batch_of_a_server_crosses_few_files_of_data(
    dataset: str, workers: int, most: int
) -> None:
    paths = f"{ROOT / 'python'}{os.pathsep}{HERE}"
    program = TRACE.replace("{dataset}", dataset).replace("{workers}", str(workers))
    trace = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": paths, "NEEDLE_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert trace.returncode == 0, trace.stderr
    crossed = trace.stdout.split()
    of_sharing = [name for name in crossed if name.startswith("sharing")]
    assert "loader/iteration.py" in crossed and "sharing/serving/feed.py" in of_sharing
    assert len(crossed) <= most and len(of_sharing) <= MOST_OF_SHARING, trace.stdout
