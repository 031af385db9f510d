"""OpenStack Swift with its S3 interface, from PyPI: its configuration and its process."""

import contextlib
import importlib.util
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
PROGRAM = Path(__file__).with_name("swift_process.py")


@contextlib.contextmanager
def running_swift(folder: Path) -> Iterator[str]:
    """Yield the address of a running store; user test:tester, key testing."""
    if importlib.util.find_spec("swift") is None:
        pytest.skip("OpenStack Swift is not installed: pip install 'needle[stores]'")
    (folder / "devices" / "d1").mkdir(parents=True)
    (folder / "swift.conf").write_text(HASH)
    *ports, front = free_ports(4)
    for kind, port in zip(KINDS, ports):
        (folder / f"{kind}.conf").write_text(SERVER.format(kind=kind, port=port, folder=folder))
    (folder / "proxy.conf").write_text(PROXY.format(port=front, folder=folder, pipeline=PIPELINE))
    with running([sys.executable, "-I", str(PROGRAM), str(folder), *map(str, ports)], folder):
        wait_for_answer(f"http://127.0.0.1:{front}/", folder)
        yield f"http://127.0.0.1:{front}"
