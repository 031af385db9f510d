"""Data sets in an object store or on a web server, read by several requests at once.

fsspec, s3fs and aiohttp (an extra) speak the protocols; here is what is checked, tried again,
kept on this machine's disk, and made into samples. Nothing is imported before it is used.
"""

from .object_cache import ObjectCache
from .opening import open_remote
from .remote_images import RemoteImageFolder
from .remote_packed import RemotePacked
from .retry import Patience
from .uploading import upload

__all__ = [
    "ObjectCache",
    "Patience",
    "RemoteImageFolder",
    "RemotePacked",
    "open_remote",
    "upload",
]
