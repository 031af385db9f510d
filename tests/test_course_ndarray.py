"""Use devices and NDArray as programs written for the course do, in both modes."""

from typing import Any

import numpy as np
import pytest

from needle import backend_selection
from tests.programs import python

ND = backend_selection.BACKEND == "nd"
if ND:
    from needle import backend_ndarray as nd
needs_nd = pytest.mark.skipif(not ND, reason="needle's own arrays only")


def test_np_mode() -> None:
    code = """
import pickle, numpy as np, needle.backend_selection as b
assert b.BACKEND == "np" and b.array_api is np and b.NDArray is np.ndarray
assert str(b.cpu()) == "cpu()" and b.cpu() == b.default_device() == b.device("cpu") == b.device()
assert b.all_devices() == [b.cpu()] and b.cpu().enabled() and isinstance(b.cpu(), b.Device)
assert not hasattr(b, "cuda") and not hasattr(b, "cpu_numpy")
d = b.cpu()
assert pickle.loads(pickle.dumps(d)) == d and hash(d) == hash(b.cpu())
assert d.zeros(2, 3).shape == d.ones((2, 3)).shape == d.empty((2, 3)).shape == (2, 3)
assert d.full((2,), 3).tolist() == [3, 3] and d.one_hot(3, 1).tolist() == [0, 1, 0]
assert d.randn(2, 2).dtype == "float64" and d.rand(2, dtype="float32").dtype == "float32"
assert b.from_numpy(np.ones(2)).dtype == "float64" and b.from_numpy([1]).dtype == "int64"
x = np.ones(2)
assert (b.to_numpy(x) == x).all() and b.device_of(x) == d and b.is_array(x) and not b.is_array([1])
with b.set_default_device("cpu") as d:
    assert d == b.default_device() == b.cpu()
try:
    b.set_default_device("cpu_numpy")
except LookupError as error:
    assert "unknown device 'cpu_numpy'; known: cpu" in str(error)
try:
    b.device("cuda")
except LookupError as error:
    assert "unknown device 'cuda'; known: cpu" in str(error)
else:
    raise AssertionError
"""
    python("-c", code, NEEDLE_BACKEND="np")


def test_another_mode_is_a_runtime_error() -> None:
    done = python("-c", "import needle.backend_selection", check=False, NEEDLE_BACKEND="torch")
    assert "RuntimeError: NEEDLE_BACKEND: must be 'nd'" in done.stderr
    assert "got 'torch'" in done.stderr


@needs_nd
def test_selection_in_nd_mode() -> None:
    chosen = backend_selection.array_api
    assert all(getattr(nd, name) is getattr(chosen, name) for name in chosen.__all__)
    assert backend_selection.NDArray is nd.NDArray
    assert backend_selection.Device is nd.BackendDevice
    for name in ("cpu", "cuda", "cpu_numpy", "default_device", "all_devices", "device"):
        assert getattr(backend_selection, name) is getattr(nd, name)
    array = nd.asarray([1, 2])
    assert backend_selection.to_numpy(array).tolist() == [1, 2]
    assert backend_selection.from_numpy(np.ones(2)).dtype == "float32"
    assert backend_selection.device_of(array) == nd.default_device()
    assert backend_selection.is_array(array) and not backend_selection.is_array(np.ones(2))


@needs_nd
def test_devices() -> None:
    assert [str(d) for d in (nd.cpu(), nd.cuda(), nd.cpu_numpy())] == [
        "cpu()",
        "cuda()",
        "cpu_numpy()",
    ]
    assert nd.all_devices()[:3] == [nd.cpu(), nd.cuda(), nd.cpu_numpy()]
    assert nd.cpu_numpy() != nd.cpu() and nd.cpu_numpy().enabled()
    assert nd.default_device() == (nd.cpu() if nd.cpu().enabled() else nd.cpu_numpy())
    assert nd.device("cpu_numpy()") == nd.cpu_numpy() and nd.device(nd.cpu()) == nd.cpu()
    disabled = nd.BackendDevice("x", None)
    assert not disabled.enabled() and "x: this device has no backend" in disabled.why()
    assert nd.BackendDevice("cpu", None) == nd.cpu()
    for name in ("anything", "Array", "__tile_size__"):
        assert not hasattr(disabled, name)
    assert nd.cpu_numpy().name == "cpu_numpy" and callable(nd.cpu_numpy().download)
    with pytest.raises(RuntimeError, match="x: this device has no backend"):
        disabled.randn(2)
    with pytest.raises(LookupError, match="unknown device 'cpo'; known: .*Did you mean 'cpu'"):
        nd.device("cpo")
    if not nd.cuda().enabled():
        assert "cuda" in nd.cuda().why()


@needs_nd
def test_device_methods(device: Any) -> None:
    np.random.seed(3)
    expected = np.random.randn(2, 3), np.random.rand(4)
    np.random.seed(3)
    for found, host in zip((device.randn(2, 3), device.rand(4)), expected, strict=True):
        assert found.dtype == "float32" and found.device == device
        np.testing.assert_array_equal(found.numpy(), host.astype(np.float32))
    np.testing.assert_array_equal(device.one_hot(3, np.array([2, 0])).numpy(), np.eye(3)[[2, 0]])
    assert device.one_hot(3, nd.array([1.0], device=device)).tolist() == [[0, 1, 0]]
    assert device.empty((2, 3)).shape == (2, 3)
    assert device.full((2,), 7).tolist() == [7, 7] and device.full((2,), 7).dtype == "float32"
    assert device.zeros(2, 1).tolist() == [[0], [0]] and device.ones((2,)).tolist() == [1, 1]
    assert device.randn(2, dtype="float64").dtype == "float64"
    assert isinstance(device.memory_stats(), dict)


@needs_nd
def test_flat_names() -> None:
    names = "NDArray BackendDevice array empty full cpu cuda cpu_numpy default_device all_devices"
    functions = "broadcast_to reshape maximum log exp tanh sum flip"
    for name in f"{names} {functions}".split():
        assert getattr(nd, name) is getattr(nd.ndarray, name)


@needs_nd
def test_construction(device: Any) -> None:
    for source in ([1, 2], np.array([1, 2]), np.array([1.0, 2.0]), (1, 2), range(1, 3)):
        a = nd.NDArray(source, device=device)
        assert a.dtype == "float32" and a.device == device and a.tolist() == [1, 2]
    assert nd.array([1, 2], dtype="int32", device=device).dtype == "int32"
    b = nd.NDArray(a)
    assert b.device == device and b._handle is not a._handle
    assert nd.array(3.0).shape == ()
    assert nd.empty((2, 3), device=device).shape == nd.empty((2, 3), "float32", device).shape
    assert nd.full((2,), 3, device=device).dtype == "float32"
    made = nd.NDArray.make((2, 2), strides=(1, 2), device=device, handle=a._handle, offset=0)
    assert (made._shape, made._strides, made._offset, made._device) == ((2, 2), (1, 2), 0, device)
    assert nd.NDArray.compact_strides((2, 3)) == (3, 1)


@needs_nd
def test_subclass_and_process_slice() -> None:
    class Slices(nd.NDArray):
        def __getitem__(self, key: Any) -> Any:
            items = key if isinstance(key, tuple) else (key,)
            return tuple(
                self.process_slice(s, i) if isinstance(s, slice) else slice(s, s + 1, 1)
                for i, s in enumerate(items)
            )

    a = Slices(np.ones((4, 5)))
    assert a[1, :-1:2] == (slice(1, 2, 1), slice(0, 4, 2))
    assert a[2:] == (slice(2, 4, 1),)
    assert a[::-1] == (slice(3, None, -1),)
    assert isinstance(a + a, nd.NDArray) and (a + a).shape == (4, 5)


@needs_nd
def test_a_subclass_sees_its_own_process_slice(device: Any) -> None:
    seen = []

    class Watched(nd.NDArray):
        def process_slice(self, sl: slice, dim: int) -> slice:
            seen.append((dim, super().process_slice(sl, dim)))
            return seen[-1][1]

    a = Watched(np.arange(20.0).reshape(4, 5), device=device)
    np.testing.assert_array_equal(a[1:, -2:].numpy(), np.arange(20.0).reshape(4, 5)[1:, -2:])
    a[:2] = 0.0
    assert seen[:3] == [(0, slice(1, 4, 1)), (1, slice(3, 5, 1)), (0, slice(0, 2, 1))]


@needs_nd
def test_matmul_tiled_of_the_native_module() -> None:
    device = nd.cpu()
    if not device.enabled():
        pytest.skip("the extension is not built")
    tile = device.__tile_size__
    x, y = (np.random.rand(*tiles, tile, tile).astype("float32") for tiles in ((4, 2), (2, 3)))
    out = nd.NDArray.make((4, 3, tile, tile), device=device)
    handles = [nd.array(x, device=device)._handle, nd.array(y, device=device)._handle, out._handle]
    device.matmul_tiled(*handles, 4 * tile, 2 * tile, 3 * tile)
    np.testing.assert_allclose(out.numpy(), np.einsum("mnab,npbc->mpac", x, y), rtol=1e-5)
    with pytest.raises(ValueError, match="whole 8x8 tiles"):
        device.matmul_tiled(*handles, 3, 3, 3)
