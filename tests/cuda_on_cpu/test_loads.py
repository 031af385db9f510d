"""Out-of-bounds loads give NaN when used, and a segmentation fault far outside any array.

Under the address sanitizer they are errors (``make sanitize`` runs this file too).
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cuda_on_cpu import emulated

faults: Any = emulated.compiled("cuda_faults")
if faults is None:
    pytest.skip("not built: CMake target cuda_on_cpu", allow_module_level=True)
ROOT = Path(__file__).parent.parent.parent
VALUES = [float(i) for i in range(64)]


def ended(kernel: str) -> subprocess.CompletedProcess[str]:
    """Run a kernel in its own process and return the completed process."""
    code = f"import {faults.__name__} as faults; faults.{kernel}({VALUES})"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def test_under_make_sanitize_the_modules_are_those_with_sanitizers() -> None:
    assert faults.under_address_sanitizer == ("libasan" in os.environ.get("LD_PRELOAD", ""))


@pytest.mark.parametrize(
    ("kernel", "place"),
    [("reads_behind_buffer", 63), ("reads_before_buffer", 0), ("reads_behind_shared", 63)],
)
def test_it_is_seen(kernel: str, place: int) -> None:
    if faults.under_address_sanitizer:
        done = ended(kernel)
        assert done.returncode != 0 and "AddressSanitizer: use-after-poison" in done.stderr
        assert kernel in done.stderr  # the report names the kernel
        return
    assert np.flatnonzero(np.isnan(getattr(faults, kernel)(VALUES))).tolist() == [place]


def test_one_far_away_ends_the_program() -> None:
    assert ended("reads_far_away").returncode != 0
