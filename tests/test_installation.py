"""Test ``python -m needle``: it runs the programs of apps/ and prints facts for a bug report."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import needle
from needle.__main__ import programs
from needle.testing import installation
from tests.programs import python

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``python -m needle`` with this tree's needle and without its ``apps``."""
    path = str(ROOT / "python")
    return python("-m", "needle", *arguments, cwd=cwd, check=False, PYTHONPATH=path)


def test_every_program_runs_from_any_folder(tmp_path: Path) -> None:
    assert {"course", "plot", "predict", "profile_layers", "train", "upload"} <= {*programs()}
    for name in ("train", "course"):
        own = python("-m", f"apps.{name}", "--help", cwd=ROOT)
        assert own.returncode == 0
        assert run(name, "--help", cwd=tmp_path).stdout == own.stdout


def test_exit_status_and_arguments_are_those_of_the_program(tmp_path: Path) -> None:
    found = run("train", "--epochs", "none", cwd=tmp_path)
    assert found.returncode == 2 and "needle train: error: argument --epochs" in found.stderr


def test_help_lists_the_commands_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    listed = run(cwd=tmp_path)
    assert listed.returncode == 0
    for name, summary in programs().items():
        assert f"  {name:<16}{summary}\n" in listed.stdout and len(summary) > 10
    refused = run("trian", cwd=tmp_path)
    assert refused.returncode == 2
    assert "no command 'trian'; there are info, course" in refused.stderr


def test_facts_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEEDLE_DATA_DIR", "elsewhere")
    facts = installation.facts(needle.all_devices())
    assert facts["packages"]["numpy"] == np.__version__
    assert facts["environment"]["NEEDLE_DATA_DIR"] == "elsewhere"
    assert facts["default device"] == repr(needle.default_device())
    for device in needle.all_devices():
        state = facts["devices"][repr(device)]
        assert state.startswith("usable" if device.enabled() else "not usable: ")
    text = run("info", cwd=tmp_path).stdout
    assert text.startswith(f"needle: {needle.__version__}\n")
    assert f"  numpy: {np.__version__}\n" in text
