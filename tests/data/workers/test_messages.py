"""Messages between the parent and a worker."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np
import pytest

from needle.data.samples.pytree import Slice, describe
from needle.data.samples.timing import STAGES
from needle.data.workers import messages
from needle.data.workers.messages import _UP, DONE, AnswerReader, send_up
from needle.data.workers.pickling import pack_value


def test_a_message_too_large_for_the_memory_says_so_and_is_the_last() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(_UP.pack(DONE, 0, 0, 0, 1 << 61, *[0.0] * len(STAGES)) + b"body")
        inbox = AnswerReader(ours, "worker 0")
        with pytest.raises(MemoryError, match=r"message of .* TiB; take a smaller batch_size"):
            list(inbox.receive())
        assert inbox.ended
        assert list(inbox.receive()) == []


@pytest.mark.parametrize("failures", [1, 2])
def test_a_structure_is_unpacked_again_after_a_failure(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker does not resend it, so an exception in a signal handler must not lose it."""
    unpack, left = messages.unpack_value, failures

    def interrupted(payload: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            raise TimeoutError("of a signal handler")
        return unpack(payload)

    monkeypatch.setattr(messages, "unpack_value", interrupted)
    structure, leaf = describe((np.float32(1), 2)), np.arange(3)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_up(theirs, DONE, payload=pack_value((structure, [leaf, leaf], (True, True), 0)))
        for _ in range(2):
            send_up(theirs, DONE, samples=3)
        theirs.close()
        answers = [answer for *_, answer in AnswerReader(ours, "worker 0").receive()]
    assert [a.error is not None for a in answers] == [True, failures == 2, False]
    for answer in answers[failures:]:
        assert answer.made == Slice(structure, [None, None], 3, (True, True))
