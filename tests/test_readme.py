"""Check README.md: its example prints what the page shows, and its commands exist."""

import re
from pathlib import Path

import pytest

from tests.programs import python

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = "\n".join(re.findall(r"```sh\n(.*?)```", README, re.DOTALL))


def run(*arguments: str, folder: Path = ROOT) -> str:
    """Run Python with these arguments in ``folder``, and return its output."""
    return python(*arguments, cwd=folder, MPLBACKEND="Agg").stdout


def test_the_example_has_twenty_lines_trains_and_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    statements = [line for line in example.splitlines() if line and "import " not in line]
    assert len(statements) <= 20
    (shown,) = re.findall(r"```text\ntest accuracy ([\d.]+)%\n```", README)
    found = re.fullmatch(r"test accuracy ([\d.]+)%\n", run("-c", example, folder=tmp_path))
    # Instruction sets round differently, which may change the class of a few of the 300 digits.
    assert found and abs(float(found[1]) - float(shown)) <= 1.5
    assert [path.name for path in tmp_path.iterdir()] == ["losses.png"]


def test_the_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {*re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)}
    named = {*re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)", README, re.MULTILINE)}
    assert named and {a or b for a, b in named} <= targets


def test_the_programs_exist_and_know_the_options() -> None:
    for module in re.findall(r"python -m ([\w.]+)", README.replace("docs.pictures", "")):
        assert "usage:" in run("-m", module, "--help")
    assert (ROOT / "docs" / "pictures" / "__main__.py").exists()
    options = run("apps/train.py", "--help")
    for arguments in re.findall(r'ARGS="(.*)"', COMMANDS):
        assert all(option in options for option in re.findall(r"--\w+", arguments))
        assert re.search(r"--recipe ([\w-]+)", arguments)[1] in options  # type: ignore[index]


def test_the_first_command_prints_the_default_device() -> None:
    command = re.search(r'python -c "(.*)"\s+# (.*)', COMMANDS)
    assert command and run("-c", command[1]).strip() == command[2]


def test_the_first_page_of_the_site_gives_the_same_times() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    found = re.search(r"step of (\S+) takes (\S+ ms),.* form (\S+ ms)", index)
    assert found and f"| {found[1]} | {found[2]} | {found[3]} |" in README
