"""The benchmark of GPUs runs, here on the emulated one, and writes its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.bench.cuda import __main__ as bench
from needle.backend_selection import BACKEND
from tests.cuda_on_cpu import emulated

pytestmark = pytest.mark.skipif(BACKEND == "np", reason="plain NumPy arrays have no backends")


@pytest.mark.skipif(emulated.module is None, reason="not built: CMake target cuda_on_cpu")
def test_pieces_are_timed_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "has_torch", lambda: False)
    asked = ["--quick", "--device", emulated.NAME, "--work", "relu,product,mirror", "--out"]
    assert bench.main([*asked, str(tmp_path)]) == 0
    rows = (tmp_path / "RESULTS.md").read_text(encoding="utf-8").splitlines()[6:]
    assert len(rows) == 4 and all(row.split("|")[2].strip() != "–" for row in rows)


def test_without_a_gpu_it_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    if bench.needle.cuda().enabled():
        pytest.skip("there is a GPU")
    assert bench.main([]) == 1
    assert capsys.readouterr().out.startswith("needle: cuda: ")
