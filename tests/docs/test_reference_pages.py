"""docs/command_lines.md and docs/environment.md agree with the programs and config.py.

``python -m tests.docs.test_reference_pages`` rewrites the table of environment variables.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from needle.config import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "docs" / "environment.md"
COMMANDS = (ROOT / "docs" / "command_lines.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## `(.+?)`\n(.*?)(?=^## |\Z)", COMMANDS, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("program", [name for name in SECTIONS if name != "make"])
def test_a_program_has_the_options_that_the_page_lists(program: str) -> None:
    command = program.removeprefix("python ").split()
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *command, "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    options = {*re.findall(r"^  (?:-\w, )?(--[\w-]+)", done.stdout, re.MULTILINE)} - {"--help"}
    assert {*re.findall(r"^\| `(--[\w-]+)", SECTIONS[program], re.MULTILINE)} == options
    commands = re.search(r"^  command\n(.*?)^$", done.stdout, re.DOTALL | re.MULTILINE)
    for name in re.findall(r"^    (\w+)", commands[1] if commands else "", re.MULTILINE):
        assert f"`{name}`" in SECTIONS[program]


def test_the_page_lists_every_target_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {*re.findall(r"^([a-z0-9-]+):.*  ## ", makefile, re.MULTILINE)}
    listed = {*re.findall(r"`([a-z0-9-]+)`", SECTIONS["make"])}
    assert targets - {"help"} <= listed


def environment_table() -> str:
    """Return the rows of docs/environment.md that config.py implies."""
    return "".join(
        f"| `{variable.name}` | {f'`{variable.default}`' if variable.default else ''} | "
        f"{variable.meaning} |\n"
        for variable in VARIABLES
    )


def test_every_environment_variable_is_listed_as_the_code_has_it() -> None:
    assert environment_table() in ENVIRONMENT.read_text(encoding="utf-8"), (
        "run python -m tests.docs.test_reference_pages, which writes the table"
    )


if __name__ == "__main__":
    page = ENVIRONMENT.read_text(encoding="utf-8")
    head, _, rest = page.partition("|---|---|---|\n")
    ENVIRONMENT.write_text(
        head + "|---|---|---|\n" + environment_table() + "\n" + rest.partition("\n\n")[2],
        encoding="utf-8",
    )
