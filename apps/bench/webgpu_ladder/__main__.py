"""Run the ladder of matrix products in WGSL: check each step against NumPy, and time it.

The steps are the .wgsl files of this folder, behind ``head.wgsl``. The course checks and times them
too.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from needle import backends
from needle.backends.base import View
from needle.backends.webgpu import WebGpuBackend
from needle.errors import DeviceError

Matrix = np.ndarray[Any, np.dtype[np.float32]]
FOLDER = Path(__file__).parent
FLOAT32 = np.dtype("float32")
STEPS = {"naive": 8, "tiles": 8, "registers": 32}
"""The steps, and the rows and columns of the results that a workgroup computes."""
AROUND = 64
"""Rows and columns of NaN behind each operand, and rows of UNWRITTEN behind the result."""
UNWRITTEN = -77777.0
"""The contents of a result's memory before the kernel runs."""
ROUNDS, TIMES = 3, 4
"""Rounds per timing (the best one counts), and products per round."""
EMPTY = "// NotImplementedError: "


class Run(NamedTuple):
    """The result of a product on the device, the guard rows after it, and the reads of a and b."""

    result: Matrix
    behind: Matrix
    reads: int


def device() -> WebGpuBackend:
    """Return the device of the first adapter; DeviceError with the reason if there is none."""
    found = backends.get("webgpu")
    assert isinstance(found, WebGpuBackend)
    return found


def source(step: str, counted: bool = False) -> str:
    """Return the text of a step; NotImplementedError if an exercise's block in it is empty.

    counted: whether the kernel counts the elements of a and b that it reads from memory.
    """
    text = (FOLDER / f"{step}.wgsl").read_text("utf-8")
    for line in map(str.strip, text.splitlines()):
        if line.startswith(EMPTY):
            raise NotImplementedError(line.removeprefix(EMPTY))
    head = (FOLDER / "head.wgsl").read_text("utf-8")
    return f"const COUNTED = {str(counted).lower()};\n{head}\n{text}"


class Product:
    """The product of two matrices of float32 on the device, in C or in Fortran order.

    The memory around the matrices is NaN, so that an out-of-bounds read makes the result NaN.
    """

    def __init__(self, backend: WebGpuBackend, a: Matrix, b: Matrix) -> None:
        self.backend, self.shape = backend, (a.shape[0], b.shape[1])
        (self.a, *steps_a), (self.b, *steps_b) = self._operand(a), self._operand(b)
        rows, columns = self.shape
        self.parameters = [rows, a.shape[1], columns, *steps_a, *steps_b]
        self.out = self._filled(np.full((rows + AROUND, columns), UNWRITTEN, FLOAT32))
        self.reads = self._filled(np.zeros((1, 1), FLOAT32))

    def _operand(self, matrix: Matrix) -> tuple[View, int, int]:
        """Return a matrix on the device, with the strides of its rows and columns."""
        if not matrix.flags.c_contiguous:
            view, right, down = self._operand(matrix.T)
            return view, down, right
        around = np.pad(matrix, ((0, AROUND), (0, AROUND)), constant_values=np.nan)
        return self._filled(around), around.shape[1], 1

    def _filled(self, values: Matrix) -> View:
        handle = self.backend.allocate(values.size, FLOAT32)
        self.backend.queue.write(handle, 0, values)
        return View(handle, values.shape, (values.shape[1], 1), 0, FLOAT32)

    def _read(self, view: View) -> Matrix:
        found = self.backend.queue.read(view.handle, 0, math.prod(view.shape) * FLOAT32.itemsize)
        return np.frombuffer(found, FLOAT32).reshape(view.shape)

    def launch(self, step: str, text: str) -> None:
        """Dispatch a step with this source text."""
        groups = (-(-self.shape[1] // STEPS[step]), -(-self.shape[0] // STEPS[step]), 1)
        buffers = [view.handle for view in (self.out, self.a, self.b, self.reads)]
        self.backend.queue.dispatch(text, self.parameters, buffers, groups)

    def run(self, step: str) -> Run:
        """Return the result of a step."""
        self.launch(step, source(step, counted=True))
        out, reads = self._read(self.out), self._read(self.reads).view("uint32")
        return Run(out[: self.shape[0]], out[self.shape[0] :], int(reads[0, 0]))

    def seconds(self, step: str) -> float:
        """Return the time of a product by a step; "library" is needle's own matmul."""
        text = "" if step == "library" else source(step)
        return min(self._round(step, text) for _ in range(ROUNDS))

    def _round(self, step: str, text: str) -> float:
        self.backend.synchronize()
        begun = time.perf_counter()
        for _ in range(TIMES):
            if text:
                self.launch(step, text)
            else:
                self._library()
        self.backend.synchronize()
        return (time.perf_counter() - begun) / TIMES

    def _library(self) -> None:
        rows, depth, columns, *steps = self.parameters
        a = self.a._replace(shape=(rows, depth), strides=tuple(steps[:2]))
        b = self.b._replace(shape=(depth, columns), strides=tuple(steps[2:]))
        self.backend.matmul(a, b, self.out._replace(shape=self.shape))


def timed(step: str, n: int) -> dict[str, Any]:
    """Return GFLOP/s of a step and of the library for n x n matrices, and the adapter's name."""
    backend = device()
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype=FLOAT32) for _ in range(2))
    product = Product(backend, a, b)
    if step != "library":
        np.testing.assert_allclose(product.run(step).result, a @ b, rtol=1e-3, atol=1e-3)
    own, reference = (2e-9 * n**3 / product.seconds(each) for each in (step, "library"))
    return {"own": own, "reference": reference, "adapter": backend.adapter_name}


def main(arguments: Sequence[str] | None = None) -> None:
    """Check and time the chosen steps."""
    parser = argparse.ArgumentParser(prog="python -m apps.bench.webgpu_ladder")
    parser.add_argument("--n", type=int, default=512, help="rows and columns of each matrix")
    parser.add_argument("--step", choices=STEPS, help="only this step, as a line of JSON")
    given = parser.parse_args(arguments)
    try:
        if given.step:
            print(json.dumps(timed(given.step, given.n)))
            return
        rows = {step: timed(step, given.n) for step in STEPS}
    except DeviceError as error:
        sys.exit(str(error))
    print(f"n = {given.n}, float32, {rows['naive']['adapter']}\n")
    print("| step | GFLOP/s | of the library's kernel |", "|---|---|---|", sep="\n")
    for step, row in rows.items():
        print(f"| {step} | {row['own']:.3g} | {row['own'] / row['reference']:.0%} |")


if __name__ == "__main__":
    main()
