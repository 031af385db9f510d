"""Test server faults: killed tasks, workers and servers, and peers that violate the protocol."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from proc import Leftovers, alive, becomes, children
from server_checks import (
    QUICK,
    arrays,
    as_data_loader,
    assert_same,
    by_index,
    folder,
    loader,
    served,
    server_process,
)
from server_peers import Peer, client_process, every
from server_sets import Deadly, Images, images

from needle import data
from needle.errors import LoaderServerError
from needle.sharing import Server, ServerOptions
from needle.sharing.serving import event_loop, reading
from needle.sharing.wire.address import connect
from needle.sharing.wire.protocol import (
    LIMITS,
    MAGIC,
    VERSION,
    FrameKind,
    pack_frame,
    pack_marks,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

NAME = "server_sets:images"
TRANSFORMS = [data.RandomCrop(2), data.RandomFlipHorizontal()]


def held_bytes(task: Any) -> int:
    return sum(feed["held_bytes"] for feed in task.server_status()["feeds"])


def task_names(task: Any) -> set[str]:
    return {each["task"] for feed in task.server_status()["feeds"] for each in feed["tasks"]}


def one_of_three_within(seconds: float, attempt: Callable[[], float]) -> bool:
    """Return True if one of three attempts is in time: a busy machine can delay any single one."""
    return any(attempt() < seconds for _ in range(3))


# ---- tasks that die, hang, or never release their samples


@pytest.mark.soak
def test_a_killed_task_is_gone_within_a_second_and_the_others_go_on() -> None:
    with served(Images(400)) as path, loader(path, task="mine") as mine:
        epoch = iter(mine)
        next(epoch)

        def seconds_until_gone() -> float:
            with client_process(path, "other", pause=10) as other:
                assert becomes(lambda: "other" in task_names(mine))
                other.kill()
                start = time.monotonic()
                assert becomes(lambda: "other" not in task_names(mine), 5)
                return time.monotonic() - start

        assert one_of_three_within(1, seconds_until_gone)
        rest = by_index(epoch)
        assert len(rest) == 400 - 8
        assert held_bytes(mine) == 0


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_tasks_killed_at_random_moments(times: int) -> None:
    """Kill a task repeatedly at random moments; another task's epochs must stay complete."""
    rng, dataset = random.Random(1), Images(200, 2e-4)
    wanted = as_data_loader(dataset, 1, 0)
    with served(dataset) as path, loader(path, task="mine") as mine:
        for _ in range(times):
            with client_process(path, "other") as other:
                time.sleep(0.05 * rng.random())
                other.kill()
            assert_same(by_index(mine), wanted, range(200))
        assert becomes(lambda: task_names(mine) == {"mine"} and not held_bytes(mine))


def test_a_task_that_hangs_loses_its_lease() -> None:
    with (
        served(Images(400), ServerOptions(workers=0, beat=1.0)) as path,
        client_process(path, "other") as other,
        loader(path, task="mine") as mine,
    ):
        assert task_names(mine) == {"mine", "other"}
        other.send_signal(signal.SIGSTOP)
        assert becomes(lambda: task_names(mine) == {"mine"}, 20)
        assert held_bytes(mine) == 0


def test_a_task_that_never_releases_delays_nobody() -> None:
    with served(Images(400)) as path, loader(path, task="mine") as mine:
        greedy = Peer(path)
        greedy.register("greedy", 400)
        for _ in range(30):
            greedy.say(FrameKind.NEXT, {"generation": 0, "batches": 4})
        for _ in range(2):
            assert len(by_index(mine)) == 400
        state = next(t for t in mine.server_status()["feeds"][0]["tasks"] if t["task"] == "greedy")
        assert 0 < state["held"] <= 2 * 4 * 8 and state["delivered"] <= 2 * 4 * 8
        assert held_bytes(mine) > 0
        greedy.close()
        assert becomes(lambda: held_bytes(mine) == 0)


def test_an_interrupt_of_a_task_arrives_as_one_and_the_task_goes_on() -> None:
    """Test Ctrl-C at the beginning of any Python function that ``next`` calls."""
    place, calls = 0, 1

    def interrupt(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == place:
            raise KeyboardInterrupt

    with served(Images(16)) as path, loader(path, timeout=10) as task:
        while calls >= place:
            place, calls = place + 1, 0
            batches = iter(task)
            sys.settrace(interrupt)
            try:
                next(batches)
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
            assert len(next(batches)) == 2
    assert place > 10


def test_a_task_that_waits_long_is_not_given_up() -> None:
    with (
        served(Images(100), ServerOptions(workers=0, beat=0.4)) as path,
        loader(path) as mine,
    ):
        epoch = iter(mine)
        next(epoch)
        time.sleep(2.0)  # a training step that takes longer than the lease
        assert len(by_index(epoch)) == 92


# ---- peers that violate the protocol

GARBAGE: dict[str, bytes] = {
    "text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "zeros": bytes(64),
    "another version": MAGIC + bytes([VERSION + 1, 1]) + bytes(8),
    "an unknown kind": MAGIC + bytes([VERSION, 99]) + bytes(8),
    "no JSON": MAGIC + bytes([VERSION, 1]) + (2).to_bytes(4, "little") + bytes(4) + b"{]",
    "a list": MAGIC + bytes([VERSION, 1]) + (2).to_bytes(4, "little") + bytes(4) + b"[]",
    "too long": MAGIC
    + bytes([VERSION, 1])
    + (LIMITS[FrameKind.HELLO][0] + 1).to_bytes(4, "little") * 2,
    "enormous": MAGIC + bytes([VERSION, 2]) + b"\xff" * 8,
    "no hello": pack_frame(FrameKind.STATUS),
    "no task": pack_frame(FrameKind.HELLO)
    + pack_frame(FrameKind.NEXT, {"generation": 0, "batches": 1}),
    "a server's": pack_frame(FrameKind.HELLO) + pack_frame(FrameKind.ERROR),
    "deep": pack_frame(FrameKind.HELLO)[:4] + (4000).to_bytes(4, "little") + bytes(4) + b"[" * 4000,
}

REGISTRATIONS: dict[str, Any] = {
    "task": [None, "", "a\n", 7, "x" * 300],
    "batch_size": [0, -1, 2**60, "8", None, True],
    "credits": [0, 2**40, None],
    "share": ["everything", None],
    "shared": [[{"name": "eval", "values": {}}], [{"name": "Resize", "values": {"size": -1}}],
               [{"name": "Resize", "values": {"size": {"a": 1}}}], "Resize", [7] * 100],
    "decode_at": [[0, 1], [1], "big", [1.5, 2.5]],
    "indices": [b"", b"?", bytes(5), every(39 + 8), every(8), pack_marks(np.zeros(40, bool))],
}  # fmt: skip


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_ends_one_connection_and_nothing_else(name: str) -> None:
    before = Leftovers()
    with served(Images(40)) as path, loader(path) as mine:
        epoch = iter(mine)
        next(epoch)
        peer = Peer(path)
        peer.send(GARBAGE[name])
        assert peer.is_cut_off()
        peer.close()
        assert len(by_index(epoch)) == 32
    before.assert_none()


@pytest.mark.parametrize("field", REGISTRATIONS)
def test_a_registration_that_breaks_a_rule_is_refused(field: str) -> None:
    good = {"task": "t", "batch_size": 8, "credits": 4, "share": "decoded", "shared": []}
    with served(Images(40)) as path, loader(path, task="mine") as mine:
        for value in REGISTRATIONS[field]:
            peer = Peer(path)
            peer.say(FrameKind.HELLO)
            values = {**good, "decode_at": None, "indices": every(40), field: value}
            peer.say(FrameKind.REGISTER, values, values.pop("indices"))
            assert peer.hear(FrameKind.ERROR) is not None, value
            assert peer.is_cut_off()
            peer.close()
        assert len(by_index(mine)) == 40


def test_random_bytes_behind_a_registration() -> None:
    rng = random.Random(3)
    with served(Images(64)) as path, loader(path, task="mine") as mine:
        for _ in range(60):
            peer = Peer(path)
            peer.register("peer", 64)
            kind = rng.choice(
                [FrameKind.RESUME, FrameKind.NEXT, FrameKind.RELEASE, FrameKind.BATCH]
            )
            values = {
                name: rng.choice([0, 1, -1, 2**70, None, "x", [], 10**6])
                for name in ("generation", "batch", "batches", "epoch")
            }
            peer.say(kind, values, rng.randbytes(rng.choice([0, 1, 8, 200])))
            if rng.random() < 0.5:
                peer.send(rng.randbytes(30))
            peer.close()
            assert becomes(lambda: task_names(mine) == {"mine"})
        assert len(by_index(mine)) == 64 and held_bytes(mine) == 0


def test_silent_connections_keep_no_task_out() -> None:
    with served(Images(16)) as path, loader(path, task="first") as first:
        silent = [connect(path) for _ in range(300)]
        with loader(path, task="second") as second:
            assert len(by_index(second)) == len(by_index(first)) == 16
        for channel in silent:
            assert channel is not None
            channel.close()


def test_half_a_frame_is_waited_for_no_longer_than_a_lease() -> None:
    with served(Images(40), ServerOptions(workers=0, beat=0.1)) as path:
        peer = Peer(path)
        peer.send(pack_frame(FrameKind.HELLO)[:5])
        assert peer.is_cut_off(20)
        peer.close()


def test_a_peer_that_does_not_read_costs_nobody_else() -> None:
    with served(Images(40)) as path, loader(path) as mine:
        deaf = Peer(path)
        deaf.send(pack_frame(FrameKind.HELLO) + pack_frame(FrameKind.STATUS) * 2000)
        assert len(by_index(mine)) == 40
        deaf.close()


# ---- workers that die


@pytest.mark.parametrize(
    ("times", "length"), [(3, 300), pytest.param(100, 600, marks=pytest.mark.soak)]
)
def test_workers_killed_at_random_moments(times: int, length: int) -> None:
    """Kill a process below the server again and again; no sample is lost or repeated."""
    rng, dataset = random.Random(2), Images(length, 1e-3)
    with folder() as place:
        path = place / "s.sock"
        name = f"server_sets:images?length={length}&pause=1000"
        with (
            server_process(path, name, workers=2, budget=1 << 14) as server,
            loader(path, task="a", transforms=TRANSFORMS) as first,
        ):
            killed, epoch = 0, 0
            while killed < times:
                found = []
                for batch in first:
                    found.append(batch)
                    below = sorted(pid for pid in children(server.pid) if alive(pid))
                    if below and killed < times and rng.random() < 0.2:
                        os.kill(rng.choice(below), signal.SIGKILL)
                        killed += 1
                wanted = as_data_loader(dataset, 1, epoch, transforms=TRANSFORMS)
                assert_same(by_index(found), wanted, range(length))
                epoch += 1
            assert server.is_alive()


def test_a_sample_that_kills_a_worker_twice_is_read_at_last(tmp_path: Path) -> None:
    dataset = Deadly(30, 0.0, str(tmp_path / "deaths"))
    with served(dataset, ServerOptions(workers=1)) as path, loader(path) as mine:
        assert len(by_index(mine)) == 30
    assert len(list(tmp_path.glob("deaths.*"))) == 2


def test_workers_that_begin_delay_no_other_task(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    class Slow(reading.PolledProcesses):
        def __init__(self, pipeline: Any, **options: Any) -> None:
            assert not pipeline.chain.parts or go_on.wait(100)
            super().__init__(pipeline, **options)

    monkeypatch.setattr(reading, "PolledProcesses", Slow)
    before = Leftovers()
    with served(Images(40), ServerOptions(workers=1)) as path, loader(path, task="mine") as mine:
        with loader(path, task="other", transforms=[data.CenterCrop(4)]) as other:
            epoch = iter(other)
            assert len(by_index(mine)) == 40
            go_on.set()
            assert len(by_index(epoch)) == 40
        go_on.clear()
        loader(path, task="gone", transforms=[data.CenterCrop(3)]).close()
        assert becomes(lambda: len(mine.server_status()["feeds"]) == 1)
        go_on.set()  # lets the abandoned read end
        assert len(by_index(mine)) == 40
    before.assert_none()


def test_workers_that_cannot_begin_are_an_error_of_their_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(reading.PolledProcesses):
        def __init__(self, pipeline: Any, **options: Any) -> None:
            raise TypeError("cannot pickle the data set")

    working = reading.PolledProcesses
    monkeypatch.setattr(reading, "PolledProcesses", Broken)
    with served(Images(40), ServerOptions(workers=1)) as path, loader(path) as task:
        with pytest.raises(LoaderServerError, match="cannot pickle"):
            next(iter(task))
        monkeypatch.setattr(reading, "PolledProcesses", working)
        assert len(by_index(task)) == 40


# ---- servers that die, or should


def test_a_server_ends_with_its_last_task_however_that_ends() -> None:
    with folder() as place:
        path = place / "s.sock"
        with (
            server_process(path, NAME, until_last=True) as server,
            client_process(path, "one") as one,
            client_process(path, "two") as two,
        ):
            one.kill()
            assert not becomes(lambda: not server.is_alive(), 0.3)
            two.kill()
            assert becomes(lambda: not server.is_alive())


def test_a_server_that_nobody_comes_to_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "FIRST_TASK", 0.1)
    with folder() as place:
        Server(Images(4), place / "s.sock", ServerOptions(workers=0, until_last=True)).run()


def test_the_end_of_a_server_is_an_error() -> None:
    seconds_to_the_error()


@pytest.mark.soak
def test_the_end_of_a_server_is_an_error_within_half_a_second() -> None:
    assert one_of_three_within(0.5, seconds_to_the_error)


def seconds_to_the_error() -> float:
    with folder() as place, server_process(place / "s.sock", NAME) as server:
        mine = loader(place / "s.sock")
        epoch = iter(mine)
        next(epoch)
        server.kill()
        start = time.monotonic()
        with pytest.raises(LoaderServerError, match=r"server (is lost|listens)"):
            while True:
                next(epoch)
        taken = time.monotonic() - start
        mine.close()
        for name in ("s.sock", "s.lock"):  # files that a killed server leaves behind
            (place / name).unlink()
        return taken


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize("fallback", [False, True])
def test_servers_killed_at_random_moments(fallback: bool, times: int) -> None:
    """Kill the server repeatedly at random moments, and start another one each time."""
    rng, dataset, length = random.Random(4), images(160, 100), 160
    name = f"server_sets:images?length={length}&pause=100"
    with folder() as place:
        path, mine, killed = place / "s.sock", None, 0
        while killed < times:
            with server_process(path, name) as server:
                if mine is None:
                    options = {"fallback": dataset} if fallback else {}
                    mine = loader(path, transforms=TRANSFORMS, **options)
                    epoch, found = iter(mine), []
                stop = rng.randrange(1, 30)
                for count in range(60):
                    if count == stop:
                        server.kill()
                        killed += 1
                    try:
                        found.append(next(epoch))
                    except StopIteration:
                        wanted = as_data_loader(dataset, 1, epoch.epoch, transforms=TRANSFORMS)
                        assert_same(by_index(found), wanted, range(length))
                        epoch, found = iter(mine), []
                        if not server.is_alive():
                            break
                    except LoaderServerError:
                        assert not fallback or not found
                        break
        mine.close()
        for left in ("s.sock", "s.lock"):
            (place / left).unlink(missing_ok=True)


def test_a_server_that_stops_answering_is_lost() -> None:
    with (
        folder() as place,
        server_process(place / "s.sock", NAME, beat=1.0) as server,
        loader(place / "s.sock") as mine,
    ):
        epoch = iter(mine)
        next(epoch)
        server.send_signal(signal.SIGSTOP)
        with pytest.raises(LoaderServerError, match="has not answered"):
            while True:
                next(epoch)
        server.send_signal(signal.SIGCONT)


def test_nothing_is_left_of_a_server_that_is_killed() -> None:
    with folder() as place:
        path = place / "s.sock"
        with server_process(path, NAME, workers=2) as server, loader(path) as mine:
            assert len(by_index(mine)) == 100
            below = children(server.pid)
            assert below
            server.kill()
            assert becomes(lambda: not any(map(alive, below)))
        assert path.exists(), "a stale socket, which the next server recognises"
        with server_process(path, NAME), loader(path) as mine:
            assert len(by_index(mine)) == 100


def test_a_dropped_loader_ends_its_task() -> None:
    before = Leftovers()
    with served(Images(40), QUICK) as path, loader(path, task="mine") as mine:
        other = loader(path, task="other")
        epoch = iter(other)
        assert len(arrays(next(epoch))[1]) == 8
        assert task_names(mine) == {"mine", "other"}
        del other, epoch
        assert becomes(lambda: task_names(mine) == {"mine"})
    before.assert_none()
