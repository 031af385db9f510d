"""The device "lists"; ``needle.device`` finds it through the entry point in pyproject.toml."""

from .backend import ListsBackend


def load() -> ListsBackend:
    """Return the backend; called once, when the device is first used."""
    return ListsBackend()
