"""open_remote: whichever data set an address has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..datasets.dataset import Dataset, Transform
from .catalogue import read_catalogue
from .object_cache import ObjectCache
from .remote_images import RemoteImageFolder
from .remote_packed import RemotePacked
from .retry import Patience
from .store import Store


def open_remote(
    url: str | os.PathLike[str],
    transforms: Sequence[Transform] | None = None,
    *,
    cache: ObjectCache | None = None,
    patience: Patience | None = None,
    **images: Any,
) -> Dataset:
    """RemotePacked if packed files are there, else RemoteImageFolder, which ``images`` are for."""
    store = Store(url, patience)
    catalogue = read_catalogue(store)
    if catalogue.kind == "packed":
        return RemotePacked(store, transforms, cache=cache, catalogue=catalogue)
    return RemoteImageFolder(
        store, transforms=transforms, cache=cache, catalogue=catalogue, **images
    )
