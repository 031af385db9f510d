"""Run random sequences of operations: take batches, kill workers, abandon loops, move states.

All examples use the same loaders, so leftovers of one example show in the next.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, ClassVar
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from proc import children

from needle import data
from needle.data.workers import launch

from .programs import linux
from .sets import Numbers
from .test_same_batches import plain

pytestmark = linux

LENGTH, SIZE = 50, 3
BATCHES = -(-LENGTH // SIZE)


def make(**options: Any) -> data.DataLoader:
    transforms = [lambda x: x + data.random_source.random_source().randint(1000)]
    return data.DataLoader(Numbers(LENGTH), SIZE, True, seed=9, transforms=transforms, **options)


class Epochs(RuleBasedStateMachine):
    """One epoch is under way; ``seen`` holds the positions of the batches it has delivered."""

    loaders: ClassVar[list[data.DataLoader]]
    whole: ClassVar[dict[int, list[Any]]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.loader = self.loaders[0]
        self.loader.set_epoch(0)
        self.epoch, self.seen = 0, set()
        self.batches = iter(self.loader)

    @rule(count=st.integers(1, 7))
    def deliver(self, count: int) -> None:
        for _ in range(count):
            batch = next(self.batches, None)
            if batch is None:
                assert len(self.seen) == BATCHES, "the epoch has ended early"
                self.begin(self.epoch + 1)
                return
            place = self.expected().index(plain(batch))
            assert place == len(self.seen)
            self.seen.add(place)

    @rule(which=st.integers(0, 9), number=st.sampled_from([signal.SIGKILL, signal.SIGSEGV]))
    def kill(self, which: int, number: int) -> None:
        pids = self.pids()
        if pids:
            with suppress(ProcessLookupError):  # the process may just have been reaped
                os.kill(pids[which % len(pids)], number)

    @rule()
    def kill_all(self) -> None:
        """Kill the workers and the supervisor."""
        for pid in children():
            if self.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    @rule()
    def break_off(self) -> None:
        self.begin(self.epoch + 1)

    @rule(which=st.integers(0, 9))
    def go_on_with(self, which: int) -> None:
        state = json.loads(json.dumps(self.loader.state_dict()))
        self.loader = self.loaders[which % len(self.loaders)]
        self.loader.load_state_dict(state)
        self.batches = iter(self.loader)

    @precondition(lambda self: len(self.seen) < BATCHES)
    @rule()
    def another_iterator(self) -> None:
        """Start a second loop, which takes over the workers; then the first loop continues."""
        other = iter(self.loader)
        place = self.expected(self.epoch + 1).index(plain(next(other)))
        assert place == 0
        del other
        self.deliver(1)
        self.begin(self.epoch + 2)

    @rule()
    def close(self) -> None:
        self.loader.close()

    def begin(self, epoch: int) -> None:
        self.epoch, self.seen = epoch, set()
        self.loader.set_epoch(epoch)
        self.batches = iter(self.loader)

    def expected(self, epoch: int | None = None) -> list[Any]:
        number = self.epoch if epoch is None else epoch
        if number not in self.whole:
            alone = make()
            alone.set_epoch(number)
            self.whole[number] = [plain(batch) for batch in alone]
        return self.whole[number]

    def pids(self) -> list[int]:
        engine = self.loader._engine.engine
        if engine is None or self.loader.engine != "processes":
            return []
        return engine.process_ids()


def spawning() -> data.DataLoader:
    """Return a loader that spawns its workers as new interpreters, as on macOS."""
    with mock.patch.object(launch, "START_METHOD", "spawn"):
        return make(num_workers=2)


@pytest.fixture(scope="module")
def loaders() -> Iterator[None]:
    """Return loaders with processes of both start methods, with threads and without workers."""
    with ExitStack() as stack:
        Epochs.loaders = [
            stack.enter_context(loader)
            for loader in (
                make(num_workers=3),
                spawning(),
                make(num_workers=2, engine="threads"),
                make(),
            )
        ]
        yield


@pytest.mark.parametrize(
    ("examples", "steps"), [(5, 12), pytest.param(300, 40, marks=pytest.mark.soak)]
)
def test_every_batch_comes_once_whatever_happens(loaders, examples: int, steps: int) -> None:
    """Every batch comes exactly once per epoch, with the right bytes."""
    run_state_machine_as_test(
        Epochs,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
