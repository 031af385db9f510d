"""Run the GPU ladders (apps/bench/cuda_ladder) on the emulator; every step equals the first."""

import subprocess
from pathlib import Path

import pytest

BUILD = Path(__file__).parent.parent.parent / "build"


@pytest.mark.parametrize("name", ["gemm", "conv"])
def test_the_steps_agree(name: str) -> None:
    programs = sorted(
        BUILD.glob(f"**/{name}_ladder_emulated"), key=lambda path: path.stat().st_mtime
    )
    if not programs:
        pytest.skip("not built: CMake target cuda_on_cpu")
    done = subprocess.run([programs[-1], "check"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
