"""Real object stores on loopback, each started for these tests alone: OpenStack Swift, Ceph.

Before each stands the fault-injecting proxy. A store that is not installed is skipped, and says
how to install it; make test-s3 installs Swift.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.bench.loopback_store import LoopbackStore

from .ceph import running_ceph
from .swift import running_swift

STORES = {"swift": running_swift, "ceph": running_ceph}
BUCKET = "needle"


@pytest.fixture(scope="session", params=sorted(STORES))
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a store that is running."""
    with STORES[request.param](tmp_path_factory.mktemp(request.param)) as endpoint:
        yield endpoint


@pytest.fixture
def proxy(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackStore]:
    """The proxy before it, which the environment leads S3's clients to; a bucket is there."""
    s3fs = pytest.importorskip("s3fs")
    with LoopbackStore(upstream=real) as found:
        for name, value in found.environment(tmp_path, "test:tester", "testing").items():
            monkeypatch.setenv(name, value)
        client = s3fs.S3FileSystem(skip_instance_cache=True)
        if not client.exists(BUCKET):
            client.mkdir(BUCKET)
        found.gets.clear()
        yield found
