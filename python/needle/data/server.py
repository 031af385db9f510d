"""Alias of ``needle.data.sharing``: ``python -m needle.data.server`` starts or queries a server."""

from .sharing import Draw, GlobalDataLoader, Options, Planner, SampleCache, Server, policies
from .sharing.__main__ import main

__all__ = ["Draw", "GlobalDataLoader", "Options", "Planner", "SampleCache", "Server", "policies"]

if __name__ == "__main__":
    main()
