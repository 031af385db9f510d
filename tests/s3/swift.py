"""OpenStack Swift with its S3 interface, from PyPI: rings, configuration, four servers."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import free_ports, running, wait_for_answer

KINDS = ("account", "container", "object")
HASH = "[swift-hash]\nswift_hash_path_prefix = needle\nswift_hash_path_suffix = needle\n"
SERVER = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
devices = {folder}/devices
mount_check = false
swift_dir = {folder}
fallocate_reserve = 0
log_level = WARNING
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
PROXY = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
swift_dir = {folder}
log_level = WARNING
[pipeline:main]
pipeline = {pipeline}
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true
[filter:s3api]
use = egg:swift#s3api
s3_acl = false
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:proxy-logging]
use = egg:swift#proxy_logging
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""
PIPELINE = (
    "catch_errors proxy-logging cache listing_formats s3api tempauth slo dlo proxy-logging "
    "proxy-server"
)
# swift.conf is read from /etc/swift, where tests write nothing.
START = """
import sys
import swift.common.utils as utils
from swift.common.wsgi import run_wsgi
utils.SWIFT_CONF_FILE = sys.argv[1] + "/swift.conf"
kind = sys.argv[2]
sys.exit(run_wsgi(f"{sys.argv[1]}/{kind}.conf", f"{kind}-server"))
"""


@contextlib.contextmanager
def running_swift(folder: Path) -> Iterator[str]:
    """Its address; user test:tester, key testing."""
    if importlib.util.find_spec("swift") is None:
        pytest.skip("OpenStack Swift is not installed: make test-s3 does so")
    (folder / "devices" / "d1").mkdir(parents=True)
    (folder / "swift.conf").write_text(HASH)
    *ports, front = free_ports(4)
    builder = [sys.executable, "-m", "swift.cli.ringbuilder"]
    for kind, port in zip(KINDS, ports):
        (folder / f"{kind}.conf").write_text(SERVER.format(kind=kind, port=port, folder=folder))
        ring = [*builder, f"{kind}.builder"]
        device = ["--region", "1", "--zone", "1", "--ip", "127.0.0.1", "--port", str(port)]
        for step in (
            ["create", "4", "1", "1"],
            ["add", *device, "--device", "d1", "--weight", "1"],
            ["rebalance"],
        ):
            subprocess.run([*ring, *step], cwd=folder, check=True, capture_output=True)
    (folder / "proxy.conf").write_text(PROXY.format(port=front, folder=folder, pipeline=PIPELINE))
    (folder / "start.py").write_text(START)
    start = [sys.executable, str(folder / "start.py"), str(folder)]
    with running([[*start, kind] for kind in (*KINDS, "proxy")], folder):
        wait_for_answer(f"http://127.0.0.1:{front}/", folder)
        yield f"http://127.0.0.1:{front}"
