"""The process of one case: it opens the case and runs it on request.

turns.py starts it as ``python -m apps.bench.harness.contestant STUDY CASE SETTINGS``. Lines on
standard input ("run", "close") are each answered by a line of JSON on standard output;
output of libraries goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable

from .case import Numbers, Subject
from .settings import Settings


def main(arguments: list[str]) -> int:
    """Serve one case until told to close or until the harness ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    study, name, text = arguments
    settings = Settings.from_json(text)
    studies = importlib.import_module(settings.studies).STUDIES

    def answer(measure: Callable[[], Numbers]) -> bool:
        try:
            reply: dict[str, object] = {"numbers": measure()}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=answers, flush=True)
        return "error" not in reply

    case = next(case for case in studies[study].cases(settings) if case.name == name)
    opened: list[Subject] = []

    def opening() -> Numbers:
        for module in case.needs:  # imports must not count in the times
            importlib.import_module(module)
        opened.append(case.open(settings))
        return {}

    if not answer(opening):
        return 1
    subject = opened[0]
    for line in sys.stdin:
        if line.strip() == "close":
            break
        answer(subject.run)
    subject.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
