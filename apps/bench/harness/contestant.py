"""The process of one case: the code that controls it, and the code that runs in it."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection

from .case import Case, Numbers, Subject
from .settings import Settings


class ContestantError(Exception):
    """A contestant failed, died or did not answer."""


class Contestant:
    """The harness's handle on a case's process, which is the leader of its own session."""

    def __init__(self, study: str, case: Case, settings: Settings) -> None:
        self.case = case
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=serve, args=(theirs, study, case.name, settings))
        with _variables(case.environment):
            self.process.start()
        theirs.close()  # so that reading fails once the process has ended
        try:
            self._answer()
        except ContestantError:
            self.kill()
            raise

    def run(self) -> Numbers:
        """Do one timed run."""
        with contextlib.suppress(OSError):  # _answer reports a process that has ended
            self.pipe.send("run")
        return self._answer()

    def close(self) -> None:
        """Ask the process to end, then kill what is left of it."""
        self.pipe.close()
        self.process.join(10)
        self.kill()

    def kill(self) -> None:
        """Kill all processes of its session."""
        self.process.kill()
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.join()

    def _answer(self) -> Numbers:
        if not self.pipe.poll(self.case.timeout):
            raise ContestantError(f"no answer within {self.case.timeout:.0f} s")
        try:
            reply: Numbers | str = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise ContestantError(f"ended with status {self.process.exitcode}") from None
        if isinstance(reply, str):
            raise ContestantError(reply)
        return reply


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, which a process that starts inside the context inherits."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def serve(pipe: Connection, study: str, name: str, settings: Settings) -> None:
    """Open a case and run it once for each message; answer with the result or an error's text."""
    os.setsid()
    subjects: list[Subject] = []

    def opening() -> Numbers:
        cases = importlib.import_module(settings.studies).STUDIES[study].cases(settings)
        case = next(case for case in cases if case.name == name)
        for module in case.needs:  # so that imports are not timed
            importlib.import_module(module)
        subjects.append(case.open(settings))
        return {}

    def answer(measure: Callable[[], Numbers]) -> None:
        try:
            pipe.send(measure())
        except Exception as error:
            traceback.print_exc()
            pipe.send(f"{type(error).__name__}: {error}")

    answer(opening)
    with contextlib.suppress(EOFError):  # the harness has closed its end
        while subjects and pipe.recv():
            answer(subjects[0].run)
    for subject in subjects:
        subject.close()
