"""Test that a program exits normally even if daemon threads are inside a kernel."""

import pytest

from needle.data.formats.decoding import jpeg_region
from tests.programs import python

PROGRAM = """
import io, sys, threading
import numpy as np
import needle
from needle import data
from needle.data.samples import native_kernels
from needle.data.formats.decoding import jpeg_region

array = needle.backend_ndarray.array(np.ones((512, 512), np.float32))
images = np.zeros((256, 64, 64, 3), np.uint8)
rows = np.zeros((3000, 4096), np.uint8)
order = np.arange(200000)
if sys.argv[1] == "jpeg":
    from PIL import Image
    file = io.BytesIO()
    Image.fromarray(np.zeros((1500, 1500, 3), np.uint8)).save(file, "JPEG")
calls = {
    "matmul": lambda: array @ array,
    "fill": lambda: array.fill(1.0),
    "download": lambda: array.numpy(),
    "gather": lambda: native_kernels.gather_rows(rows, order[:3000]),
    "words": lambda: native_kernels.words(1, 2, order[:20000], 0, 16),
    "permutation": lambda: native_kernels.permutation(order, len(order), 1, 2),
    "images": lambda: [*data.DataLoader(
        data.ArrayDataset(images), 64, transforms=[data.RandomCrop(padding=4)], seed=1)],
    "jpeg": lambda: jpeg_region().decode_region(
        file.getvalue(), np.empty((1500, 1500, 3), np.uint8), 1, 0, 0, 1500, 1500),
}
call = calls[sys.argv[1]]
call()
began = threading.Barrier(3)

def run():
    began.wait()
    while True:
        call()

for _ in range(2):
    threading.Thread(target=run, daemon=True).start()
began.wait()
for _ in range(3):
    call()
"""
KINDS = ["fill", "download", "gather", "words", "permutation", *["jpeg"] * bool(jpeg_region())]
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]


@pytest.mark.parametrize("kind", ["matmul", "images", *SLOW])
def test_a_daemon_thread_in_a_kernel_does_not_abort_the_program(kind: str) -> None:
    assert python("-c", PROGRAM, kind).stderr == ""
