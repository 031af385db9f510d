"""Predicates of ``folding`` and ``fusion`` on a value, its layout and the calls that use it."""

from __future__ import annotations

from collections.abc import Iterator

from ...backends.base import View
from ..calls import Call
from ..recorded import Recording


def is_binary(call: Call, name: str) -> bool:
    """Return True for an elementwise call of ``name``, such as "add"."""
    return call.name == "binary" and call.args[0] == name


def only_users(recording: Recording, view: View) -> list[Call]:
    """Return the call that writes a temporary and the only call that reads it, or no calls."""
    slot = view.handle
    users = [call for call in recording.calls() if any(v.handle is slot for v, _ in call.views())]
    if len(users) != 2 or not slot.temporary:
        return []
    made, user = users
    return users if slot not in made.reads and slot not in user.writes else []


def alike(a: View, b: View) -> bool:
    """Return True if two views have equal shapes and strides."""
    return a.shape == b.shape and list(_axes(a)) == list(_axes(b))


def is_whole(value: View, result: View) -> bool:
    """Return True if ``value`` has all elements of ``result``, possibly with permuted axes."""
    return sorted(_axes(value)) == sorted(_axes(result)) and value.offset == result.offset


def placed(like: View, at: View) -> View:
    """Return a view with the layout of ``like`` on the buffer of ``at``, from its first element."""
    return like._replace(handle=at.handle, offset=at.offset)


def _axes(view: View) -> Iterator[tuple[int, int]]:
    """Yield (length, stride) of the axes with more than one element."""
    return ((n, s) for n, s in zip(view.shape, view.strides) if n > 1)
