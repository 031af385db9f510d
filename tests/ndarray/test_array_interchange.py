"""Exchange NDArrays with NumPy, DLPack and torch; pickle, copy and print them."""

import copy
import gc
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from array_layouts import DTYPES, LAYOUTS, case, check

import needle
from needle import Tensor, backends
from needle import ndarray as nd
from needle.errors import DeviceError, DTypeError, PrecisionWarning, ShapeError


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_and_dlpack_share_memory(layout: str, dtype: str, device: Any) -> None:
    a, host = case(layout, dtype, device)
    for shared in (np.asarray(a), np.from_dlpack(a), a.__array__()):
        assert shared.dtype == dtype
        np.testing.assert_array_equal(shared, host)
        if a.size:
            assert np.shares_memory(shared, np.asarray(a))
    if layout != "broadcast" and a.size:
        np.asarray(a)[...] = True
        assert (a == 1).all()
        a[...] = 0
        assert not np.asarray(a).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_buffer_has_the_stride_of_its_dtype(dtype: str, device: Any) -> None:
    host = np.arange(5).astype(dtype)
    a = nd.array(host, dtype=dtype, device=device)
    seen = np.asarray(a.view.handle)
    assert seen.strides == (host.itemsize,)
    np.testing.assert_array_equal(seen, host)


def test_a_copy_is_a_copy(device: Any) -> None:
    a = nd.ones((3,), device=device)
    for copied in (np.array(a), a.__array__(copy=True), np.asarray(a, dtype="float64")):
        copied[:] = 5
        assert a.tolist() == [1, 1, 1]
    for read_only in (a.numpy(), a.flat.numpy()):
        with pytest.raises(ValueError, match="read-only"):
            read_only[:] = 5
    with pytest.raises(ValueError, match="needs a copy"):
        a.__array__(dtype="float64", copy=False)


def test_shared_memory_outlives_the_array(device: Any) -> None:
    shared = [np.asarray(nd.full((1000,), 3.0, device=device)) for _ in range(3)]
    shared.append(np.from_dlpack(nd.full((1000,), 3.0, device=device)))
    gc.collect()
    others = [nd.zeros((1000,), device=device) for _ in range(8)]
    assert all((host == 3).all() for host in shared) and len(others) == 8


def test_a_broadcast_view_is_read_only_outside(device: Any) -> None:
    wide = nd.ones((1, 3), device=device).broadcast_to((4, 3))
    assert not np.asarray(wide).flags.writeable
    with pytest.raises(ValueError):
        np.asarray(wide)[0] = 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_from_dlpack_shares_dense_memory(dtype: str, device: Any) -> None:
    host = np.arange(24).reshape(2, 3, 4).astype(dtype)
    for source in (host, host.transpose(2, 0, 1), host[1]):
        a = nd.from_dlpack(source, device=device)
        assert a.device == device and a.dtype == dtype
        check(a, source)
        assert np.shares_memory(np.asarray(a), host)
    a[0] = 0
    assert not host[1, 0].any()
    strided = host[:, ::2]
    check(nd.from_dlpack(strided, device=device), strided)
    assert not np.shares_memory(np.asarray(nd.from_dlpack(strided, device=device)), host)
    copied = nd.from_dlpack(host, device=device, copy=True)
    assert not np.shares_memory(np.asarray(copied), host)
    host.flags.writeable = False
    a = nd.from_dlpack(host, device=device)
    a[0] = 1
    assert not host[1, 0].any() and not np.shares_memory(np.asarray(a), host)
    with pytest.raises(ShapeError, match="from_dlpack: .* cannot share this memory"):
        nd.from_dlpack(strided, device=device, copy=False)


def test_from_dlpack_of_our_own(device: Any) -> None:
    a = nd.arange(6, device=device).reshape((2, 3))
    b = nd.from_dlpack(a.T)
    assert b.device == device
    b[0, 1] = 9
    assert a.tolist() == [[0, 1, 2], [9, 4, 5]]
    assert a.__dlpack_device__() == (1, 0)


def test_asarray_without_a_copy(device: Any) -> None:
    host = np.ones((2, 3), np.float32)
    a = nd.asarray(host, device=device, copy=False)
    a[0] = 4
    assert host[0, 0] == 4
    assert not np.shares_memory(np.asarray(nd.asarray(host, device=device)), host)
    host.flags.writeable = False
    with pytest.raises(ShapeError, match="cannot share this memory"):
        nd.asarray(host, device=device, copy=False)


def test_torch_both_ways(device: Any) -> None:
    torch = pytest.importorskip("torch")
    a = nd.arange(6, dtype="float32", device=device).reshape((2, 3))
    tensor = torch.from_dlpack(a.T)
    tensor[0, 1] = 9
    assert a.tolist() == [[0, 1, 2], [9, 4, 5]]
    back = nd.from_dlpack(tensor, device=device)
    back[0, 0] = -1
    assert float(a[0, 0]) == -1


class Unshareable(type(backends.get("cpu_numpy"))):  # type: ignore[misc]
    """A backend whose memory the host cannot access."""

    name = "unshareable"

    def export(self, a: Any) -> None:
        return None

    def adopt(self, source: Any) -> None:
        return None


def test_a_device_that_shares_nothing_still_converts() -> None:
    place = nd.BackendDevice("unshareable", Unshareable())
    a = nd.array([[1.0, 2.0]], device=place)
    np.testing.assert_array_equal(np.asarray(a), [[1, 2]])
    assert a.to(nd.cpu_numpy()).tolist() == [[1, 2]]
    a[:, 1:] = a[:, :1]
    assert a.tolist() == [[1, 1]]
    with pytest.raises(ValueError, match="memory cannot be shared"):
        a.__array__(copy=False)
    for call in (a.__dlpack__, a.__dlpack_device__):
        with pytest.raises(BufferError, match="does not share memory; use .numpy"):
            call()
    with pytest.raises(DeviceError, match="from_dlpack: the array must be in the CPU.s memory"):
        nd.from_dlpack(a)
    check(nd.from_dlpack(np.ones(2, np.float32), device=place), [1, 1])


UNALIGNED = np.frombuffer(b"x" + np.arange(6, dtype=np.float32).tobytes(), np.float32, 6, 1)
RECORDS = np.array([(1, 2.5), (3, 4.5)], [("a", "u1"), ("b", "<f4")])
FOREIGN = np.arange(4, dtype=">i4")


@pytest.mark.parametrize("host", [UNALIGNED, UNALIGNED.reshape(2, 3).T, RECORDS["b"], FOREIGN])
def test_memory_that_no_kernel_reads_is_copied(host: Any, device: Any) -> None:
    """Unaligned arrays, fields of records and byte-swapped arrays are copied."""
    native = host.astype(host.dtype.newbyteorder("="))
    check(nd.asarray(host, device=device), native)
    check(nd.from_dlpack(host, device=device), native)
    check(nd.zeros(host.shape, device=device) + host, native)
    a = nd.zeros(host.shape, native.dtype, device)
    a[...] = host
    check(a, native)
    np.testing.assert_array_equal(Tensor(host, device=device).numpy(), native)


def test_a_tensor_exchanges_its_memory(device: Any) -> None:
    x = Tensor(np.arange(3.0), device=device)
    shared = np.from_dlpack(x)
    shared[0] = 7
    assert x.numpy().tolist() == [7, 1, 2]


# ---- NumPy's ufuncs --------------------------------------------------------------------------

UFUNCS = ["add", "multiply", "arctan2", "greater", "maximum", "exp", "absolute", "sqrt", "rint"]


@pytest.mark.parametrize("name", UFUNCS)
def test_ufuncs_give_needle_arrays(name: str, device: Any) -> None:
    ufunc = getattr(np, name)
    a, host = case("permuted", "float32", device)
    a, host = nd.abs(a), abs(host)
    if ufunc.nin == 1:
        check(ufunc(a), ufunc(host))
        return
    for result in (ufunc(a, a), ufunc(a, host), ufunc(host, a)):
        assert result.device == device
        check(result, ufunc(host, host))
    check(ufunc(np.float64(2), a), ufunc(np.float32(2), host))


def test_numpy_operands_of_operators(device: Any) -> None:
    a, host = case("compact", "float32", device)
    for result in (host + a, a + host, host[0] + a, np.float32(1) * (a + host)):
        assert isinstance(result, nd.NDArray)
    check(host - a, np.zeros_like(host))
    check(host @ a.T, host.astype("f8") @ host.T, 1e-4)
    assert (np.float64(2) * a).dtype == "float32"
    assert (host.astype("float64") * a).dtype == "float64"
    assert (host == a).all() and isinstance(host < a, nd.NDArray)


def test_numpy_functions_by_method(device: Any) -> None:
    a, host = case("permuted", "float32", device)
    for name in ("sum", "prod", "max", "min", "mean", "var", "std", "any", "all"):
        np.testing.assert_allclose(
            np.asarray(getattr(np, name)(a, axis=1)), getattr(np, name)(host, axis=1), rtol=1e-4
        )
    check(a.var(0, ddof=1), host.var(0, ddof=1), 1e-4)
    np.testing.assert_allclose(np.concatenate([a, a]), np.concatenate([host, host]))


REFUSED = [
    (lambda a: np.add.reduce(a), DTypeError, r"numpy.add.reduce: not supported for needle arrays"),
    (lambda a: np.add.at(a, 0, 1), DTypeError, r"numpy.add.at: not supported"),
    (lambda a: np.add(a, a, out=np.ones((2, 2))), DTypeError, "numpy.add with out=: not supported"),
    (lambda a: np.add(a, a, where=True), DTypeError, "numpy.add with where=: not supported"),
    (lambda a: np.exp(a, dtype="float64"), DTypeError, "numpy.exp with dtype=: not supported"),
    (lambda a: np.heaviside(a, 1.0), DTypeError, "numpy.heaviside: not supported"),
    (lambda a: np.fmod(a, 2), DTypeError, "numpy.fmod: not supported"),
    (lambda a: np.add(a, np.array(["x"])), TypeError, "elements must be bool"),
    (lambda a: np.add(a, {}), TypeError, "operand type"),
    (lambda a: np.ones((2, 2)).__iadd__(a), DTypeError, "numpy.add with out=: not supported"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_other_uses_of_ufuncs_are_type_errors(
    call: Any, error: type[Exception], message: str, device: Any
) -> None:
    with pytest.raises(error, match=message):
        call(nd.ones((2, 2), device=device))


# ---- pickle, copy, scalars, text -------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pickle_and_copy(layout: str, device: Any) -> None:
    for dtype in DTYPES:
        a, host = case(layout, dtype, device)
        for clone in (pickle.loads(pickle.dumps(a)), copy.copy(a), copy.deepcopy(a), nd.NDArray(a)):
            assert (clone.dtype, clone.device) == (dtype, device)
            check(clone, host)
            assert clone._handle is not a._handle


def test_devices_pickle_and_copy_by_name(device: Any) -> None:
    for clone in (pickle.loads(pickle.dumps(device)), copy.copy(device), copy.deepcopy(device)):
        assert clone == device and hash(clone) == hash(device) and clone.enabled()
    bare = nd.BackendDevice.__new__(nd.BackendDevice)  # unpickling starts with an empty object
    assert not hasattr(bare, "anything")
    with pytest.raises(AttributeError):
        _ = bare.mod
    gone = pickle.loads(pickle.dumps(nd.BackendDevice("elsewhere", None)))
    assert not gone.enabled() and "unknown device 'elsewhere'" in gone.why()


def test_an_array_of_a_missing_device_says_so_when_unpickled() -> None:
    place = nd.BackendDevice("elsewhere", Unshareable())
    data = pickle.dumps(nd.ones((2,), device=place))
    with pytest.raises(DeviceError, match="unpickle: .* missing: unknown device 'elsewhere'"):
        pickle.loads(data)


def test_python_scalars(device: Any) -> None:
    a = nd.asarray([[2.5]], device=device)
    assert float(a) == 2.5 and int(a) == 2 and complex(a) == 2.5 and bool(a) and a.item() == 2.5
    assert [10, 20, 30][nd.asarray(2, device=device)] == 30
    assert f"{a[0, 0]:.2f}" == "2.50" and f"{a}" == "[[2.5]]"
    assert a.tolist() == [[2.5]]
    with pytest.raises(TypeError, match="unhashable"):
        hash(a)


def test_repr() -> None:
    assert repr(nd.array([[1, 2], [3, 4]])) == "NDArray([[1., 2.],\n         [3., 4.]])"
    assert repr(nd.asarray([1, 2])) == "NDArray([1, 2], dtype=int64)"
    assert repr(nd.zeros((0, 3))) == "NDArray([], shape=(0, 3))"
    if nd.cpu().enabled():
        assert repr(nd.asarray(1.5, device=nd.cpu())) == "NDArray(1.5)"
        elsewhere = nd.asarray(1.5, device=nd.cpu_numpy())
        assert repr(elsewhere) == "NDArray(1.5, device=cpu_numpy())"
    assert len(repr(nd.zeros((1000, 1000)))) < 1000
    assert str(nd.array([1.0])) == "[1.]"


# ---- integers that float32 cannot hold -------------------------------------------------------

ODD = 2**24 + 1
MAKERS = {
    "Tensor": needle.Tensor,
    "array": nd.array,
    "NDArray": nd.NDArray,
    "from_numpy": nd.from_numpy,
    "full": lambda x: needle.backend_ndarray.full((2,), int(np.asarray(x).reshape(-1)[-1])),
}


def rounding_warnings(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(each.category is PrecisionWarning for each in caught)
    assert all(each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_integers_that_are_rounded_give_a_warning(make: Any) -> None:
    rounded = {
        "int64": [ODD, -ODD, 2**31 + 1, 2**53 + 1, 2**63 - 1, -(2**63) + 1],
        "uint64": [ODD, 2**63 + 1, 2**64 - 1],
        "int32": [ODD, -ODD, 2**31 - 1],
        "uint32": [ODD, 2**32 - 1],
    }
    for dtype, values in rounded.items():
        for value in values:
            for host in (np.array(value, dtype), np.array([[0, 5], [7, value]], dtype)):
                (message,) = rounding_warnings(lambda host=host: make(host))
                assert f"cannot hold the integer {value} exactly; pass dtype=" in message
    assert len(rounding_warnings(lambda: make([1, ODD]))) == 1
    exact = {
        "int64": [0, 2**24, -(2**24), 2**24 + 2, 2**31, 2**62, -(2**63)],
        "uint64": [2**63],
        "int32": [2**30, -(2**31)],
        "uint8": [255],
        "int16": [-(2**15)],
    }
    for dtype, values in exact.items():
        for value in values:
            assert rounding_warnings(lambda v=value, d=dtype: make(np.array([1, v], d))) == []
    assert rounding_warnings(lambda: make(np.full(100_000, 2**20))) == []
    assert rounding_warnings(lambda: make(np.full((7, 5), 2**20).T)) == []


def test_a_dtype_that_was_asked_for_and_operands_give_no_warning() -> None:
    def calls() -> None:
        for dtype in ("float32", "int64", "float64"):
            needle.Tensor([ODD], dtype=dtype)
            nd.array(ODD, dtype=dtype)
        assert nd.asarray([ODD]).dtype == "int64" and nd.asarray([ODD]).item() == ODD
        assert needle.Tensor(np.array([ODD]), dtype="int64").item() == ODD
        x = needle.Tensor([1.0])
        assert (x * 0 + ODD).dtype == (x * 0 + np.array([ODD])).dtype == "float32"
        assert (x * 0 + needle.Tensor([ODD, 1], dtype="int64")).numpy()[0] == 2**24
        assert (x.astype("float64") * np.array([ODD, 1])).numpy()[0] == ODD
        nd.full((2,), ODD, dtype="float32")

    assert rounding_warnings(calls) == []
