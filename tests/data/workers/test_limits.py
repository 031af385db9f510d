"""Test that an exhausted limit raises an error that names the resource and a remedy."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from complaints.programs import environment

from needle import data
from needle.data.workers import shared_memory
from needle.data.workers.limits import limit_error
from needle.data.workers.shared_memory import Memory
from needle.errors import WorkerError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sets limits of Linux")

FEW = """
import os, resource, sys
import numpy as np
from needle import data
from needle.errors import WorkerError
from complaints.sets import Numbers
from proc import descriptors
dataset = Numbers(24)
list(data.DataLoader(dataset, 4))
before = descriptors()
used = len(os.listdir("/proc/self/fd"))
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
told = 0
for spare in range(0, 26, int(sys.argv[1])):
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, hard))
    try:
        with data.DataLoader(dataset, 4, num_workers=3) as loader:
            assert sum(len(labels.numpy()) for _, labels in loader) == 24
    except WorkerError as error:
        assert "open files of this process (ulimit -n)" in str(error), error
        assert f"{used + spare}" in str(error) and "raise it" in str(error), error
        told += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert descriptors() == before, (spare, descriptors() - before)
print("told", told > 1)
"""


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.soak)])
def test_too_few_descriptors(step: int) -> None:
    """Wherever descriptors run out, the error names the limit and no descriptor leaks."""
    done = subprocess.run(
        [sys.executable, "-c", FEW, str(step)],
        capture_output=True,
        text=True,
        timeout=80,
        env=environment(),
    )
    assert done.stdout == "told True\n", done.stderr


def test_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, []

    def refuse(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    with data.DataLoader(list(range(8)), 2, num_workers=3, engine="threads") as loader:
        iterator = iter(loader)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(WorkerError, match=r"thread 3 of 3 failed: .*ulimit -u.*use fewer"):
            next(iterator)
        assert not any(thread.is_alive() for thread in started)
        monkeypatch.setattr(threading.Thread, "start", start)
        assert len(list(iterator)) == 4


def test_no_more_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with data.DataLoader(list(range(8)), 2, num_workers=3) as loader:
        assert len(list(loader)) == 4
        loader.close()
        iterator = iter(loader)
        with monkeypatch.context() as patch:
            patch.setenv("ANOTHER", "environment, so another supervisor")
            patch.setattr(subprocess, "Popen", refuse)
            with pytest.raises(WorkerError, match=r"starting .* failed: .*ulimit -u.*use fewer"):
                next(iterator)
        assert len(list(iterator)) == 4


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENOENT])
def test_a_folder_that_cannot_be_used(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(shared_memory.tempfile, "TemporaryFile", refuse)
    with pytest.raises(WorkerError, match="/dev/shm") as caught:
        Memory(1 << 12, "a test")
    assert os.strerror(number) in str(caught.value)


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=f"{tmp_path}/none cannot be written.*another folder"):
        Memory(1 << 12, "a test", str(tmp_path / "none"))


def test_an_unknown_error_is_quoted() -> None:
    assert "the system says: odd" in str(limit_error("a test", OSError("odd")))
    assert "ulimit -v" in str(limit_error("a test", MemoryError()))


def test_a_worker_that_cannot_be_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor reports the limit when its own fork fails."""
    program = "import os\ndef fork():\n    raise BlockingIOError(11, 'no')\nos.fork = fork\n"
    (tmp_path / "sitecustomize.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        data.DataLoader(list(range(8)), 2, num_workers=2) as loader,
        pytest.raises(WorkerError, match=r"starting a worker process failed.*ulimit -u"),
    ):
        next(iter(loader))
