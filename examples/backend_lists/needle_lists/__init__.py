"""The device lists: ``needle.device("lists")`` finds it by the entry point in pyproject.toml."""

from .backend import ListsBackend


def load() -> ListsBackend:
    """Return the backend; called once, at the first use of the device."""
    return ListsBackend()
