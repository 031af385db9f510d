"""nvcc compiles src/cuda for every target, and the module reports why it has no GPU."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda_on_cpu import resources

ROOT = Path(__file__).parent.parent.parent
TARGETS = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90"}
FOUND = list(resources.kernels())
MODULES = sorted((ROOT / "build").glob("**/cuda/ndarray_backend_cuda.*"))

pytestmark = pytest.mark.skipif(
    not FOUND or not shutil.which("nvcc"),
    reason="not compiled here: no nvcc, or the digest is of these sources",
)


@pytest.mark.skipif(
    len({kernel.target for kernel in FOUND}) == 1, reason="compiled for this machine's GPU alone"
)
def test_every_file_is_compiled_for_every_target() -> None:
    files = {kernel.file for kernel in FOUND}
    assert {(kernel.file, kernel.target) for kernel in FOUND} >= {
        (file, target) for file in files for target in TARGETS
    }


def test_no_kernel_spills_registers() -> None:
    spilling = [kernel for kernel in FOUND if kernel.spilled]
    assert not spilling, f"make the tile or the loop smaller: {spilling}"


def test_products_of_a_warpgroup_do_not_wait_for_each_other() -> None:
    """ptxas reports where it had to insert waits between wgmma instructions."""
    waiting = [path.name for path in resources.reports() if "serialized" in path.read_text()]
    assert not waiting, f"their sums must not be accessed before wgmma_wait: {waiting}"


@pytest.mark.skipif(not MODULES, reason="the module was built for a GPU of this machine")
def test_the_module_can_be_imported_without_a_gpu() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(MODULES[0].parent)!r})\n"
        "import ndarray_backend_cuda as m; print(m.device_count(), m.why())\n"
        "from needle.backends import cuda\n"
        "try: cuda.backend_of_device(m, 0)\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "python"), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("0 ") and len(first) > 10
    assert second.startswith("cuda: no GPU can be used here (") and first[2:] in second
