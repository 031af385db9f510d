"""One supervisor starts the workers of all loaders, in the program's state, and ends with it."""

import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from complaints.programs import run
from complaints.sets import Numbers
from proc import Leftovers, alive, stat, supervisors

from needle import data
from needle.data.workers.deaths import Deaths
from needle.data.workers.framing import send
from needle.data.workers.launch import START_METHOD, Launcher
from needle.data.workers.process_pool import ProcessPool
from needle.data.workers.shared_supervisor import shared_supervisor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Surroundings(data.Dataset):
    """Each sample is text: the state that a process inherits from the one that started it."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        limit = resource.getrlimit(resource.RLIMIT_CORE)[0]
        folder, variable = os.getcwd(), os.environ.get("FOR_WORKERS", "none")
        return [f"{folder} {variable} {limit} {sys.path[-1]} {os.umask(os.umask(0o77))}"]


def lines(loader: data.DataLoader) -> set[str]:
    return {line for batch in loader for line in batch[0]}


def labels(loader: data.DataLoader) -> list[int]:
    return [label for _, batch in loader for label in batch.numpy().tolist()]


def starter(loader: data.DataLoader) -> int:
    """Return the id of the process that started the loader's workers."""
    (found,) = {stat(pid, 1) for pid in loader._engine.running().process_ids()}
    return int(found or 0)


@contextmanager
def loading(dataset: Any, **options: Any) -> Iterator[data.DataLoader]:
    with data.DataLoader(dataset, 2, num_workers=2, **options) as loader:
        yield loader


def test_loaders_share_the_process_that_starts_their_workers() -> None:
    """Successive and concurrent loaders share one supervisor, with both start methods."""
    with loading(Numbers(10)) as first:
        assert labels(first) == list(range(10))
        found = starter(first)
    with loading(Numbers(12)) as second, loading(Numbers(7)) as third:
        assert labels(second) == list(range(12))
        assert labels(third) == list(range(7))
        assert {starter(second), starter(third)} == {found}
        second.close()
        assert labels(third) == list(range(7))
    assert found in supervisors()
    assert len(os.listdir(f"/proc/{found}/task")) == 1


def test_an_edited_file_of_needle_reaches_the_workers_of_the_next_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = ModuleType("needle.edited")
    edited.__file__ = str(tmp_path / "edited.py")
    Path(edited.__file__).touch()
    monkeypatch.setitem(sys.modules, edited.__name__, edited)
    with loading(Numbers(4)) as loader:
        assert labels(loader) == list(range(4))
        before = starter(loader)
    os.utime(edited.__file__, (time.time() + 60,) * 2)
    with loading(Numbers(4)) as loader:
        assert labels(loader) == list(range(4))
        assert starter(loader) != before


def test_loaders_of_many_threads_share_it() -> None:
    def load(count: int) -> tuple[list[int], int]:
        with loading(Numbers(count)) as loader:
            return labels(loader), starter(loader)

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(load, range(2, 8)))
    assert [seen for seen, _ in found] == [list(range(count)) for count in range(2, 8)]
    (pid,) = {pid for _, pid in found}
    assert pid in supervisors()


def test_workers_have_what_the_program_has_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change after the first loader starts reaches the next one's workers, not the first's."""
    limit = resource.getrlimit(resource.RLIMIT_CORE)
    umask = os.umask(0o22)
    os.umask(umask)
    with loading(Surroundings()) as first:
        before = lines(first)
        assert before == lines(data.DataLoader(Surroundings(), 2))
        process = starter(first)
        try:
            monkeypatch.chdir(tmp_path)
            monkeypatch.setenv("FOR_WORKERS", "new")
            monkeypatch.syspath_prepend("/nowhere")
            monkeypatch.setattr(sys, "path", [*sys.path, "/somewhere"])
            resource.setrlimit(
                resource.RLIMIT_CORE, (limit[1] // 2 if limit[1] > 0 else 0, limit[1])
            )
            os.umask(0o27)
            with loading(Surroundings()) as second:
                assert lines(second) == lines(data.DataLoader(Surroundings(), 2))
                assert lines(second) & before == set()
                assert starter(second) != process
        finally:
            os.umask(umask)
            resource.setrlimit(resource.RLIMIT_CORE, limit)
        assert lines(first) == before
        assert alive(process)
    assert stat(process, 0) is None  # the supervisor ended with its last loader


@pytest.mark.parametrize("times", [2, pytest.param(30, marks=pytest.mark.soak)])
def test_killed_between_loaders_it_is_started_again(times: int) -> None:
    with loading(Numbers(4)) as loader:
        assert labels(loader) == list(range(4))
    before = Leftovers()
    for _ in range(times):
        (process,) = supervisors()
        os.kill(process, signal.SIGKILL)
        with loading(Numbers(9)) as loader:
            assert labels(loader) == list(range(9))
            assert starter(loader) != process
        assert stat(process, 0) is None
    before.assert_none()


@pytest.mark.parametrize("times", [2, pytest.param(30, marks=pytest.mark.soak)])
def test_killed_under_two_loaders_both_go_on(times: int) -> None:
    before = Leftovers()
    with loading(Numbers(40), seed=1) as one, loading(Numbers(30), seed=1) as two:
        for _ in range(times):
            ones, twos = iter(one), iter(two)
            seen = next(ones)[1].numpy().tolist() + next(twos)[1].numpy().tolist()
            for process in supervisors():
                os.kill(process, signal.SIGKILL)
            for _, batch in (*ones, *twos):
                seen += batch.numpy().tolist()
            assert sorted(seen) == sorted([*range(40), *range(30)])
    before.assert_none()


def test_the_workers_of_a_killed_supervisor_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The supervisor that is started instead does not know them, and would never report them."""
    answer, silent = Launcher._answer, list[float]()

    def answer_in_time(self: Launcher, seconds: float) -> Any:
        try:
            return answer(self, seconds)
        except TimeoutError:
            silent.append(seconds)
            raise

    monkeypatch.setattr(Launcher, "_answer", answer_in_time)
    with loading(Numbers(40)) as loader:
        batches = iter(loader)
        seen = next(batches)[1].numpy().tolist()
        (process,) = supervisors()
        os.kill(process, signal.SIGKILL)
        for _, batch in batches:
            seen += batch.numpy().tolist()
        assert seen == list(range(40)) and starter(loader) != process
    assert not silent


def test_a_loader_that_hangs_up_does_not_end_the_supervisor_of_all() -> None:
    with loading(Numbers(8)) as loader:
        assert labels(loader) == list(range(8))
        process, workers = starter(loader), loader._engine.running().process_ids()
        os.kill(process, signal.SIGSTOP)  # so that it answers when the other has hung up
        try:
            channel = shared_supervisor().connect(START_METHOD)
            ours, theirs = socket.socketpair()
            with channel, ours, theirs:
                send(channel, ("start", 0), (theirs.fileno(),))
        finally:
            os.kill(process, signal.SIGCONT)
        with loading(Numbers(6)) as later:
            assert labels(later) == list(range(6)) and starter(later) == process
        assert labels(loader) == list(range(8))
        assert loader._engine.running().process_ids() == workers


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize(
    ("owner", "method", "afterwards"),
    [(Launcher, "start", False), (Launcher, "start", True), (ProcessPool, "_post", False)],
)
def test_an_interrupt_while_a_worker_is_replaced_loses_no_batch(
    owner: Any, method: str, afterwards: bool, delayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(owner, method)
    pauses = iter([1e-4] if delayed else [])  # seconds, after which another call replaces it

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(owner, method, original)
        if afterwards:
            original(*arguments)
        raise KeyboardInterrupt

    before = Leftovers()
    with data.DataLoader(Numbers(40), 2, num_workers=1, timeout=100) as loader:
        batches, seen = iter(loader), list[int]()
        seen += next(batches)[1].numpy().tolist()
        monkeypatch.setattr(owner, method, interrupted)
        monkeypatch.setattr(Deaths, "wait_seconds", lambda self: next(pauses, 0.0))
        os.kill(loader._engine.running().process_ids()[0], signal.SIGKILL)
        with suppress(KeyboardInterrupt):
            seen += (label for _, batch in batches for label in batch.numpy().tolist())
        assert getattr(owner, method) is original
        seen += [label for _, batch in batches for label in batch.numpy().tolist()]
        assert seen == list(range(40))
    before.assert_none()


PROGRAM = """
from complaints.sets import Numbers
from proc import children
from needle import data
loader = data.DataLoader(Numbers(1000), 2, num_workers=2)
batches = iter(loader)
next(batches)
other = data.DataLoader(Numbers(10), 2, num_workers=1)
next(iter(other))
print(*children())
"""


def test_it_is_gone_when_a_program_has_ended(tmp_path: Path) -> None:
    pids = [int(word) for word in run(tmp_path, PROGRAM).split()]
    assert len(pids) == 4
    assert not any(alive(pid) for pid in pids)


def test_a_forked_copy_of_the_program_has_its_own() -> None:
    """Using or ending the supervisor of a forked copy does not affect the program's supervisor."""
    with loading(Numbers(8)) as loader:
        assert labels(loader) == list(range(8))
        process = starter(loader)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with loading(Numbers(6)) as own:
                    assert labels(own) == list(range(6)) and starter(own) != process
                    assert process not in supervisors()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert labels(loader) == list(range(8))
        assert starter(loader) == process


THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
"""


def test_it_does_not_fork_beside_a_thread_of_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork would copy locks of the importing thread, so the workers are new interpreters."""
    (tmp_path / "sitecustomize.py").write_text(THREAD)
    with loading(Numbers(4)) as loader:
        assert labels(loader) == list(range(4))
        assert all("workers.supervisor" in line for line in commands(loader))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    with loading(Numbers(4)) as loader:
        assert labels(loader) == list(range(4))
        assert not any("workers.supervisor" in line for line in commands(loader))


def commands(loader: data.DataLoader) -> list[str]:
    pids = loader._engine.running().process_ids()
    return [Path(f"/proc/{pid}/cmdline").read_text() for pid in pids]


class Imported(data.Dataset):
    """Each sample says which of the given modules the worker has imported."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return np.array([name in sys.modules for name in self.names])


def test_modules_of_the_program_that_workers_need_are_imported_once() -> None:
    """A worker finds Pillow imported if the program had imported it before."""
    image = pytest.importorskip("PIL.Image")
    assert image is sys.modules["PIL.Image"]
    with loading(Imported("PIL.Image", "PIL.ImageQt")) as loader:
        assert [batch.numpy().tolist() for batch in loader] == [[[True, False]] * 2]


def test_a_worker_imports_no_client_of_the_network(tmp_path: Path) -> None:
    """Workers do not import object-store clients, which is slow and rarely needed."""
    text = """
from needle import data
from workers.test_shared_supervisor import Imported
names = "asyncio", "ssl", "http.client", "needle.remote", "numpy.random", "numpy"
with data.DataLoader(Imported(*names), 2, num_workers=1) as loader:
    print(*next(iter(loader)).numpy()[0])
"""
    assert run(tmp_path, text) == "False False False False True True\n"


@pytest.mark.slow
def test_a_supervisor_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    # The next supervisor must answer within the same time, also on a busy machine.
    monkeypatch.setattr("needle.data.workers.launch._START_SECONDS", 20.0)
    with loading(Numbers(4)) as loader:
        assert labels(loader) == list(range(4))
        process = starter(loader)
    os.kill(process, signal.SIGSTOP)
    with loading(Numbers(6)) as loader:
        assert labels(loader) == list(range(6))
        assert starter(loader) != process
    assert stat(process, 0) is None
