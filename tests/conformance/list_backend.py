"""The example backend on Python's arrays, registered as ``lists`` without being installed."""

from examples.backend_lists.needle_lists.backend import ListsBackend
from needle.backends import register

register("lists", ListsBackend)
