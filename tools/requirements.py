"""Print what pip must install for some extras of pyproject.toml, without needle itself.

``--oldest`` prints the oldest admitted version of each package.

Called by the Makefile, which does not install needle but imports it from python/, so that edits
take effect at once.
"""

import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:  # pip, which the venv module installs, vendors a TOML reader for Python 3.10
    from pip._vendor import tomli as tomllib


def requirements(project: dict, extras: list[str]) -> list[str]:
    """Return the requirements of needle and of ``extras``, with ``needle[a,b]`` expanded."""
    found: list[str] = list(project["dependencies"])
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            own = re.fullmatch(r"needle\[(.*)\]", line)
            found += requirements(project, own[1].split(",")) if own else [line]
    return list(dict.fromkeys(found))


def oldest(line: str) -> str:
    """Return a requirement that admits its oldest version only; one without a bound is kept."""
    return re.sub(r">=([\w.]+)", r"==\1", line, count=1)


if __name__ == "__main__":
    source = Path(__file__).resolve().parents[1] / "pyproject.toml"
    table = tomllib.loads(source.read_text(encoding="utf-8"))
    extras = [word for word in sys.argv[1:] if word != "--oldest"]
    found = requirements(table["project"], extras)
    print("\n".join(map(oldest, found) if "--oldest" in sys.argv else found))
