"""Data sets in an object store or on a web server, read by concurrent requests.

fsspec, s3fs and aiohttp (an extra, imported at the first request) implement the protocols. The
modules here check and retry requests, cache objects on disk, turn them into samples, and upload
data sets.
"""

from .object_cache import ObjectCache
from .remote_images import RemoteImageFolder
from .remote_packed import RemotePacked, open_remote
from .retry import Retry
from .uploading import upload

__all__ = [
    "ObjectCache",
    "RemoteImageFolder",
    "RemotePacked",
    "Retry",
    "open_remote",
    "upload",
]
