"""The device lists: ``needle.device("lists")`` finds it by the entry point in pyproject.toml."""

from .backend import ListsBackend


def load() -> ListsBackend:
    """The backend; called once, when the device is first asked for."""
    return ListsBackend()
