"""RemoteImageFolder: one object per image, fetched by concurrent requests for each batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.datasets.arrays import to_chw
from ..data.datasets.dataset import ItemTransform
from ..data.datasets.image_folder import ImageFolder
from ..data.datasets.indexing import Indices, check_index
from ..data.formats.decoding import EXTENSIONS, MAX_PIXELS
from ..data.samples.pytree import tag_sample
from ..data.samples.ticket import check_indices
from ..errors import DataError
from .catalogue import Catalogue, read_catalogue
from .object_cache import ObjectCache
from .retry import Retry
from .store import Store, store_at


class RemoteImageFolder(ImageFolder):
    """Images at ``s3://bucket/prefix`` or ``http(s)://host/path``, laid out as for ``ImageFolder``.

    Items, options and order are those of ImageFolder. If ``upload`` wrote an index, the order and
    classes are those of the uploaded data set; a web server needs the index. A loader fetches the
    images of a slice together, unless the data set has its own transforms, so give transforms to
    the loader. cache: the local cache of objects. retry: attempts, timeouts and concurrent
    requests. catalogue: the result of ``read_catalogue``, if it has already been read. Credentials
    come only from the usual environment variables and files.

    It pickles without its client; each process makes one at its first request. Raises DataError for
    an address without images and for an object that is missing, corrupt or changed, StoreError if
    the store is unreachable or refuses the request, ImportError if the extra ``remote`` is not
    installed.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Store,
        extensions: Sequence[str] = EXTENSIONS,
        transforms: Sequence[ItemTransform] | None = None,
        *,
        layout: str = "CHW",
        dtype: str = "float32",
        mode: str = "RGB",
        scaled_decode: bool = False,
        max_pixels: int = MAX_PIXELS,
        oriented: bool = True,
        cache: ObjectCache | None = None,
        retry: Retry | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        self._set_options(transforms, layout, dtype, mode, scaled_decode, max_pixels, oriented)
        self.store, self.cache = store_at(url, retry), cache or ObjectCache()
        self.catalogue = catalogue or read_catalogue(self.store, extensions)
        if self.catalogue.kind != "images" or self.catalogue.classes is None:
            raise DataError(
                f"RemoteImageFolder: {self.store.url} must have one object per image, "
                "got packed files; open it with RemotePacked or open_remote"
            )
        self.classes = self.catalogue.classes
        self.paths, self.labels = self.catalogue.names, self.catalogue.numbers

    def fetch(self, indices: Indices) -> tuple[Any, npt.NDArray[np.int64]] | None:
        """Return the images and labels of these samples, with a list of images if sizes differ."""
        if self.transforms:
            return None
        places = check_indices(type(self).__name__, indices, len(self))
        images = []
        for place, content in zip(places.tolist(), self._contents(places.tolist())):
            try:
                image = self._pixels(place, content)
            except Exception as error:
                tag_sample(error, place)
                raise
            images.append(to_chw(image) if self.layout == "CHW" else image)
        same = len({image.shape for image in images}) == 1
        return (np.stack(images) if same else images), self.labels[places]

    def path(self, index: int) -> Any:
        """Return the address of the object."""
        return self._file(check_index(type(self).__name__, index, len(self)))

    def _file(self, place: int) -> str:
        return self.store.url + self.paths[place]

    def _contents(self, places: Sequence[int]) -> list[bytes]:
        """Return the bytes of the objects, from the cache or by concurrent requests."""
        keys = [self.catalogue.key(self.store.url, place) for place in places]
        kept = [self.cache.read(key) for key in keys]
        missing = [i for i, content in enumerate(kept) if content is None]
        asked = [self.catalogue.wanted(places[i], sample=places[i]) for i in missing]
        got = dict(zip(missing, self.store.get(asked)))
        for i, content in got.items():
            self.cache.write(keys[i], content)
        return [got[i] if content is None else content for i, content in enumerate(kept)]
