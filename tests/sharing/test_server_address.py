"""Test access to servers, files of dead servers, and the command that starts and lists servers."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from server_checks import QUICK, by_index, folder, loader, served, server_process
from server_sets import Images

from needle import data
from needle.errors import DataError, WorkerError
from needle.sharing import Server
from needle.sharing.__main__ import main
from needle.sharing.wire import address
from needle.sharing.wire.descriptions import open_named

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks the system who peers are")


def test_the_folder_must_be_private(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        place = address.folder()
        assert place.stat().st_mode & 0o777 == 0o700
        place.chmod(0o755)
        with pytest.raises(WorkerError, match="mode 0700, got mode 755"):
            address.folder()
        place.rmdir()
        place.symlink_to("/tmp")
        with pytest.raises(WorkerError, match="must be a folder"):
            address.folder()


def test_without_a_runtime_folder_it_is_below_the_temporary_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        assert address.folder() == Path(name) / f"needle-{os.getuid()}"


def test_two_servers_do_not_fight() -> None:
    with served(Images(30)) as path:
        with pytest.raises(WorkerError, match="another server listens"):
            Server(Images(30), path, QUICK)
        with loader(path) as task:
            assert len(by_index(task)) == 30


def test_a_stale_socket_is_recognised() -> None:
    with folder() as place:
        path = place / "s.sock"
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(str(path))
        dead.close()
        assert path.exists() and address.connect(path) is None
        server = Server(Images(30), path, QUICK)
        channel = address.connect(path)
        assert channel is not None
        channel.close()
        server.close()


def test_a_path_that_no_socket_can_have_is_refused() -> None:
    with pytest.raises(DataError, match="at most 100 bytes"):
        address.socket_path("/tmp/" + "x" * 120)


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
def test_another_user_cannot_connect() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="nl") as name:
        path = Path(name) / "s.sock"
        with server_process(path, "server_sets:images") as server:
            assert _as_nobody(path) == "refused"  # the folder's mode forbids it
            Path(name).chmod(0o755)
            path.chmod(0o777)
            assert _as_nobody(path) == "hung up"  # the server checks user ids
            Path(name).chmod(0o700)
            with loader(path) as task:
                assert len(by_index(task)) == 100
            assert server.is_alive()


def _as_nobody(path: Path) -> str:
    """Return what the user "nobody" receives from the socket."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = "?"
        try:
            os.setuid(65534)
            channel = socket.socket(socket.AF_UNIX)
            channel.settimeout(20)
            channel.connect(str(path))
            told = "hung up" if not channel.recv(1) else "heard"
        except PermissionError:
            told = "refused"
        except ConnectionResetError:
            told = "hung up"
        finally:
            os.write(theirs, told.encode())
            os._exit(0)
    os.close(theirs)
    os.waitpid(pid, 0)
    with os.fdopen(ours) as channel:
        return channel.read()


def test_data_sets_by_name(tmp_path: Path) -> None:
    assert len(open_named("digits")) == len(data.Digits())
    np.save(tmp_path / "x.npy", np.zeros((5, 2)))
    assert len(open_named(f"npy:{tmp_path / 'x.npy'}")) == 5
    assert open_named("server_sets:images?length=7").length == 7
    for bad in ("nothing", "no_such_module:make", "server_sets:nothing", "server_sets:x y"):
        with pytest.raises(DataError, match="server: "):
            open_named(bad)


def test_the_status_of_servers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with folder() as place:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
        assert main(["--status"]) == 1 and "no servers" in capsys.readouterr().out
        with loader(Images(30), task="mine", num_workers=0) as task:
            by_index(task)
            assert main(["--status"]) == 0
            shown = capsys.readouterr().out
            assert "Images, 30 samples" in shown and "30 read (1.000 for each)" in shown
            assert "mine" in shown and "decoded samples, as they are read" in shown
        assert main(["--status", "--name", "photos"]) == 1
        assert main(["--dataset", "folder:/nowhere"]) == 1
        assert "nowhere" in capsys.readouterr().err
