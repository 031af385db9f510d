"""Compare imported operators with onnx's reference; refusals name the node."""

import inspect
import sys
from typing import Any

import numpy as np
import pytest

import needle
from needle.onnx import convert
from needle.onnx.call import OPERATORS
from needle.onnx.package import NEWEST, OLDEST, OnnxError

onnx = pytest.importorskip("onnx")
reference = pytest.importorskip("onnx.reference")
helper, numpy_helper = onnx.helper, onnx.numpy_helper


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model(
    kind: str,
    x: Any,
    stored: dict[str, Any],
    outputs: str = "y",
    opset: int = 18,
    **attributes: Any,
) -> Any:
    """Return a model of one node with the input x; names in ``stored`` are its further inputs."""
    names = ["x", *("" if value is None else name for name, value in stored.items())]
    node = helper.make_node(kind, names, outputs.split(), name="the_node", **attributes)
    info, of = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [node],
        "g",
        [info("x", of(x.dtype), x.shape)],
        [info("y", of(np.dtype(np.int64) if kind == "ArgMax" else x.dtype), [])],
        [numpy_helper.from_array(v, name) for name, v in stored.items() if v is not None],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def run(proto: Any, x: Any) -> Any:
    module = convert(proto, needle.cpu())
    with needle.no_grad():
        return module(x).numpy()


def i(*values: int) -> Any:
    return np.array(values, np.int64)


IMAGE = numbers(2, 4, 6, 5)
CASES: dict[str, tuple[str, Any, dict[str, Any], dict[str, Any]]] = {
    "slice": ("Slice", IMAGE, {"s": i(1, -1), "e": i(4, -100), "a": i(1, -1), "t": i(1, -2)}, {}),
    "split": ("Split", IMAGE, {"sizes": i(1, 3)}, {"axis": 1, "outputs": "y z"}),
    "split in parts": ("Split", IMAGE, {}, {"axis": -1, "num_outputs": 3, "outputs": "y z w"}),
    "gather": ("Gather", IMAGE, {"at": np.array([[0, -1], [2, 2]])}, {"axis": 1}),
    "gather elements": (
        "GatherElements",
        IMAGE,
        {"at": np.random.default_rng(0).integers(-4, 4, (2, 3, 6, 5))},
        {"axis": 1},
    ),
    "gather nd": ("GatherND", IMAGE, {"at": np.array([[[0, 1]], [[3, -1]]])}, {"batch_dims": 1}),
    "expand": ("Expand", numbers(3, 1), {"shape": i(2, 1, 4)}, {}),
    "tile": ("Tile", numbers(2, 3), {"times": i(2, 3)}, {}),
    "pad": ("Pad", IMAGE, {"p": i(0, 0, 1, 2, 0, 0, 2, 1)}, {"mode": "reflect"}),
    "pad with edges": ("Pad", IMAGE, {"p": i(0, 1, 1, 2, 0, 0, 2, 1)}, {"mode": "edge"}),
    "pad less": ("Pad", IMAGE, {"p": i(0, 0, -1, 2, 0, 0, 2, -1)}, {}),
    "trilu": ("Trilu", IMAGE, {"k": np.array(1)}, {"upper": 0}),
    "mean": ("ReduceMean", IMAGE, {"axes": i(-1, 1)}, {"keepdims": 0}),
    "l2": ("ReduceL2", IMAGE, {"axes": i(2)}, {}),
    "log of sums": ("ReduceLogSumExp", IMAGE, {"axes": i(2, 3)}, {}),
    "product": ("ReduceProd", IMAGE, {"axes": i(1)}, {}),
    "running sums": ("CumSum", IMAGE, {"axis": np.array(2)}, {"exclusive": 1, "reverse": 1}),
    "place": ("ArgMax", IMAGE, {}, {"axis": 1, "keepdims": 0}),
    "softmax": ("Softmax", IMAGE, {}, {"axis": 1}),
    "softmax of old": ("Softmax", IMAGE, {}, {"axis": 2, "opset": 11}),
    "squeeze of old": ("Squeeze", numbers(1, 3, 1), {}, {"axes": [0, -1], "opset": 11}),
    "unsqueeze of old": ("Unsqueeze", IMAGE, {}, {"axes": [0, -1], "opset": 11}),
    "clip of old": ("Clip", IMAGE, {}, {"min": -0.5, "max": 0.5, "opset": 10}),
    "division": ("Div", i(7, -7, 8, -1), {"b": i(2, 2, -3, 5)}, {}),
    "remainder": ("Mod", i(7, -7, 8, -1), {"b": i(2, 2, -3, 5)}, {}),
    "prelu": ("PRelu", IMAGE, {"slope": numbers(4, 1, 1)}, {}),
    "lrn": ("LRN", numbers(4, 4, 3, 2), {}, {"size": 4, "alpha": 0.3, "beta": 0.6, "bias": 1.5}),
    "gelu": ("Gelu", IMAGE, {}, {"opset": 20, "approximate": "tanh"}),
    "hard swish": ("HardSwish", IMAGE * 4, {}, {}),
    "hard sigmoid": ("HardSigmoid", IMAGE * 4, {}, {"alpha": 0.15, "beta": 0.4}),
    "softplus": ("Softplus", IMAGE * 20, {}, {}),
    "celu": ("Celu", IMAGE, {}, {"alpha": 2.0}),
    "sequences": ("Conv", numbers(2, 4, 9), {"w": numbers(6, 2, 3)}, {"group": 2, "pads": [1, 2]}),
    "convolution": (
        "Conv",
        IMAGE,
        {"w": numbers(6, 2, 3, 2), "b": numbers(6)},
        {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 1]},
    ),
    "transposed convolution": (
        "ConvTranspose",
        IMAGE,
        {"w": numbers(4, 3, 3, 3), "b": numbers(3)},
        {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 0]},
    ),
    "max of windows": (
        "MaxPool",
        numbers(1, 2, 7, 8),
        {},
        {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1, "dilations": [2, 1]},
    ),
    "mean of windows": (
        "AveragePool",
        numbers(1, 2, 7, 8),
        {},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    ),
    "resize": (
        "Resize",
        IMAGE,
        {"roi": None, "scales": np.array([1, 1, 2, 1.5], np.float32)},
        {"mode": "linear"},
    ),
    "resize to sizes": (
        "Resize",
        IMAGE,
        {"roi": None, "scales": None, "sizes": i(2, 4, 9, 4)},
        {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
    ),
    "nearest": (
        "Resize",
        IMAGE,
        {"roi": None, "scales": np.array([1, 1, 2, 2], np.float32)},
        {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        },
    ),
    "instance norm": ("InstanceNormalization", IMAGE, {"s": numbers(4), "b": numbers(4)}, {}),
    "group norm": (
        "GroupNormalization",
        IMAGE,
        {"s": numbers(4), "b": numbers(4)},
        {"num_groups": 2, "opset": 21},
    ),
    "layer norm": (
        "LayerNormalization",
        IMAGE,
        {"s": numbers(6, 5), "b": numbers(6, 5)},
        {"axis": -2},
    ),
    "einsum": ("Einsum", numbers(2, 3), {"b": numbers(4, 3)}, {"equation": "ij,kj->ki"}),
    "lstm": (
        "LSTM",
        numbers(5, 2, 3),
        {"w": numbers(2, 16, 3), "r": numbers(2, 16, 4, seed=1), "b": numbers(2, 32, seed=2)},
        {"hidden_size": 4, "direction": "bidirectional"},
    ),
    "gru": (
        "GRU",
        numbers(5, 2, 3),
        {"w": numbers(1, 12, 3), "r": numbers(1, 12, 4, seed=1), "b": numbers(1, 24, seed=2)},
        {"hidden_size": 4, "linear_before_reset": 1},
    ),
}
NOT_IN_REFERENCE = {"lstm", "pad less", "softmax of old"}
"""Cases in which onnx's reference deviates from the specification."""


@pytest.mark.parametrize("name", sorted(set(CASES) - NOT_IN_REFERENCE))
def test_results_are_those_of_the_reference(name: str) -> None:
    kind, x, stored, attributes = CASES[name]
    proto = model(kind, x, stored, **attributes)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    expected = reference.ReferenceEvaluator(proto).run(["y"], {"x": x})[0]
    proto.graph.output[0].type.tensor_type.shape.SetInParent()
    found = run(proto, x)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


def test_a_bidirectional_lstm_is_two_lstms() -> None:
    kind, x, stored, attributes = CASES["lstm"]
    found = run(model(kind, x, stored, **attributes), x)
    for way, direction in enumerate(("forward", "reverse")):
        one = {name: value[way : way + 1] for name, value in stored.items()}
        alone = run(model(kind, x, one, hidden_size=4, direction=direction), x)
        np.testing.assert_allclose(found[:, way], alone[:, 0], rtol=1e-6, atol=1e-6)
    w, r, b = (stored[name][0] for name in "wrb")
    h, c = np.zeros((2, 4)), np.zeros((2, 4))
    for step, rows in enumerate(x):
        gates = rows @ w.T + h @ r.T + b[:16] + b[16:]
        part_i, part_o, part_f, part_c = np.split(gates, 4, axis=1)
        c = c / (1 + np.exp(-part_f)) + np.tanh(part_c) / (1 + np.exp(-part_i))
        h = np.tanh(c) / (1 + np.exp(-part_o))
        np.testing.assert_allclose(found[step, 0], h, rtol=1e-5, atol=1e-5)


def test_a_negative_pad_removes_elements() -> None:
    kind, x, stored, attributes = CASES["pad less"]
    expected = np.zeros((2, 4, 7, 6), np.float32)
    expected[:, :, :5, 2:] = x[:, :, 1:, :4]
    np.testing.assert_array_equal(run(model(kind, x, stored, **attributes), x), expected)


def test_softmax_before_opset_13_is_of_rows_of_all_further_axes() -> None:
    kind, x, stored, attributes = CASES["softmax of old"]
    rows = np.exp(np.float64(x.reshape(8, 30)))
    expected = (rows / rows.sum(axis=1, keepdims=True)).reshape(x.shape)
    found = run(model(kind, x, stored, **attributes), x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


# ---- what is refused -----------------------------------------------------------------------------

MATRIX = numbers(3, 4)
REFUSED: dict[str, tuple[str, Any, dict[str, Any], dict[str, Any], str]] = {
    "gather": ("Gather", MATRIX, {"at": i(0)}, {"axis": 3}, r"in \[-2, 1\], got 3"),
    "gather below": ("Gather", MATRIX, {"at": i(0)}, {"axis": -3}, r"in \[-2, 1\], got -3"),
    "gather too far": ("Gather", MATRIX, {"at": i(3)}, {}, r"in \[-3, 2\], got 3"),
    "squeeze": ("Squeeze", numbers(1, 3), {"a": i(2)}, {}, r"in \[-2, 1\], got 2"),
    "squeeze twice": ("Squeeze", numbers(1, 3), {"a": i(0, -2)}, {}, "axes must be distinct"),
    "unsqueeze": ("Unsqueeze", MATRIX, {"a": i(3)}, {}, r"in \[-3, 2\], got 3"),
    "unsqueeze twice": ("Unsqueeze", MATRIX, {"a": i(0, 0)}, {}, "axes must be distinct"),
    "flatten": ("Flatten", MATRIX, {}, {"axis": 3}, r"in \[-2, 2\], got 3"),
    "layer norm": (
        "LayerNormalization",
        MATRIX,
        {"s": numbers(4)},
        {"axis": 2},
        r"in \[-2, 1\], got 2",
    ),
    "softmax": ("Softmax", MATRIX, {}, {"axis": -3}, r"in \[-2, 1\], got -3"),
    "concat": ("Concat", MATRIX, {"b": MATRIX}, {"axis": 2}, r"in \[-2, 1\], got 2"),
    "transpose": ("Transpose", MATRIX, {}, {"perm": [0, -1]}, "perm must name each"),
    "transpose twice": ("Transpose", MATRIX, {}, {"perm": [1, 1]}, "perm must name each"),
    "reduction": ("ReduceSum", MATRIX, {"a": i(2)}, {}, r"in \[-2, 1\], got 2"),
    "reduction twice": ("ReduceMax", MATRIX, {"a": i(0, -2)}, {}, "axes must be distinct"),
    "keepdims": ("ReduceSum", MATRIX, {"a": i(0)}, {"keepdims": 2}, "keepdims must be 0 or 1"),
    "place": ("ArgMax", MATRIX, {}, {"axis": 2}, r"in \[-2, 1\], got 2"),
    "split": ("Split", MATRIX, {"n": i(1, 1)}, {"axis": 2, "outputs": "y z"}, r"got 2"),
    "split sizes": ("Split", MATRIX, {"n": i(1, 1)}, {"outputs": "y z"}, "must add up to 3"),
    "slice": ("Slice", MATRIX, {"s": i(0), "e": i(1), "a": i(2)}, {}, r"in \[-2, 1\], got 2"),
    "slice step": (
        "Slice",
        MATRIX,
        {"s": i(0), "e": i(1), "a": i(0), "t": i(0)},
        {},
        "no step may be 0",
    ),
    "running sums": ("CumSum", MATRIX, {"a": np.array(2)}, {}, r"in \[-2, 1\], got 2"),
    "pad": ("Pad", MATRIX, {"p": i(1, 1)}, {}, "two numbers for each of 2 axes"),
    "reshape": ("Reshape", MATRIX, {"s": i(-1, -1)}, {}, "at most one size may be -1"),
    "reshape below": ("Reshape", MATRIX, {"s": i(-2, 6)}, {}, "at most one size may be -1"),
    "expand": ("Expand", MATRIX, {"s": i(10**9, 3, 4)}, {}, "product at most"),
    "tile": ("Tile", MATRIX, {"s": i(-1, 1)}, {}, "sizes must be 0 or more"),
    "kernel": (
        "Conv",
        IMAGE,
        {"w": numbers(2, 4, 3, 3)},
        {"kernel_shape": [2, 3]},
        r"must agree with the weight's \(3, 3\)",
    ),
    "batch norm": (
        "BatchNormalization",
        IMAGE,
        dict.fromkeys("sbmv", numbers(5)) | {"s": numbers(1)},
        {},
        r"scale must have shape \(4,\), got \(1,\)",
    ),
    "dtype": ("Sigmoid", i(1, 2), {}, {}, r"input 0 must be one of .*got tensor\(int64\)"),
    "two dtypes": ("Add", MATRIX, {"b": i(1)}, {}, r"must be tensor\(float\), got tensor\(int64\)"),
    "division by 0": ("Div", i(1, 2), {"b": i(0)}, {}, "must not be divided by 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_node(name: str) -> None:
    kind, x, stored, attributes, why = REFUSED[name]
    proto = model(kind, x, stored, **attributes)
    with pytest.raises(OnnxError, match=rf"onnx: {kind} \(node 'the_node'\): .*{why}"):
        run(proto, x)


def test_a_further_output_is_refused_only_if_somebody_reads_it() -> None:
    for kind, stored, attributes in [
        ("Dropout", {}, {}),
        ("MaxPool", {}, {"kernel_shape": [2, 2]}),
        ("BatchNormalization", dict.fromkeys("sbmv", np.ones(4, np.float32)), {"opset": 11}),
    ]:
        names = "y unread" if kind != "BatchNormalization" else "y m1 v1 m2 v2"
        proto = model(kind, IMAGE, stored, outputs=names, **attributes)
        alone = model(kind, IMAGE, stored, **attributes)
        np.testing.assert_array_equal(run(proto, IMAGE), run(alone, IMAGE))
    read = model("BatchNormalization", IMAGE, stored, outputs="y m1 v1 m2 v2", opset=11)
    read.graph.node.add(op_type="Add", input=["m1", "m1"], output=["sum"])
    with pytest.raises(OnnxError, match="its outputs .*m1 are not supported"):
        run(read, IMAGE)


def test_every_attribute_of_a_known_operator_is_read() -> None:
    """An attribute that a newer opset adds must not be silently ignored."""
    ignored = {
        *("momentum", "ratio"),  # used only in training
        *("saturate", "round_mode"),  # for dtypes that needle lacks
        *("stash_type", "sorted"),  # needle's result is already as precise and as sorted
        # refused, since the value is then missing
        *("value_string", "value_strings", "sparse_value"),
    }
    missing = []
    room = sys.modules["needle.onnx.operators.convolution"]
    for kind, function in OPERATORS.items():
        module = inspect.getmodule(function)
        assert module is not None
        text = inspect.getsource(module) + inspect.getsource(room)
        for opset in range(OLDEST, min(NEWEST, onnx.defs.onnx_opset_version()) + 1):
            if not onnx.defs.has(kind, opset):
                continue
            for name in onnx.defs.get_schema(kind, opset, "").attributes:
                if f'"{name}"' not in text and f"{name}=" not in text and name not in ignored:
                    missing.append((kind, name))
    assert not missing
