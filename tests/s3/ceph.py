"""Ceph's radosgw from Debian: a monitor, one object server in memory, and the gateway."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import free_ports, running, wait_for_answer

PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
CONF = """
[global]
fsid = {fsid}
mon host = 127.0.0.1:{mon}
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd crush chooseleaf type = 0
osd objectstore = memstore
mon osd full ratio = 0.99
mon osd nearfull ratio = 0.98
mon osd backfillfull ratio = 0.985
mon allow pool size one = true
mon warn on pool no redundancy = false
mon data avail crit = 0
run dir = {folder}
log file = {folder}/$name.out
admin socket = {folder}/$name.sock
mon data = {folder}/mon
osd data = {folder}/osd
[client.rgw.needle]
rgw frontends = beast endpoint=127.0.0.1:{front} tcp_nodelay=1
rgw data = {folder}/rgw
"""


@contextlib.contextmanager
def running_ceph(folder: Path) -> Iterator[str]:
    """Yield the address of a running store; access key test:tester, secret testing."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        pytest.skip(
            f"no {', '.join(missing)}: apt-get install radosgw ceph-mon ceph-osd ceph-common"
        )
    mon, front = free_ports(2)
    fsid, conf = str(uuid.uuid4()), folder / "ceph.conf"
    conf.write_text(CONF.format(fsid=fsid, mon=mon, front=front, folder=folder))
    for name in ("mon", "osd", "rgw"):
        (folder / name).mkdir()
    use = ["-c", str(conf)]

    def call(*command: str) -> str:
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
        if made.returncode:
            raise RuntimeError(f"{' '.join(command)}: {made.stderr[-2000:]}")
        return made.stdout.strip()

    address = f"[v1:127.0.0.1:{mon}]"
    call("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, str(folder / "monmap"))
    call("ceph-mon", *use, "--mkfs", "-i", "a", "--monmap", str(folder / "monmap"))
    with contextlib.ExitStack() as stack:

        def start(*command: str) -> None:
            stack.enter_context(running([[*command, *use, "-f"]], folder))

        start("ceph-mon", "-i", "a", "--public-addr", f"127.0.0.1:{mon}")
        osd = str(uuid.uuid4())
        call("ceph", *use, "--connect-timeout", "30", "osd", "new", osd)
        call("ceph-osd", *use, "-i", "0", "--mkfs", "--osd-uuid", osd)
        start("ceph-osd", "-i", "0")
        time.sleep(3)
        user = ["--uid", "needle", "--display-name", "needle"]
        keys = ["--access-key", "test:tester", "--secret-key", "testing"]
        call("radosgw-admin", *use, "-n", "client.rgw.needle", "user", "create", *user, *keys)
        start("radosgw", "-n", "client.rgw.needle")
        wait_for_answer(f"http://127.0.0.1:{front}/", folder, 120)
        yield f"http://127.0.0.1:{front}"
