"""Registers the example backend on Python's ``array`` as ``lists``, without installing it."""

from examples.backend_lists.needle_lists.backend import ListsBackend
from needle.backends import register

register("lists", ListsBackend)
