"""Test what all layers have in common: each row of the layer table on every device."""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle.testing import check_gradients
from tests.nn_layers import LAYERS, LayerRow

every_row = pytest.mark.parametrize("row", LAYERS, ids=lambda row: row.case)


def results(value: Any) -> Iterator[Any]:
    """Yield the tensors of nested tuples."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from results(item)
    elif value is not None:
        yield value


def made(row: LayerRow, device: Any, dtype: str = "float64", **given: int) -> tuple[Any, list[Any]]:
    """Return the layer with drawn weights, and its inputs."""
    random = np.random.default_rng(3)
    layer = row.make(device=device, dtype=dtype)
    for p in layer.parameters():
        p.data = ndl.Tensor(random.uniform(0.5, 1.5, p.shape), device=device, dtype=dtype)
    hosts = row.inputs(random, **given)
    return layer, [ndl.Tensor(host, device=device, dtype=dtype) for host in hosts]


def values(row: LayerRow, layer: Any, inputs: list[Any]) -> list[Any]:
    return [y.numpy() for y in results(row.call(layer, *inputs))]


def assert_same(found: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@every_row
def test_copies_pickles_and_states_give_the_same_values(row: LayerRow, device: Any) -> None:
    layer, inputs = made(row, device)
    row.call(layer, *inputs)  # the running statistics have seen one batch only
    fresh = row.make(device=device, dtype="float64")
    fresh.load_state_dict(copy.deepcopy(layer.state_dict()))
    others = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), fresh]
    for training in (True, False):
        wanted = values(row, layer.train(training), inputs)
        for other in others:
            assert_same(values(row, other.train(training), inputs), wanted)
    assert [repr(other) for other in others] == [repr(layer)] * 3
    assert repr(layer).startswith(type(layer).__name__ + "(")
    names = [name for name, _ in layer.named_parameters()]
    assert len(set(names)) == len(names) and set(names) <= set(layer.state_dict())


@every_row
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtype_and_device_are_those_asked_for(row: LayerRow, dtype: str, device: Any) -> None:
    layer, inputs = made(row, device, dtype)
    outputs = list(results(row.call(layer, *inputs)))
    sum((y.sum() for y in outputs[1:]), outputs[0].sum()).backward()
    kept = [*outputs, *layer.parameters(), *(p.grad for p in layer.parameters())]
    assert {str(t.dtype) for t in kept} == {dtype}
    assert {t.device for t in kept} == {inputs[0].device}
    floating = [b for b in layer.buffers() if b.dtype.kind == "f"]
    assert all(b.dtype == dtype and not b.requires_grad for b in floating)


@every_row
def test_float64_and_float32_agree(row: LayerRow, device: Any) -> None:
    wide, inputs = made(row, device)
    narrow, rounded = made(row, device, "float32")
    for a, b in zip(values(row, narrow, rounded), values(row, wide, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@every_row
def test_gradients_are_those_of_differences(row: LayerRow, device: Any) -> None:
    layer, inputs = made(row, device, N=2, T=2)
    parameters = layer.parameters()

    def run(*given: Any) -> Any:
        for p, value in zip(parameters, given[len(inputs) :], strict=True):
            _replace(layer, p, value)
        outputs = list(results(row.call(layer, *given[: len(inputs)])))
        for p, value in zip(parameters, given[len(inputs) :], strict=True):
            _replace(layer, value, p)
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    check_gradients(run, *inputs, *[p.detach() for p in parameters], device=device)


def _replace(layer: Any, old: Any, new: Any) -> None:
    """Replace the references of a module to ``old`` by ``new``."""
    for _, module in layer.named_modules():
        for name, value in vars(module).items():
            if value is old:
                setattr(module, name, new)


@pytest.mark.parametrize("row", [r for r in LAYERS if r.empty], ids=lambda row: row.case)
def test_an_empty_batch_gives_an_empty_result(row: LayerRow, device: Any) -> None:
    layer, inputs = made(row, device)
    if not any("N" in shape for shape in row.shapes):
        pytest.skip("the layer has no batch axis")
    empty, (_, none) = (
        [y.shape for y in results(row.call(layer.eval(), *inputs))],
        made(row, device, N=0),
    )
    for y, full in zip(results(row.call(layer, *none)), empty, strict=True):
        assert 0 in y.shape and len(y.shape) == len(full)


@pytest.mark.skipif(ndl.backend_selection.BACKEND == "np", reason="one device")
@every_row
def test_a_layer_moves_to_another_device_and_dtype(row: LayerRow) -> None:
    layer, inputs = made(row, ndl.cpu_numpy())
    wanted = values(row, layer.eval(), inputs)
    layer.to(ndl.cpu()).to("float32")
    moved = [ndl.Tensor(x.numpy(), device=ndl.cpu(), dtype="float32") for x in inputs]
    for a, b in zip(values(row, layer, moved), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.skipif(ndl.backend_selection.BACKEND == "np", reason="nothing to record")
@pytest.mark.filterwarnings("error")
@every_row
def test_a_captured_step_gives_the_same_values(row: LayerRow, device: Any) -> None:
    layer, inputs = made(row, device)
    other = copy.deepcopy(layer)

    def run(each: Any, *given: Any) -> tuple[Any, ...]:
        outputs = list(results(row.call(each, *given)))
        sum((y.sum() for y in outputs[1:]), outputs[0].sum()).backward()
        return (*outputs, *(p.grad for p in [*given, *each.parameters()]))

    step = ndl.capture(lambda *given: run(layer, *given), state=layer)
    for turn in range(3):
        given = [ndl.Tensor(x * (turn + 1), device=device) for x in inputs]
        found, wanted = step(*given), run(other, *given)
        assert_same([y.numpy() for y in found], [y.numpy() for y in wanted])
    assert_same([b.numpy() for b in layer.buffers()], [b.numpy() for b in other.buffers()])
