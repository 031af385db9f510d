"""The instruction lists in src/cuda/instructions.h and src/cuda/sm90/instructions.h are complete.

Each instruction is in one list and has an equivalent in the emulator. Where nvcc compiled the
kernels, the code for sm_80 has the instructions of the first list, and that for sm_75 none.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
HEADERS = {
    80: ROOT / "src" / "cuda" / "instructions.h",
    90: ROOT / "src" / "cuda" / "sm90" / "instructions.h",
}
LISTED = {
    generation: dict(re.findall(r"^//   ([a-z]+\.[\w.]+) +([\w:]+)$", path.read_text(), re.M))
    for generation, path in HEADERS.items()
}
NOT_EMULATED = {"wgmma_fence", "wgmma_commit"}
"""The emulator runs a thread's products in order."""
OBJECTS = sorted(
    (ROOT / "build").glob("**/needle_cuda.dir/matmul.cu.o"), key=lambda path: path.stat().st_mtime
)


def test_no_other_file_has_instructions() -> None:
    files = [*ROOT.glob("src/cuda/**/*.*"), *ROOT.glob("apps/bench/**/*.cu")]
    found = {path for path in files if re.search(r"\basm\b|__CUDA_ARCH__", path.read_text())}
    assert found == set(HEADERS.values())


@pytest.mark.parametrize(("generation", "count"), [(80, 11), (90, 9)])
def test_every_instruction_is_in_the_list_and_is_emulated(generation: int, count: int) -> None:
    listed = LISTED[generation]
    assert len(listed) == count
    here = re.sub(r"//.*", "", HEADERS[generation].read_text())
    used = set(
        re.findall(
            r'"(?:@valid )?((?:cp|cvt|fence|ld|ldmatrix|mbarrier|mma|st|wgmma)\.[\w.]+)', here
        )
    )
    assert used and all(any(name.startswith(each) for each in listed) for name in used), used
    assert all(any(name.startswith(each) for name in used) for each in listed)
    emulated = r"#if NEEDLE_SM80.*asm.*#(else|elif defined\(NEEDLE_CUDA_ON_CPU\))\s+[^#\s]"
    if generation == 90:
        emulated = r"#if NEEDLE_SM90A.*(asm|TMA_LOAD).*#elif defined\(NEEDLE_CUDA_ON_CPU\)\s+[^#\s]"
    for function in {each.split("::")[-1] for each in listed.values()} - NOT_EMULATED:
        definitions = [
            each.end() for each in re.finditer(rf"__device__ [\w:<> ]*\b{function}\(", here)
        ]
        body = here[definitions[0] :].split("\n}\n")[0]
        assert len(definitions) == 2 or re.search(emulated, body, re.DOTALL), function


@pytest.mark.skipif(not OBJECTS, reason="not compiled here: no nvcc, or nothing changed")
def test_the_code_for_sm_80_has_them_and_that_for_sm_75_has_not() -> None:
    for file in ("matmul", "conv2d", "conv2d_weight_grad"):
        code = OBJECTS[-1].with_name(f"{file}.cu.o").read_bytes()
        generations = re.split(rb"\.target sm_(\d+)", code)[1:]
        found = dict(zip(generations[::2], generations[1::2], strict=True))
        if b"80" in found:
            everything = {**LISTED[80], **LISTED[90]}
            assert [each for each in everything if each.encode() in found[b"80"]] == [*LISTED[80]]
        if b"75" in found:
            later = [each for each in LISTED[80] if not each.startswith(("ld.", "st."))]
            assert [each for each in later if each.encode() in found[b"75"]] == []
