"""Check what a release requires: one version everywhere, workflows that call existing commands."""

import re
from pathlib import Path
from typing import Any

import pytest

import needle

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_the_version_is_one_and_the_changelog_knows_it() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'input = "python/needle/__init__.py"' in project  # the version is stored only there
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased" and {*headings[1:]} <= {needle.__version__, *headings[2:]}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_well_formed_and_calls_what_there_is(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    # YAML 1.1 reads "on" as true.
    assert {"name", True, "permissions", "jobs"} == set(workflow) - {"env"}
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] and job["runs-on"]
        for action in [step["uses"] for step in job["steps"] if "uses" in step]:
            assert re.search("@[0-9a-f]{40}$", action), f"{path.name}: {action} is not pinned"
        commands = [step["run"] for step in job["steps"] if "run" in step]
        for target in re.findall(r"\bmake ([a-z-]+)", "\n".join(commands)):
            assert target in targets, f"{path.name}: make {target}"
        for file in re.findall(r"(?:\.ci|tools)/\w+(?:\.\w+)?", "\n".join(commands)):
            assert (ROOT / file).exists(), f"{path.name}: {file}"
