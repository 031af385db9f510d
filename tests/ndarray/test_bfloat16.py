"""Test that every bfloat16 operation computes in float32 and rounds its result once.

The oracle rounds the bits of a float32 in integers; the float32 results are NumPy's.
"""

import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import needle
from needle import nn
from needle.array_namespace import BACKEND
from needle.errors import DTypeError
from needle.ndarray import ones

pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.skipif(BACKEND != "nd", reason="devices belong to needle's own arrays")

FLOATS = hnp.arrays(np.float32, (7,), elements=st.floats(width=32))


def rounded(values):
    """Return float32 values rounded to 8 bits of significand, ties to even, as float32."""
    values = np.ascontiguousarray(values, np.float32)
    bits = values.view(np.uint32).astype(np.uint64)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    out = kept.astype(np.uint32).view(np.float32)
    return np.where(np.isnan(values), values, out)


def stored(values):
    return needle.Tensor(values, device=needle.cpu_numpy(), dtype="float32").astype("bfloat16")


def float32(tensor):
    assert tensor.dtype == "bfloat16"
    return tensor.astype("float32").numpy()


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@given(FLOATS)
@settings(deadline=None)
def test_cast_rounds_to_the_nearest_and_ties_to_even(values):
    np.testing.assert_array_equal(float32(stored(values)), rounded(values))


@given(FLOATS, FLOATS)
@settings(deadline=None)
@pytest.mark.filterwarnings("ignore")
def test_arithmetic_rounds_the_float32_result(a, b):
    left, right = rounded(a), rounded(b)
    x, y = stored(a), stored(b)
    for result, exact in (
        (x + y, left + right),
        (x - y, left - right),
        (x * y, left * right),
        (x / y, left / right),
        (needle.maximum(x, y), np.maximum(left, right)),
    ):
        np.testing.assert_array_equal(float32(result), rounded(exact))
    np.testing.assert_array_equal(
        float32(stored(a) * 0.1), rounded(left * np.float32(0.1)), "a scalar is a float32"
    )


def test_functions_round_the_float32_result():
    values = normal(5, 6)
    wide = needle.Tensor(rounded(values), device=needle.cpu_numpy(), dtype="float32")
    for function in (needle.exp, needle.tanh, needle.sigmoid, needle.gelu, needle.softmax):
        np.testing.assert_array_equal(
            float32(function(stored(values))), rounded(function(wide).numpy())
        )


def test_products_and_sums_round_once():
    a, b = rounded(normal(9, 40)), rounded(normal(40, 5, seed=1))
    np.testing.assert_array_equal(float32(stored(a) @ stored(b)), rounded(a @ b))
    total = a.astype(np.float64).sum(axis=1).astype(np.float32)
    np.testing.assert_array_equal(float32(stored(a).sum(axes=1)), rounded(total))


@pytest.mark.parametrize(
    ("other", "result"),
    [("bool", "bfloat16"), ("int64", "bfloat16"), ("float32", "float32"), ("float64", "float64")],
)
def test_promotion_puts_bfloat16_before_float32(other, result):
    wide = ones(3, dtype=other, device=needle.cpu_numpy())
    both = stored(np.ones(3)).realize_cached_data() + wide
    assert both.dtype == result


def test_assignment_indexing_and_pickle_keep_the_values():
    a = stored(normal(4, 3)).realize_cached_data()
    host = np.array(a.astype("float32"))
    a[1:3] = 0.3
    host[1:3] = rounded(np.float32(0.3))
    np.testing.assert_array_equal(a[[2, 0]].astype("float32").numpy(), host[[2, 0]])
    again = pickle.loads(pickle.dumps(a))
    assert again.dtype == "bfloat16"
    np.testing.assert_array_equal(again.astype("float32").numpy(), host)
    np.testing.assert_array_equal(a.argmax(1).numpy(), host.argmax(1))


def test_convolution_rounds_its_weight_and_its_result():
    device = needle.cpu_numpy()
    layer = nn.Conv2d(3, 4, 3, padding=1, device=device)
    x = normal(2, 3, 6, 6)
    wide = nn.Conv2d(3, 4, 3, padding=1, device=device)
    wide.load_state_dict({k: rounded(v.numpy()) for k, v in layer.state_dict().items()})
    expected = wide(needle.Tensor(rounded(x), device=device, dtype="float32")).numpy()
    np.testing.assert_array_equal(float32(layer(stored(x))), rounded(expected))


def test_batch_norm_keeps_its_statistics_in_float32():
    device, x = needle.cpu_numpy(), normal(4, 3, 5, 5) + 7
    layer, wide = (nn.BatchNorm2d(3, device=device) for _ in range(2))
    y = layer(stored(x))
    expected = wide(needle.Tensor(rounded(x), device=device, dtype="float32"))
    np.testing.assert_array_equal(float32(y), rounded(expected.numpy()))
    for mine, theirs in zip(layer.buffers(), wide.buffers(), strict=True):
        assert mine.dtype == "float32"
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
    assert layer.eval()(stored(x)).dtype == "bfloat16"


def layers(device):
    return {
        "linear": nn.Linear(8, 5, device=device),
        "conv": nn.Conv2d(3, 4, 3, device=device),
        "transposed": nn.ConvTranspose2d(3, 4, 2, device=device),
        "batch_norm": nn.BatchNorm2d(3, device=device, activation="relu"),
        "group_norm": nn.GroupNorm(3, 3, device=device),
        "instance_norm": nn.InstanceNorm2d(3, affine=True, device=device),
        "layer_norm": nn.LayerNorm(8, device=device),
        "rms_norm": nn.RMSNorm(8, device=device),
        "prelu": nn.PReLU(3, device=device),
        "max_pool": nn.MaxPool2d(2),
        "avg_pool": nn.AvgPool2d(2),
    }


@pytest.mark.parametrize("name", layers(None))
def test_gradients_of_layers_agree_with_float32(name):
    device, x = needle.cpu_numpy(), normal(2, 3, 8, 8)
    layer = layers(device)[name]
    grads = []
    for dtype in ("bfloat16", "float32"):
        given = needle.Tensor(rounded(x), device=device, dtype="float32")
        given.requires_grad = True
        y = layer(given.astype(dtype))
        assert y.dtype == dtype
        (y.astype("float32") * stored(normal(*y.shape, seed=2)).astype("float32")).sum().backward()
        assert all(p.grad.dtype == "float32" for p in layer.parameters())
        grads.append([given.grad.numpy(), *(p.grad.numpy() for p in layer.parameters())])
    for mine, theirs in zip(*grads, strict=True):
        # about ten roundings of 2**-9 each, of terms that may cancel
        assert np.abs(mine - theirs).max() < 2**-5 * np.abs(theirs).max()


def test_devices_without_bfloat16_say_so():
    with pytest.raises(DTypeError, match=r"cpu: arrays must be of .*float64, got bfloat16; use"):
        needle.Tensor([1.0], device=needle.cpu(), dtype="bfloat16")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(DTypeError, match="bfloat16 needs the package ml_dtypes.*pip install"):
        needle.dtypes.as_dtype("bfloat16")
