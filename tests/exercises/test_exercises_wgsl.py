"""Part 6 of the course: a matrix product in WGSL, run on this machine's adapter of WebGPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from apps.bench.webgpu_ladder.__main__ import STEPS, UNWRITTEN, Product, Run, device, source
from apps.course.compare import Case, WrongAnswer, expect
from needle.errors import DeviceError

Array = np.ndarray[Any, np.dtype[np.float32]]
SHAPES = ((1, 1, 1), (32, 32, 32), (8, 24, 40), (45, 70, 130), (3, 5, 66), (64, 0, 9))
"""Rows, depth and columns of the products."""
SIDE = 8
BARRIERS = (
    "a tile needs two barriers a step: between writing and reading it, and between reading it and "
    "writing the next one"
)
EARLY = "return stands before a barrier: all threads must reach each barrier"
OUTSIDE = "NaN lies around the matrices: a thread read outside of them; check row, k and column"
UNSET = f"{UNWRITTEN:.0f} is what out held before: some results are not written"
BEHIND = "a thread without a result writes; check row and column before put"


def check_step(step: str) -> None:
    """Compare a step with NumPy on all shapes and layouts, then count its reads."""
    text = source(step)
    try:
        backend = device()
    except DeviceError as reason:
        pytest.skip(str(reason))
    rng = np.random.default_rng(0)
    for rows, depth, columns in SHAPES:
        for order in "CF":
            a, b = (
                np.asarray(rng.integers(-4, 5, shape), dtype="float32", order=order)
                for shape in ((rows, depth), (depth, columns))
            )
            check_product(step, text, Product(backend, a, b), a, b)
    check_reads(step, Product(backend, *np.ones((2, 64, 64), dtype="float32")))


def check_product(step: str, text: str, product: Product, a: Array, b: Array) -> None:
    """Compare one product; operands are small integers, so that sums of float32 are exact."""
    shapes = f"a {a.shape}, b {b.shape}"
    run = run_of(step, product, shapes)
    likely = {words: wrong(a, b) for words, wrong in MISTAKES.items()}
    likely = {words: wrong for words, wrong in likely.items() if not np.array_equal(wrong, a @ b)}
    if not np.array_equal(run.result, a @ b) and (cause := cause_of(text, run)):
        likely = {cause: run.result}
    given = {"a": a, "b": b}
    expect(f"{step}.wgsl: a b", run.result, a @ b, given=given, mistakes=likely)
    if (run.behind != UNWRITTEN).any():
        raise WrongAnswer(
            Case(f"{step}.wgsl: rows behind out", shapes, "unchanged", "written", BEHIND)
        )


def run_of(step: str, product: Product, given: str) -> Run:
    """Return the result of a step; raise WrongAnswer with the compiler's message if it has none."""
    try:
        return product.run(step)
    except DeviceError as error:
        said = str(error.__cause__ or error)
        cause = "the kernel does not compile; the line numbers count head.wgsl"
        raise WrongAnswer(Case(f"{step}.wgsl", given, "a kernel", said, cause)) from None


def cause_of(text: str, run: Run) -> str:
    """Return the cause that a wrong result itself reveals, or ""."""
    main = text.partition("fn main")[2]
    if "return" in main.partition("workgroupBarrier()")[0] and "workgroupBarrier()" in main:
        return EARLY
    if np.isnan(run.result).any():
        return OUTSIDE
    if (run.result == UNWRITTEN).any():
        return UNSET
    return BARRIERS if "var<workgroup>" in text and main.count("workgroupBarrier()") < 2 else ""


MISTAKES: dict[str, Callable[[Array, Array], Array]] = {
    "only the last tile of k is added: the sum starts again with each tile": lambda a, b: (
        a[:, (a.shape[1] - 1) // SIDE * SIDE :] @ b[(a.shape[1] - 1) // SIDE * SIDE :]
    ),
    "the last values of k, which fill no whole tile, are left out": lambda a, b: (
        a[:, : a.shape[1] // SIDE * SIDE] @ b[: a.shape[1] // SIDE * SIDE]
    ),
}
"""Products computed with likely mistakes."""


def check_reads(step: str, product: Product) -> None:
    """Check how many elements of a and b a step reads for 64 x 64 matrices of ones."""
    run = run_of(step, product, "64 x 64 matrices")
    allowed = 2 * 64**3 // (1 if step == "naive" else STEPS[step])
    if 0 < run.reads <= allowed:
        return
    cause = "each element is read by more than one thread of a workgroup; read it once and share it"
    if run.reads == 0:
        cause = "read the matrices with a_at and b_at"
    what, wanted = f"{step}.wgsl: reads of a and b, each 64 x 64", f"1 to {allowed}"
    raise WrongAnswer(Case(what, "", wanted, str(run.reads), cause))


@pytest.mark.exercise("wgsl-naive")
def test_a_thread_for_each_result() -> None:
    check_step("naive")


@pytest.mark.exercise("wgsl-tiles")
def test_tiles_in_workgroup_memory() -> None:
    check_step("tiles")


@pytest.mark.exercise("wgsl-registers")
def test_results_in_registers() -> None:
    check_step("registers")
