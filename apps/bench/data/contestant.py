"""The process in which one case runs: opens it, then runs it when told to.

Started by harness.py as ``python -m apps.bench.data.contestant MODULE STUDY CASE SETTINGS``, where
MODULE holds the benchmark's ``STUDIES`` and ``Settings``. Lines come in on standard input ("run",
"witness", "close"), each is answered by a line of JSON on standard output; whatever libraries print
goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable

from .case import Numbers


def main(arguments: list[str]) -> int:
    """Serves one case until told to close, or until the harness is gone."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module, study, name, text = arguments
    studies = importlib.import_module(module)
    settings = studies.Settings.from_json(text)

    def answer(measure: Callable[[], Numbers]) -> bool:
        try:
            reply: dict[str, object] = {"numbers": measure()}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=answers, flush=True)
        return "error" not in reply

    case = next(case for case in studies.STUDIES[study].cases(settings) if case.name == name)
    opened = []

    def opening() -> Numbers:
        for module in case.needs:  # before any clock starts
            importlib.import_module(module)
        opened.append(case.open(settings))
        return opened[0].first

    if not answer(opening):
        return 1
    subject = opened[0]
    for line in sys.stdin:
        command = line.strip()
        if command == "close":
            break
        answer(lambda: subject.run(command == "witness"))  # noqa: B023 - called at once
    subject.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
