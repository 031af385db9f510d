"""The device "lists"; ``needle.device`` finds it through the entry point in pyproject.toml."""

from .backend import ListsBackend


def load() -> ListsBackend:
    """Return the backend; called once, at the first use of the device."""
    return ListsBackend()
