"""ONNX models, and corrupted copies of them by fields and by bytes; fuzz_files reads them."""

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import needle
from needle.onnx import call, load
from needle.onnx.package import OnnxError
from tests.onnx_models.test_import import CASES
from tests.onnx_models.test_import import model as single

from .mutations import mutated

LIMIT = 2**20
"""The largest number of elements that a mutated file may request, so that a case takes ms."""
NUMBERS = (0, 1, 2, 3, -1, -2, 5, 7, 99, 127, 255, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 10**9)
FLOATS = (0.0, -1.0, 1e-30, 1e30, float("nan"), float("inf"), 0.5)
STRINGS = ("", "x", "y", "w", "../up", "/etc/passwd", "SAME_UPPER", "linear", "é", "a" * 300)


# ---- the models that are mutated -----------------------------------------------------------------


def model(
    nodes: list[Any], shape: tuple[int, ...], rank: int, opset: int = 18, /, **stored: Any
) -> bytes:
    """Return a file with the input x, the output y of some rank, and stored values."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()],
    )
    imports = [helper.make_opsetid("", opset)]
    content: bytes = helper.make_model(
        graph, opset_imports=imports, ir_version=8
    ).SerializeToString()
    return content


def node(kind: str, inputs: str, output: str = "y", **attributes: Any) -> Any:
    return helper.make_node(
        kind, inputs.split(" "), output.split(" "), name=f"the_{kind}", **attributes
    )


def models() -> list[bytes]:
    """Return the files from which the mutations start."""
    rng = np.random.default_rng(0)

    def f(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    def i(*numbers: int) -> Any:
        return np.array(numbers, np.int64)

    image = (2, 4, 6, 6)
    return [
        model(
            [
                node("Conv", "x w b", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=2),
                node("BatchNormalization", "c s b2 m v", "n", epsilon=1e-3),
                node("Relu", "n", "r"),
                node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
                node("GlobalAveragePool", "p", "q"),
                node("Flatten", "q", "z", axis=1),
                node("Gemm", "z fw fb", "y", transB=1, alpha=0.5),
            ],
            image,
            2,
            w=f(8, 2, 3, 3),
            b=f(8),
            s=f(8),
            b2=f(8),
            m=f(8),
            v=f(8) ** 2,
            fw=f(5, 8),
            fb=f(5),
        ),
        model(
            [
                node("Shape", "x", "s"),
                node("Gather", "s zero", "n", axis=0),
                node("Unsqueeze", "n zero1", "n1"),
                node("Concat", "n1 minus", "wanted", axis=0),
                node("Reshape", "x wanted", "r"),
                node("Transpose", "r", "t", perm=[1, 0]),
                node("Slice", "t starts ends axes steps", "u"),
                node("ReduceMean", "u axes", "y", keepdims=1),
            ],
            image,
            2,
            zero=np.int64(0),
            zero1=i(0),
            minus=i(-1),
            starts=i(0),
            ends=i(100),
            axes=i(0),
            steps=i(2),
        ),
        model(
            [
                node("ConstantOfShape", "shape", "k", value=numpy_helper.from_array(f(1), "v")),
                node("Range", "from to by", "r"),
                node("Cast", "r", "rf", to=TensorProto.FLOAT),
                node("Expand", "rf shape", "e"),
                node("Where", "c k e", "w"),
                node("Tile", "w times", "t"),
                node("Einsum", "x t", "s", equation="ij,kj->ik"),
                node("TopK", "s two", "v i", axis=-1),
                node("CumSum", "v axis", "u"),
                node("ArgMax", "u", "am", axis=1),
                node("OneHot", "am depth hot", "o", axis=-1),
                node("Add", "u u", "y"),
            ],
            (3, 4),
            2,
            **{"shape": i(2, 4), "from": np.int64(0), "to": np.int64(4), "by": np.int64(1)},
            c=np.array([True, False, True, True]),
            times=i(2, 1),
            two=i(2),
            axis=np.int64(1),
            depth=np.int64(2),
            hot=f(2),
        ),
        model(
            [
                node("GatherElements", "x e", "g", axis=1),
                node("ScatterND", "g places updates", "h"),
                node("Trilu", "h k", "t", upper=0),
                node("MatMul", "t w", "m"),
                node("Gelu", "m", "l"),
                node("Attention", "l l l", "y", q_num_heads=2, kv_num_heads=2, is_causal=1),
            ],
            (2, 4, 4),
            3,
            23,
            e=np.zeros((2, 4, 4), np.int64),
            places=np.array([[0, 1], [1, 2]]),
            updates=f(2, 4),
            k=np.int64(0),
            w=f(4, 4),
        ),
        *(
            single(kind, x, stored, **attributes).SerializeToString()
            for kind, x, stored, attributes in CASES.values()
        ),
    ]


# ---- mutations -----------------------------------------------------------------------------------


def mutated_model(_: bytes, seed: int) -> bytes:
    """Return one of the models with one to four changes of fields or bytes."""
    rng = random.Random(seed)
    content = rng.choice(models())
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if rng.random() < 0.25:
            content = mutated(content or b"\0", rng.randrange(2**32))
            continue
        try:
            content = _change_field(content, rng)
        except (ValueError, TypeError, UnicodeError):
            continue
        except Exception:  # DecodeError: protobuf cannot parse the file any more
            content = mutated(content or b"\0", rng.randrange(2**32))
    return content


def _fields(message: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None and depth < 8:
            for each in value if hasattr(value, "append") or hasattr(value, "add") else [value]:
                yield from _fields(each, depth + 1)


def _change_field(content: bytes, rng: random.Random) -> bytes:
    proto = onnx.load_model_from_string(content)
    message, field = rng.choice(list(_fields(proto)))
    value = getattr(message, field.name)
    if rng.random() < 0.1:
        message.ClearField(field.name)
    elif hasattr(value, "add") or hasattr(value, "append"):
        _change_list(value, field, rng)
    elif field.message_type is None:
        setattr(message, field.name, _other(value, rng))
    result: bytes = proto.SerializeToString()
    return result


def _change_list(values: Any, field: Any, rng: random.Random) -> None:
    at = rng.randrange(len(values))
    kind = rng.randrange(4)
    if kind == 0:
        del values[at]
    elif kind == 1:
        values.append(values[rng.randrange(len(values))])
    elif field.message_type is None:
        values[at] = _other(values[at], rng)
    else:
        values[at].CopyFrom(values[rng.randrange(len(values))])


def _other(value: Any, rng: random.Random) -> Any:
    if isinstance(value, int):
        return rng.choice((*NUMBERS, value + 1, value - 1))
    if isinstance(value, float):
        return rng.choice(FLOATS)
    if isinstance(value, str):
        return rng.choice(STRINGS)
    return rng.choice((b"", b"\xff\xfe", bytes(value)[:-1], bytes(value) + b"\0", b"linear"))


# ---- reading -------------------------------------------------------------------------------------


def read(path: Path) -> Any:
    """Return the results of a file for random inputs; at most LIMIT elements take part."""
    largest, call.MAX_ELEMENTS = call.MAX_ELEMENTS, LIMIT
    try:
        found = load(path, needle.cpu())
        with warnings.catch_warnings(), needle.no_grad():
            warnings.simplefilter("ignore")
            results = found(*_inputs(path, found.inputs))
    finally:
        call.MAX_ELEMENTS = largest
    return [each.numpy() for each in (results if isinstance(results, tuple) else (results,))]


def _inputs(path: Path, names: list[str]) -> list[Any]:
    """Return random inputs of the declared shapes; raise OnnxError if they are too large."""
    rng = np.random.default_rng(0)
    declared = {each.name: each.type.tensor_type for each in onnx.load(path).graph.input}
    inputs = []
    for name in names:
        shape = [max(d.dim_value, 0) for d in declared[name].shape.dim]
        if np.prod([float(max(size, 1)) for size in shape]) > LIMIT or len(shape) > 30:
            raise OnnxError(f"{path.name}: no test has inputs of shape {shape}")
        dtype = helper.tensor_dtype_to_np_dtype(declared[name].elem_type)
        inputs.append(rng.standard_normal(shape).astype(dtype))
    return inputs
