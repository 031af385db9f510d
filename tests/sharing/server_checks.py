"""Starts servers for tests, in a thread or a process, with sockets in a temporary folder."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from forks import Forked
from proc import becomes

from needle import data
from needle.sharing import GlobalDataLoader, Server, ServerOptions
from needle.sharing.wire.address import connect

QUICK = ServerOptions(workers=0)


def arrays(batch: Any) -> list[Any]:
    """Return the fields of a batch as NumPy arrays."""
    return [field.numpy() if hasattr(field, "numpy") else field for field in batch]


def by_index(batches: Any) -> dict[int, Any]:
    """Return the image of each label (the sample's index); every label must occur once."""
    found: dict[int, Any] = {}
    for images, labels in map(arrays, batches):
        for image, label in zip(images, labels.tolist()):
            assert label not in found, f"sample {label} came twice"
            found[label] = image
    return found


def as_data_loader(dataset: Any, seed: int, epoch: int, **options: Any) -> dict[int, Any]:
    """Return every sample of this epoch as DataLoader prepares it, by index."""
    loader = data.DataLoader(dataset, 16, seed=seed, **options)
    loader.set_epoch(epoch)
    return by_index(loader)


def assert_same(found: dict[int, Any], wanted: dict[int, Any], indices: Any) -> None:
    """Assert that exactly the samples of ``indices`` are there, bitwise equal to ``wanted``."""
    assert sorted(found) == sorted(indices)
    for index, image in found.items():
        assert image.dtype == wanted[index].dtype
        np.testing.assert_array_equal(image, wanted[index], err_msg=f"sample {index}")


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a private folder with a short name; files that the test leaves there are an error."""
    with tempfile.TemporaryDirectory(prefix="nl", dir="/tmp") as name:
        yield Path(name)
        assert becomes(lambda: not list(Path(name).rglob("*.sock"))), "a socket is left"
        assert not list(Path(name).rglob("*.lock")), "a lock is left"


@contextmanager
def served(dataset: Any, options: ServerOptions = QUICK) -> Iterator[Path]:
    """Run a server in a thread; yield its socket."""
    with folder() as place:
        server = Server(dataset, place / "s.sock", options)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield place / "s.sock"
        finally:
            server.stop()
            thread.join(30)
            assert not thread.is_alive()


@contextmanager
def server_process(path: Path, dataset: str, **options: Any) -> Iterator[Forked]:
    """Yield a server of a named data set in its own process, listening and without workers."""
    server = Forked(do="serve", path=str(path), dataset=dataset, options={"workers": 0, **options})

    def listens() -> bool:
        channel = connect(path) if path.exists() else None
        if channel is not None:
            channel.close()
        return channel is not None or not server.is_alive()

    try:
        assert becomes(listens, 200) and server.is_alive()
        yield server
    finally:
        server.end()


def loader(source: Any, **options: Any) -> GlobalDataLoader:
    """Return a loader, by default with batches of 8."""
    return GlobalDataLoader(source, **{"batch_size": 8, "seed": 1, "timeout": 100, **options})
