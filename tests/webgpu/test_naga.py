"""Validate every WGSL kernel of the WebGPU backend and translate it to Metal, without a GPU.

The translator is naga, which wgpu uses: the npm package naga-wasm, run by ``tools/naga.mjs``.
"""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from apps.bench.webgpu_ladder import __main__ as ladder
from needle.backends.webgpu import queue, sources
from needle.testing import conformance

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "build/naga/node_modules/naga-wasm"
DTYPES = tuple(map(np.dtype, ("float32", "int32", "int64", "uint8", "bool")))
FLOAT32, SIGNED, NUMBERS, BOOL = DTYPES[:1], DTYPES[:3], DTYPES[:4], DTYPES[4:]
DOMAINS = {"kFloat": FLOAT32, "kNumber": NUMBERS, "kInteger": DTYPES[1:], "kAny": DTYPES}
REDUCTIONS = {
    **dict.fromkeys(("sum", "prod"), SIGNED),
    **dict.fromkeys(("max", "min"), NUMBERS),
    **dict.fromkeys(("any", "all"), BOOL),
}
TILES = {
    ("matmul",): SIGNED,
    ("windows", "conv2d"): FLOAT32,
    ("windows", "conv2d_input_grad"): FLOAT32,
    ("windows", "conv2d_weight_grad"): FLOAT32,
}
KERNELS = {
    ("threads", "each", "indexed", "gather"): DTYPES,
    ("threads", "each", "indexed", "scatter"): DTYPES,
    ("threads", "each", "one_hot"): DTYPES,
    ("threads", "each", "indexed", "scatter_add"): NUMBERS,
    ("logsumexp", "reduce"): FLOAT32,
    ("threads", "each", "rows", "row_exp", "softmax"): FLOAT32,
    ("threads", "each", "rows", "row_exp", "log_softmax"): FLOAT32,
    ("threads", "each", "float64", "random"): FLOAT32,
    ("threads", "each", "float64", "images"): FLOAT32,
    ("threads", "each", "pools", "pool2d", "max_pool2d"): FLOAT32,
    ("threads", "each", "pools", "pool2d_grad", "max_pool2d_grad"): FLOAT32,
    ("threads", "each", "pools", "pool2d", "avg_pool2d"): FLOAT32,
    ("threads", "each", "pools", "pool2d_grad", "avg_pool2d_grad"): FLOAT32,
    ("threads", "each", "row_exp", "logits", "cross_entropy"): FLOAT32,
    ("threads", "each", "row_exp", "logits", "cross_entropy_grad"): FLOAT32,
    ("places", "each", "norm"): FLOAT32,
    ("places", "each", "norm_grad"): FLOAT32,
    ("places", "sums", "norm_moments"): FLOAT32,
    ("places", "sums", "norm_sums"): FLOAT32,
}
"""The source files of each kernel that ``sources.kernel`` assembles, and its dtypes."""


@cache
def kernels() -> dict[str, str]:
    """Return the text of every kernel, keyed by a name for messages."""
    found = {"where": sources.selection(), "biased_relu": sources.biased_relu()}
    found["relu_grad"] = sources.relu_grad()
    for source in DTYPES:
        for target in DTYPES:
            found[f"{source} to {target}"] = sources.conversion(source, target)
    for row in sources.rows().values():
        for dtype in DOMAINS[row.domain]:
            found[f"{row.name} of {dtype}"] = sources.operation(row.name, dtype)
    for name, dtypes in REDUCTIONS.items():
        for dtype in dtypes:
            found[f"{name} of {dtype}"] = sources.reduction(name, dtype)
    for name in ("max", "min"):
        for dtype in NUMBERS:
            found[f"arg{name} of {dtype}"] = sources.positions(name, dtype)
    return found | assembled()


def assembled() -> dict[str, str]:
    """Return the kernels that consist of whole files."""
    found = {}
    for names, dtypes in TILES.items():
        for dtype in dtypes:
            for columns in (16, 64):
                text = sources.tiles(dtype, columns, *names)[0]
                found[f"{names[-1]} of {dtype}, {columns} columns"] = text
    for names, dtypes in KERNELS.items():
        for dtype in dtypes:
            found[f"{names[-1]} of {dtype}"] = sources.kernel(dtype, *names)
    for rule, moments in (("sgd_step", 0), ("sgd_step", 1), ("adam_step", 2)):
        for in_place in (True, False):
            for count in (1, 2, 3, 4, 30):
                text = sources.step(rule, moments, in_place, count)
                found[f"{rule} of {count}, {moments} moments, in place: {in_place}"] = text
    return found


def translated(texts: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return naga's translation of each text, or its error; skip the test without naga."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node.js")
    if not PACKAGE.exists():
        pytest.skip("needs the npm package naga-wasm; make build/naga installs it")
    run = subprocess.run(
        [node, str(ROOT / "tools/naga.mjs"), str(PACKAGE)],
        input=json.dumps(texts),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=120,
    )
    found: dict[str, dict[str, str]] = json.loads(run.stdout)
    return found


def test_every_kernel_translates_to_metal():
    found = translated(kernels())
    assert found.keys() == kernels().keys()
    errors = [f"{name}: {each['error']}" for name, each in found.items() if "error" in each]
    assert not errors, "\n".join(errors)
    assert all("kernel void main_(" in each["msl"] for each in found.values())


def test_every_step_of_the_ladder_translates_to_metal():
    texts = {
        f"{step} {counted}": ladder.source(step, counted)
        for step in ladder.STEPS
        for counted in (False, True)
    }
    errors = [f"{name}: {said}" for name, said in translated(texts).items() if "msl" not in said]
    assert not errors, "\n".join(errors)


def test_naga_reports_a_wrong_type_and_an_unknown_name():
    good = sources.selection()
    wrong = {"type": good + "const x: f32 = 1i;", "name": good + "fn f() -> u32 { return y; }"}
    found = translated({"good": good, **wrong})
    assert "msl" in found["good"]
    assert "expected to be `f32`, but got `i32`" in found["type"]["error"]
    assert "no definition in scope for identifier: `y`" in found["name"]["error"]


def test_every_file_belongs_to_a_kernel():
    files = sorted(sources.FOLDER.glob("*.wgsl"))
    assert len(files) >= 30
    for path in files:
        contents = path.read_text(encoding="utf-8")
        assert any(contents in text for text in kernels().values()), path.name


@pytest.mark.slow
def test_the_conformance_suite_dispatches_no_other_kernel(monkeypatch):
    device = needle.webgpu()
    if not device.enabled():
        pytest.skip(device.why())
    dispatch, seen = queue.Queue.dispatch, set()

    def recorded(self: queue.Queue, source: str, *rest: Any) -> None:
        seen.add(source)
        dispatch(self, source, *rest)

    monkeypatch.setattr(queue.Queue, "dispatch", recorded)
    conformance.run("webgpu")
    assert len(seen) > 150
    assert seen <= set(kernels().values())
