"""Test lists of prepared kernel calls, which run without Python between the kernels."""

import os
import signal
import threading
from typing import Any

import numpy as np
import pytest
from kernel_views import backend

from needle.backends.base import Epilogue, View
from needle.shapes import compact_strides

F32 = np.dtype("float32")


def view(number: int, *shape: int, offset: int = 0, dtype: Any = F32) -> View:
    """Return a view of the buffer with this number."""
    return View(number, shape, compact_strides(shape), offset, dtype)


def buffer(values: Any, dtype: Any = F32) -> Any:
    array = np.array(values, dtype)
    handle = backend.allocate(array.size, array.dtype)
    backend.upload(array, View(handle, array.shape, compact_strides(array.shape), 0, array.dtype))
    return handle


def values(handle: Any) -> Any:
    return np.asarray(handle)


def prepared(*calls: tuple[str, Any]) -> Any:
    return backend.prepare_calls([(getattr(backend, name), args) for name, args in calls])


def test_each_run_computes_with_its_own_buffers() -> None:
    run = prepared(
        ("binary", ("multiply", view(0, 2, offset=1), 2.0, view(1, 2))),
        ("where", (view(2, 2, dtype=np.dtype(bool)), view(1, 2), -1.0, view(1, 2))),
        ("fill", (view(3, 1), 7)),
    )
    mask = buffer([True, False], bool)
    for first, shift in ((1.0, 0), (5.0, 1)):
        x, out, seven = buffer(first + np.arange(4)), buffer([0, 0]), buffer([0])
        run(((x, shift), (out, 0), (mask, 0), (seven, 0)))
        assert values(out).tolist() == [2 * (first + 1 + shift), -1.0]
        assert values(seven).tolist() == [7.0]


def test_views_in_an_epilogue_are_bound() -> None:
    epilogue = Epilogue(view(2, 3), None, True)
    run = prepared(("apply_epilogue", (view(0, 2, 3), view(1, 2, 3), epilogue)))
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x, bias = (rng.standard_normal(shape).astype("float32") for shape in ((2, 3), 3))
        out = buffer(np.zeros(6))
        run(((buffer(x), 0), (out, 0), (buffer(bias), 0)))
        np.testing.assert_array_equal(values(out), np.maximum(x + bias, 0).ravel())


def test_a_function_that_is_no_kernel_cannot_be_prepared() -> None:
    assert backend.prepare_calls([(print, ())]) is None
    assert backend.prepare_calls([(backend.allocate, (1, F32))]) is None


def test_views_are_checked_before_they_are_prepared() -> None:
    with pytest.raises(ValueError, match="matmul: "):
        prepared(("matmul", (view(0, 2, 2), view(1, 3, 3), view(2, 2, 2))))
    with pytest.raises(TypeError, match="complete tuple"):
        prepared(("copy", (view(0, 2),)))


@pytest.mark.parametrize(
    ("buffers", "error", "text"),
    [
        (((buffer([1, 2]), 0),), TypeError, "tuple of"),
        ([(buffer([1, 2]), 0), (buffer([1, 2]), 0)], TypeError, "tuple of"),
        (((buffer([1, 2]), 0), (3, 0)), TypeError, "an Array of this module"),
        (((buffer([1, 2]), 0), (buffer([1, 2]), "1")), TypeError, "int"),
        (((buffer([1, 2]), 1), (buffer([1, 2]), 0)), ValueError, "outside its buffer of 2"),
        (((buffer([1, 2]), -1), (buffer([1, 2]), 0)), ValueError, "outside its buffer of 2"),
        (((buffer([1, 2], "f8"), 0), (buffer([1, 2]), 0)), ValueError, "must be its buffer's"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(buffers: Any, error: Any, text: str) -> None:
    run = prepared(("unary", ("exp", view(0, 2), view(1, 2))))
    with pytest.raises(error, match=text):
        run(buffers)


def test_a_kernel_that_fails_ends_the_run() -> None:
    labels = view(1, 2, dtype=np.dtype("int64"))
    run = prepared(
        ("fill", (view(2, 1), 1.0)),
        ("cross_entropy", (view(0, 2, 3), labels, view(3, 2), 0.0)),
        ("fill", (view(4, 1), 1.0)),
    )
    first, last = buffer([0]), buffer([0])
    logits, wrong = buffer(np.zeros(6)), buffer([0, 3], "int64")
    pairs = tuple((handle, 0) for handle in (logits, wrong, first, buffer([0, 0]), last))
    with pytest.raises(ValueError, match="labels must be in"):
        run(pairs)
    assert (values(first)[0], values(last)[0]) == (1.0, 0.0)
    right = buffer([0, 2], "int64")
    run((pairs[0], (right, 0), *pairs[2:]))
    assert values(last)[0] == 1.0


def test_an_interrupt_ends_a_long_list_between_two_kernels(interruptible: None) -> None:
    """Other threads run meanwhile, but cannot run the same list."""
    size, found = 1 << 18, []
    work = [("unary", ("exp", view(0, size), view(1, size)))] * 20_000
    run = prepared(("fill", (view(2, 1), 1.0)), *work, ("fill", (view(3, 1), 1.0)))
    begun, ended = buffer([0]), buffer([0])
    pairs = tuple((handle, 0) for handle in (buffer(np.zeros(size)), buffer(np.zeros(size))))
    pairs += ((begun, 0), (ended, 0))

    def interrupt() -> None:
        while values(begun)[0] == 0.0:
            pass
        try:
            run(pairs)
        except RuntimeError as error:
            found.append(str(error))
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        run(pairs)
    other.join()
    assert "running already" in found[0] and values(ended)[0] == 0.0
