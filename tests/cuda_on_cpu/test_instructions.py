"""The list in src/cuda/instructions.h is complete: what has no word in C++ is in it and has a plain
twin; and where nvcc compiled the kernels, those for sm_80 have all of it, for sm_75 nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
HEADER = ROOT / "src" / "cuda" / "instructions.h"
TEXT = HEADER.read_text()
LISTED = dict(re.findall(r"^//   ([a-z]+\.[\w.]+) +([\w:]+)$", TEXT, re.MULTILINE))
OF_WARPGROUPS = {
    place
    for name, place in LISTED.items()
    if name.startswith(("wgmma", "fence", "mbarrier", "cp.async.bulk"))
}
WITHOUT_TWIN = {"begin_products", "end_products"}
"""The emulator needs none of them: a thread's products begin and end in order."""
OBJECTS = sorted(
    (ROOT / "build").glob("**/needle_cuda.dir/matmul.cu.o"), key=lambda path: path.stat().st_mtime
)


def test_no_other_file_has_instructions() -> None:
    files = [*ROOT.glob("src/cuda/*"), *ROOT.glob("apps/bench/**/*.cu")]
    found = {path.name for path in files if re.search(r"\basm\b|__CUDA_ARCH__", path.read_text())}
    assert found == {HEADER.name}


def test_every_instruction_is_in_the_list_and_has_a_twin() -> None:
    assert len(LISTED) == 20
    here = re.sub(r"//.*", "", TEXT)
    used = set(
        re.findall(r'"(?:@is )?((?:cp|cvt|fence|ld|ldmatrix|mbarrier|mma|st|wgmma)\.[\w.]+)', here)
    )
    assert used and all(any(name.startswith(each) for each in LISTED) for name in used), used
    assert all(any(name.startswith(each) for name in used) for each in LISTED)
    for place in {place.split("::")[-1] for place in LISTED.values()}:
        definitions = [
            each.end() for each in re.finditer(rf"__device__ [\w:<> ]*\b{place}\(", here)
        ]
        body = here[definitions[0] :].split("\n}\n")[0]
        twin = r"#if NEEDLE_SM80.*asm.*#(else|elif defined\(NEEDLE_CUDA_ON_CPU\))\s+[^#\s]"
        if place in OF_WARPGROUPS:
            twin = r"#if NEEDLE_SM90A.*(asm|COPY_BOX).*#elif defined\(NEEDLE_CUDA_ON_CPU\)\s+[^#\s]"
        assert len(definitions) == 2 or place in WITHOUT_TWIN or re.search(twin, body, re.DOTALL)


@pytest.mark.skipif(not OBJECTS, reason="not compiled here: no nvcc, or nothing changed")
def test_the_code_for_sm_80_has_them_and_that_for_sm_75_has_not() -> None:
    for file in ("matmul", "conv2d", "conv2d_weight_grad"):
        code = OBJECTS[-1].with_name(f"{file}.cu.o").read_bytes()
        generations = re.split(rb"\.target sm_(\d+)", code)[1:]
        found = dict(zip(generations[::2], generations[1::2], strict=True))
        if b"80" in found:
            here = [each for each in LISTED if each.encode() in found[b"80"]]
            assert here == [name for name, place in LISTED.items() if place not in OF_WARPGROUPS]
        if b"75" in found:
            later = [each for each in LISTED if not each.startswith(("ld.", "st."))]
            assert [each for each in later if each.encode() in found[b"75"]] == []
