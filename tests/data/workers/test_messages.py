"""Messages between the parent and a worker."""

from __future__ import annotations

import socket

import pytest

from needle.data.samples.timing import STAGES
from needle.data.workers.messages import _UP, DONE, AnswerReader


def test_a_message_too_large_for_the_memory_says_so_and_is_the_last() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(_UP.pack(DONE, 0, 0, 0, 1 << 61, *[0.0] * len(STAGES)) + b"body")
        inbox = AnswerReader(ours, "worker 0")
        with pytest.raises(MemoryError, match=r"message of .* TiB; take a smaller batch_size"):
            list(inbox.receive())
        assert inbox.ended
        assert list(inbox.receive()) == []
