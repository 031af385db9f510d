"""A real object store on loopback, started for these tests: OpenStack Swift.

A proxy in front of it injects faults. If Swift is not installed, the tests are skipped with a hint;
make test-all installs it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.loopback_store import LoopbackStore

from .swift import running_swift

s3fs = pytest.importorskip("s3fs")
BUCKET, KEY, SECRET, REGION = "needle", "test:tester", "testing", "us-east-1"


# Ends with the module, because other tests count this process's children.
@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a running store with an empty bucket."""
    with running_swift(tmp_path_factory.mktemp("swift")) as endpoint:
        who = {"key": KEY, "secret": SECRET, "endpoint_url": endpoint}
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
