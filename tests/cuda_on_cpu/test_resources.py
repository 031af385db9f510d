"""nvcc compiles src/cuda for every target, and the module reports why it has no GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda_on_cpu import resources, sass

ROOT = Path(__file__).parent.parent.parent
TARGETS = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90"}
FOUND = resources.table()
MODULES = sorted((ROOT / "build").glob("**/cuda/ndarray_backend_cuda.*"))
SLACK = 8
"""Registers: their allocation changes with every edit."""

compiled = pytest.mark.skipif(
    not FOUND or not shutil.which("nvcc"),
    reason="not compiled here: no nvcc, or the table is of these sources",
)


ONE_TARGET = len({row.target for row in FOUND}) == 1


def test_a_family_is_named_whatever_the_path_of_its_file() -> None:
    """The hash a3f1b236 ends in digits, which must not be taken for the length of the next part."""
    mangled = "_ZN55_GLOBAL__N__a3f1b236_9_conv2d_cu_17de761513conv2d_kernelIfEEvv"
    assert resources._family(mangled) == "conv2d_kernel"


@compiled
@pytest.mark.skipif(ONE_TARGET, reason="compiled for the GPU of this machine alone")
def test_every_kernel_is_compiled_for_every_target() -> None:
    families = {row[:2] for row in FOUND}
    assert {row[:3] for row in FOUND} >= {(*f, target) for f in families for target in TARGETS}
    assert {row.file for row in FOUND} >= {row[0] for row in resources.kept()}


@compiled
def test_no_kernel_spills_registers() -> None:
    spilling = [row for row in FOUND if row.spilled]
    assert not spilling, f"make the tile or the loop smaller: {spilling}"


@compiled
def test_products_of_a_warpgroup_do_not_wait_for_each_other() -> None:
    """ptxas reports where it had to insert waits between them."""
    waiting = [path.name for path in resources.reports() if "serialized" in path.read_text()]
    assert not waiting, f"their sums must not be accessed before wgmma_wait: {waiting}"


@compiled
def test_registers_and_shared_memory_are_those_of_the_table() -> None:
    release = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout
    if ONE_TARGET or f"release {resources.NVCC}," not in release:
        pytest.skip(f"the table is of nvcc {resources.NVCC} and all targets")
    kept = resources.kept()
    wrong = [
        (row, kept.get(row[:3]))
        for row in FOUND
        if row[:3] not in kept
        or row.registers > kept[row[:3]].registers + SLACK
        or row.shared > kept[row[:3]].shared
    ]
    assert not wrong, (
        f"{wrong[:3]}; if it has to be, python -m tests.cuda_on_cpu.resources writes the table"
    )


def code(name: str, *words: int) -> sass.Loop | None:
    return next(iter(sass._loop(name, list(words))), None)


def test_the_loop_around_tensor_cores_is_found() -> None:
    """The branch at the end of seven instructions goes back by five, as CUDA 13 encodes sm_90."""
    back = (-5 * 4) & (1 << 56) - 1
    branch = sass.BRANCH | (back & 0xFF) << 16 | back >> 8 << 34
    copy = 0xFAE | 6 << 73
    loop = code("k", 0x223, 0x223, copy, sass.HMMA, sass.HMMA, 0x223, branch)
    assert loop == sass.Loop("k", 5, 2, 16)
    assert code("k", copy, sass.HMMA, 0x223) is None


def test_ceilings_follow_from_the_instructions() -> None:
    peak = 132 * 1.755e9 * 4096 / 1e12
    assert sass.ceiling("bf16", 100, 50) == sass.ceiling("fp16", 128, 32) == round(peak)
    assert sass.ceiling("bf16", 256, 32) == round(peak / 2)
    assert sass.ceiling("tf32", 256, 32) == round(peak / 4)
    for each in sass.kept().values():
        assert each.ceiling == sass.ceiling(each.precision.split()[0], each.instructions, each.hmma)


def test_the_wide_loops_of_the_table_meet_their_goals() -> None:
    """Kernels for aligned operands use 16-byte copies and halve the instructions per element.

    They have fewer than half of the instructions of the kernels with single-element copies and, for
    large tiles of rounded operands, at most 8 beside each tensor core instruction.
    """
    kept = sass.kept()
    wide = [
        row for row in kept.values() if "scalar" not in row.operands and not uses_tma(row.kernel)
    ]
    assert len(wide) == 66 and {row.widest for row in wide} == {16}
    for row in wide:
        *size, depth = re.findall(r"\d+", row.tile)
        single = "scalar" if row.kernel.startswith("conv2d_w") else "scalar, scalar"
        before = kept[row.kernel, row.precision, " x ".join([*size, "16"]), single]
        assert row.instructions / row.hmma < before.instructions / before.hmma / 2
        alone = row.tile == "128 x 128 x 32"  # without warpgroups
        assert row.blocks >= (1 if alone else 2)
        if depth == "32" and size[0] == "128":
            assert row.instructions / row.hmma <= 8


def uses_tma(kernel: str) -> bool:
    """Return True if operands are loaded without instructions of the threads."""
    return kernel.endswith("_tma_kernel")


def test_the_loops_with_tma_copy_nothing_themselves() -> None:
    rows = [row for row in sass.kept().values() if uses_tma(row.kernel)]
    assert len(rows) == 7 and {row.widest for row in rows} == {0}
    for row in rows:
        assert row.instructions / row.hmma <= 8 and row.blocks >= 2


@compiled
def test_loops_are_no_longer_than_those_of_the_table() -> None:
    release = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout
    if "sm_90" not in {row.target for row in FOUND} or f"release {resources.NVCC}," not in release:
        pytest.skip(f"the table is of nvcc {resources.NVCC} and sm_90")
    kept = sass.kept()
    wrong = [
        (row, kept.get(row[:4]))
        for row in resources.loops()
        if row[:4] not in kept
        or row.instructions / row.hmma > 1.03 * kept[row[:4]].instructions / kept[row[:4]].hmma
        or row.widest < kept[row[:4]].widest
        or row.blocks < kept[row[:4]].blocks
    ]
    assert not wrong, (
        f"{wrong[:3]}; if it has to be, python -m tests.cuda_on_cpu.resources writes the table"
    )


@compiled
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
