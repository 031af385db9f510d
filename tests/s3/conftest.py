"""Real object stores on loopback, started for these tests: OpenStack Swift and Ceph.

The fault-injecting proxy stands before each of them. A store that is not installed is skipped with
a hint how to install it. make test-all installs Swift; Ceph is a package of Debian.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.loopback_store import LoopbackStore

from .ceph import running_ceph
from .swift import running_swift

s3fs = pytest.importorskip("s3fs")
STORES = {"swift": running_swift, "ceph": running_ceph}
BUCKET, KEY, SECRET, REGION = "needle", "test:tester", "testing", "us-east-1"


# Ends with the module, because other tests count this process's children.
@pytest.fixture(scope="module", params=["swift", pytest.param("ceph", marks=pytest.mark.s3)])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a running store with an empty bucket."""
    with STORES[request.param](tmp_path_factory.mktemp(request.param)) as endpoint:
        who = {"key": KEY, "secret": SECRET, "endpoint_url": endpoint}
        # In client_kwargs it would also be the bucket's location, and Ceph knows none.
        region = {"region_name": REGION}
        s3fs.S3FileSystem(**who, config_kwargs=region, skip_instance_cache=True).mkdir(BUCKET)
        yield endpoint


@pytest.fixture
def proxy(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackStore]:
    """Yield the proxy before the store; the environment directs S3 clients to it."""
    with LoopbackStore(upstream=real) as found:
        for name, value in found.environment(tmp_path, KEY, SECRET).items():
            monkeypatch.setenv(name, value)
        yield found
