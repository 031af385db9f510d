"""Export indexing, selection and sequence models: onnxruntime gives needle's results."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import needle
from needle import nn, ops
from needle.autograd import as_operand
from needle.onnx import convert, export
from needle.onnx.package import OnnxError
from tests.nn_layers import LAYERS, LayerRow
from tests.op_row import OpRow
from tests.op_table import ROWS

onnx = pytest.importorskip("onnx")
CPU = needle.cpu()


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Function(nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def leaves(results: Any) -> list[Any]:
    if isinstance(results, needle.Tensor):
        return [results.numpy()]
    return [leaf for each in results for leaf in leaves(each)]


def agree(model: Any, example: Any, x: Any, batch_axis: int = 0) -> Any:
    """Export on ``example``; compare needle, the import and onnxruntime on ``x``."""
    model.eval()
    proto = export(model, example, batch_axis)
    onnx.checker.check_model(proto, full_check=True)
    given = needle.Tensor(x, device=CPU, dtype=x.dtype)
    with needle.no_grad():
        expected = leaves(model(given))
        again = leaves(convert(proto, CPU)(given))
    count = len(proto.graph.output)
    for mine, wanted in zip(again, expected[:count], strict=True):
        scale = np.abs(wanted).max(initial=0)
        np.testing.assert_allclose(mine, wanted, rtol=0, atol=2e-6 * scale)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for theirs, wanted in zip(session.run(None, {"input": x}), expected[:count], strict=True):
        assert theirs.shape == wanted.shape
        scale = np.abs(wanted).max(initial=0)
        np.testing.assert_allclose(theirs, wanted, rtol=0, atol=2e-6 * scale)
    return proto


WEIGHT = needle.Tensor(numbers(3, 2, 3, 3, seed=5), device=CPU)
PLACES = np.array([[0, 2], [1, 1]])
CASES: dict[str, Callable[[Any], Any]] = {
    "shapes": lambda x: ops.reshape(x, (x.shape[0], 48)) + 1,
    "unequal shapes": lambda x: ops.reshape(x, (x.shape[0] * 3, 16)),
    "layers with relu": nn.Sequential(
        nn.Conv2d(3, 2, 3, padding=1, device=CPU), nn.ReLU(), nn.Linear(4, 4, device=CPU), nn.ReLU()
    ),
    "a number": lambda x: x[:, 1] * 2,
    "the last row": lambda x: x[:, -1],
    "slices": lambda x: x[:, 1:, ::2, -3:-1],
    "a slice backwards": lambda x: x[:, :, ::-1, 3:0:-2],
    "a new axis": lambda x: x[:, None, :, 0],
    "an ellipsis": lambda x: x[..., 0, None],
    "positions": lambda x: x[:, [2, 0, 0]],
    "a matrix of positions": lambda x: x[:, :, PLACES],
    "two arrays": lambda x: x[:, np.array([0, 2]), np.array([1, 3])],
    "arrays apart": lambda x: x[:, np.array([0, 2]), :, np.array([1, 3])],
    "a number beside an array": lambda x: x[:, 1, :, np.array([1, 3, 3])],
    "split": lambda x: ops.split(x, 1)[0] * ops.split(x, 1)[2],
    "stack": lambda x: ops.stack((x, x * 2, x + 1), 1),
    "concatenate": lambda x: ops.concatenate((x, x[:, :1] * 3), 1),
    "flip": lambda x: ops.flip(x, (1, 3)),
    "where": lambda x: ops.where(x > 0, x, x * 0.1),
    "where not": lambda x: ops.where(ops.not_equal(ops.floor(x), 0), x, x * x),
    "a number as a condition": lambda x: ops.where(ops.relu(x), x, x - 1),
    "zeros of the batch": lambda x: (
        x.sum(axes=(2, 3)) @ np.ones((3, 2), "float32") + needle.init.zeros(x.shape[0], 2)
    ),
    "broadcast over the batch": lambda x: ops.broadcast_to(x.sum(axes=(0, 1)), (x.shape[0], 4, 4)),
    "padding": lambda x: ops.pad(x, (1, 2, 0, 1), value=2.0) + ops.pad(x, (1, 2, 0, 1), "reflect"),
    "running sums": lambda x: ops.cumsum(x, 1) + ops.cumsum(x, 2, reverse=True),
    "places of extremes": lambda x: ops.astype(ops.argmax(x, 1) + ops.argmin(x, 1), "float32"),
    "transposed convolution": lambda x: (
        ops.conv2d_input_grad(x, WEIGHT, (x.shape[0], 2, 8, 7), stride=2, padding=1)
        + ops.conv2d_input_grad(x, WEIGHT, (x.shape[0], 2, 10, 9), stride=2)[:, :, 2:, :7]
    ),
    "pooling rounded up": lambda x: ops.max_pool2d(x, 3, 2, ceil_mode=True),
    "dilated windows": lambda x: ops.max_pool2d(x, 2, 1, 1, (2, 1), ceil_mode=True),
    "positions found": lambda x: ops.gather(x, 2, ops.argsort(x, 2)[:, :, :2]),
    "largest": lambda x: (ops.topk(x, 2, 1), ops.sort(x, 3, descending=True).values),
    "shifts": lambda x: ops.roll(x, (1, -3, 9), (1, 2, 3)),
    "without a gradient": lambda x: ops.clip(x.detach(), -0.5, 0.5) + x,
    "pieces": lambda x: (*x.split([1, 2], 1), *x.chunk(3, -1), x.unbind(3)[1], x.mT),
    "limits": lambda x: x.clamp(x[:, :1], 1.5),
    "einsum": lambda x: ops.einsum("nchw,ncvw->nhv", x, x * 2),
    "images at places": lambda x: [
        ops.grid_sample(x, ops.permute(x[:, 1:], (0, 2, 3, 1)) * 1.3, mode, padding, align)
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border", "reflection")
        for align in (False, True)
    ],
    "repetition": lambda x: ops.tile(x, (1, 2, 1, 1)),
    "two results": lambda x: (x * 2, [x + 1, x[:, 0]]),
}


@pytest.mark.parametrize("name", CASES)
def test_ops(name: str) -> None:
    agree(Function(CASES[name]), numbers(2, 3, 4, 4), numbers(5, 3, 4, 4, seed=1))


@pytest.mark.parametrize(
    "row",
    [r for r in LAYERS if len(r.shapes) == 1 and "N" in r.shapes[0]],
    ids=lambda row: row.case,
)
def test_layers(row: LayerRow) -> None:
    layer = row.make(device=CPU, dtype="float32").eval()
    random, axis = np.random.default_rng(1), row.shapes[0].index("N")
    sizes = {"H": 6, "W": 6, "L": 7, "T": 4}
    example, x = (row.inputs(random, N=n, **sizes)[0].astype("float32") for n in (2, 3))
    agree(Function(lambda x: row.call(layer, x)), example, x, axis)


def ids(*shape: int, below: int = 20, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, below, shape)


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_transformer(batch_first: bool) -> None:
    np.random.seed(0)
    model = nn.Transformer(
        8, 16, 2, num_head=2, dim_head=4, batch_first=batch_first, sequence_len=9, device=CPU
    )
    axis = 0 if batch_first else 1
    shapes = [(2, 6, 8), (5, 6, 8)] if batch_first else [(6, 2, 8), (6, 5, 8)]
    agree(model, numbers(*shapes[0]), numbers(*shapes[1], seed=1), batch_axis=axis)


def test_attention_and_embedding() -> None:
    np.random.seed(0)
    model = nn.Sequential(nn.Embedding(20, 8, device=CPU), nn.AttentionLayer(8, 2, 4, device=CPU))
    proto = agree(model, ids(2, 6), ids(3, 6, seed=1))
    assert proto.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.INT64
    agree(model, np.zeros((1, 6), np.int32), ids(3, 6, seed=1).astype(np.int32))


@pytest.mark.parametrize("kind", ["rnn", "lstm", "transformer"])
def test_a_language_model_from_ids(kind: str) -> None:
    """A language model with the course's shapes: ids (T, B), logits of T * B rows."""
    np.random.seed(0)
    layers = {
        "rnn": lambda: nn.RNN(8, 8, 2, device=CPU),
        "lstm": lambda: nn.LSTM(8, 8, device=CPU),
        "transformer": lambda: nn.Transformer(
            8, 8, 1, num_head=2, dim_head=4, sequence_len=9, device=CPU
        ),
    }

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, 8, device=CPU)
            self.layers, self.out = layers[kind](), nn.Linear(8, 20, device=CPU)

        def forward(self, x: Any) -> Any:
            y, _ = self.layers(self.embedding(x))
            return self.out(ops.reshape(y, (y.shape[0] * y.shape[1], 8)))

    agree(Model(), ids(5, 2), ids(5, 4, seed=1), batch_axis=1)


class Table(nn.Module):
    """A row of the op table; its floating inputs are the first sample in the model's input."""

    def __init__(self, row: OpRow) -> None:
        super().__init__()
        self.row, self.given = row, inputs_of(row, 0)

    def forward(self, x: Any) -> Any:
        x, begin, arguments = x[0], 0, []
        for array in self.given:
            end = begin + array.size * (array.dtype.kind == "f")
            part = ops.reshape(x[begin:end], array.shape) if end > begin else array
            arguments.append(as_operand(part, x))
            begin = end
        return self.row.call(*arguments)


def inputs_of(row: OpRow, seed: int) -> list[Any]:
    arrays = map(np.asarray, row.inputs(np.random.default_rng(seed)))
    return [a.astype("float32") if a.dtype.kind == "f" else a for a in arrays]


def packed(row: OpRow, seed: int) -> Any:
    """Return the floats of all inputs as one row."""
    parts = [a.reshape(-1) for a in inputs_of(row, seed) if a.dtype.kind == "f"]
    return np.concatenate([*parts, np.zeros(0, "float32")])[None]


WITHOUT_OPERATOR = {
    "confusion_matrix",
    *("conv", "conv2d_weight_grad", "cross_entropy", "cumprod", "diag", "dilate", "undilate"),
    *("fused_add_scalars", "max_unpool2d", "scatter", "scatter_add", "binary_cross_entropy"),
    *("adaptive_max_pool1d", "adaptive_max_pool2d", "getitem-mask", "batch_norm-statistics"),
    *("divide-floor 1.0", "divide-floor -1.0"),
}
"""Ops, or rows of them, that are refused by name."""
TABLE = [row for row in ROWS if packed(row, 0).size and all(a.size for a in inputs_of(row, 0))]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
def test_an_op_exports_as_it_is_or_is_refused_by_name(row: OpRow) -> None:
    """No op branches on the values of its inputs, which exporters and replays would not notice."""
    try:
        agree(Table(row), packed(row, 0), packed(row, 1))
    except (OnnxError, ValueError) as error:
        assert {row.name, row.id} & WITHOUT_OPERATOR, error
        assert "must be the same for every" not in str(error)


DTYPES = ("bool", "uint8", "int32", "int64", "float32")
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / (b + 1),
    "divide towards 0": lambda a, b: ops.divide(a, b + 1, "trunc"),
    "subtract": lambda a, b: a - b,
    "power": lambda a, b: ops.power(ops.abs(a), b),
    "maximum": ops.maximum,
    "minimum": ops.minimum,
    "matmul": lambda a, b: ops.matmul(a, ops.transpose(b, (1, 2))),
    "concatenate": lambda a, b: ops.concatenate([a, b], 1),
    "stack": lambda a, b: ops.stack([a, b], 1),
    "where": lambda a, b: ops.where(a, a, b),
    "greater": lambda a, b: ops.astype(a > b, "float32"),
    "equal": lambda a, b: ops.astype(ops.equal(a, b), "float32"),
    "logical_and": lambda a, b: ops.astype(ops.logical_and(a, b), "float32"),
    "mean": lambda a, b: ops.mean(b, 1) + a[:, 0],
    "isfinite": lambda a, b: ops.astype(ops.isfinite(b), "float32") + a,
    "exp": lambda a, b: ops.exp(b) + a,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_operands_of_two_dtypes(name: str, dtype: str) -> None:
    """The second operand has another dtype, and comes from the input or is stored."""
    stored = (np.arange(12).reshape(1, 3, 4) % 3).astype(dtype)
    for other in (
        lambda x: ops.astype(ops.abs(x) * 2, dtype),
        lambda x: ops.broadcast_to(
            needle.Tensor(stored, device=CPU, dtype=dtype, requires_grad=False), x.shape
        ),
    ):
        model = Function(lambda x, other=other: BINARY[name](x, other(x)))
        agree(model, numbers(2, 3, 4), numbers(5, 3, 4, seed=1))


def test_an_attention_mask_that_is_computed() -> None:
    model = nn.MultiheadAttention(8, 2, batch_first=True, device=CPU)
    masked = Function(lambda x: model(x, x, x, key_padding_mask=x.sum(2) > 0)[0])
    agree(masked, numbers(2, 5, 8), numbers(3, 5, 8, seed=1))


def test_two_names_of_one_weight_are_stored_once() -> None:
    first, second = nn.Linear(4, 4, bias=False, device=CPU), nn.Linear(4, 4, device=CPU)
    second.weight = first.weight
    proto = agree(nn.Sequential(first, second), numbers(2, 4), numbers(3, 4, seed=1))
    assert [each.dims[:] for each in proto.graph.initializer].count([4, 4]) == 1
    again = export(nn.Sequential(first, second), numbers(2, 4))
    assert again.SerializeToString() == proto.SerializeToString()


def test_what_depends_on_values_is_refused() -> None:
    masked = Function(lambda x: x[x.numpy() > 0])
    with pytest.raises(OnnxError, match="an index with a mask|must be the same"):
        export(masked, numbers(2, 3))
    table = needle.Tensor(numbers(20, 3), device=CPU)
    shifted = Function(lambda x: ops.embedding(table, x.numpy() + 1) + x.sum())
    with pytest.raises(OnnxError, match="must be the same for every input"):
        export(shifted, ids(4, below=10))
