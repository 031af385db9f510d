"""Test that float64.wgsl, which emulates doubles with integers, equals NumPy bit for bit."""

import numpy as np
import pytest

import needle
from needle.backends.webgpu import sources

MAIN = """
fn number(at: i32) -> F64 { return f64_of_words(vec2<u32>(a[at + 1], a[at])); }

fn store_number(at: i32, x: F64) {
  if (x.high == 0u) {
    out[at] = 0u;
    out[at + 1] = 0u;
    return;
  }
  let sign = select(0u, 0x80000000u, x.negative);
  out[at] = (x.low >> 11u) | (x.high << 21u);
  out[at + 1] = sign | (u32(x.exponent + 1023) << 20u) | ((x.high >> 11u) & 0xfffffu);
}

fn run(i: i32) {
  let x = number(4 * i);
  let y = number(4 * i + 2);
  store_number(12 * i, f64_add(x, y));
  store_number(12 * i + 2, f64_subtract(x, y));
  store_number(12 * i + 4, f64_multiply(x, y));
  store_number(12 * i + 6, f64_divide(x, y));
  store_number(12 * i + 8, f64_sqrt(F64(false, x.exponent, x.high, x.low)));
  out[12 * i + 10] = bitcast<u32>(float32_of(x));
  out[12 * i + 11] = bitcast<u32>(f64_floor(x));
}
"""


def pairs() -> np.ndarray:
    """Return pairs of numbers: random, with close and distant exponents, and rounding ties."""
    random = np.random.default_rng(0)
    n = 4000
    signs = random.choice([-1.0, 1.0], (6 * n, 2))
    few = random.integers(1, 2**12, (n, 2)).astype("float64")
    wide = random.integers(2**51, 2**53, (n, 2)) * 2.0**-52
    near = wide * 2.0 ** random.integers(-3, 4, (n, 2))
    far = wide * 2.0 ** random.integers(-60, 60, (n, 2))
    ties = np.stack([2.0**53 + 2 * few[:, 0], 2 * few[:, 1] + 1], 1)
    close = np.stack([near[:, 0], np.nextafter(near[:, 0], 4)], 1)
    halves = (2.0**24 + few) + random.choice([0.0, 0.5, 1.0], (n, 2))
    return signs * np.concatenate([few, near, far, ties, close, halves])


def test_operations_have_numpys_bits():
    device = needle.webgpu()
    if not device.enabled():
        pytest.skip(device.why())
    given = np.concatenate([pairs(), [[0.0, 3.0], [1.5, -1.5], [0.0, -(2.0**-40)]]])
    backend, int32 = device.backend, np.dtype("int32")
    names = map(sources.text, ("threads", "each", "float64"))
    source = "\n".join([sources.math(np.dtype("float32")), *names, MAIN])
    View = needle.backends.View
    words = given.view("<i4").reshape(-1)
    a = View(backend.allocate(words.size, int32), words.shape, (1,), 0, int32)
    backend.upload(words, a)
    count = len(given)
    out = View(backend.allocate(12 * count, int32), (count, 12), (12, 1), 0, int32)
    buffers = [out.handle, a.handle, *[out.handle] * 3]
    backend.queue.dispatch(source, [count, 0, 0, 1], buffers, (1, -(-count // 256), 1))
    found = backend.download(out)
    x, y = given.T
    expected = [x + y, x - y, x * y, x / y, np.sqrt(np.abs(x))]
    got = np.ascontiguousarray(found[:, :10]).view("<f8")
    for i, numbers in enumerate(expected):
        np.testing.assert_array_equal(got[:, i], numbers, err_msg=str(i))
    singles = np.ascontiguousarray(found[:, 10]).view("<f4")
    np.testing.assert_array_equal(singles, x.astype("float32"))
    floors = np.clip(np.floor(x), -(2.0**30), 2.0**30)
    np.testing.assert_array_equal(found[:, 11], floors)
