"""Test that malformed ONNX files raise an OnnxError that names the file, without side effects."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from needle.onnx import load
from needle.onnx.package import OnnxError

onnx = pytest.importorskip("onnx")
onnx_files = pytest.importorskip("tests.fuzz.onnx_files")

CORPUS = sorted((Path(onnx_files.__file__).parent / "onnx_corpus").glob("*.onnx"))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_files_that_once_gave_another_error(path: Path) -> None:
    with suppress(OnnxError):
        onnx_files.read(path)


def test_the_models_that_are_mutated_run(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for content in onnx_files.models():
        path.write_bytes(content)
        assert onnx_files.read(path)


# ---- one fault each ------------------------------------------------------------------------------

Change = Callable[[Any], None]


def _tensor(proto: Any, name: str) -> Any:
    return next(each for each in proto.graph.initializer if each.name == name)


def _longer(proto: Any) -> None:
    _tensor(proto, "w").raw_data += b"\0\0\0\0"


def _shorter(proto: Any) -> None:
    tensor = _tensor(proto, "w")
    tensor.raw_data = tensor.raw_data[:-1]


def _dims(*sizes: int) -> Change:
    def change(proto: Any) -> None:
        _tensor(proto, "w").dims[:] = sizes

    return change


def _cycle(proto: Any) -> None:
    proto.graph.node[0].input[0] = "n"


def _twice(proto: Any) -> None:
    proto.graph.initializer.add().CopyFrom(_tensor(proto, "w"))


def _same_output(proto: Any) -> None:
    proto.graph.node[1].output[0] = "c"


def _absent(proto: Any) -> None:
    proto.graph.node[0].input[1] = "nobody"


def _no_output(proto: Any) -> None:
    proto.graph.output[0].name = "nobody"


def _dtype(proto: Any) -> None:
    _tensor(proto, "w").data_type = 99


def _opset(version: int) -> Change:
    def change(proto: Any) -> None:
        proto.opset_import[0].version = version

    return change


def _text(proto: Any) -> None:
    proto.graph.node[3].attribute.add(name="auto_pad", type=onnx.AttributeProto.STRING, s=b"\xff")


def _kind(proto: Any) -> None:
    proto.graph.node[0].attribute[0].type = onnx.AttributeProto.FLOAT


def _external(location: str, **entries: str) -> Change:
    def change(proto: Any) -> None:
        tensor = _tensor(proto, "w")
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": location, **entries}.items():
            tensor.external_data.add(key=key, value=value)

    return change


def _nested(proto: Any) -> None:
    """Return subgraphs nested as deeply as protobuf can read."""
    graph = onnx.GraphProto(name="inner")
    for depth in range(24):
        outer = onnx.GraphProto(name=f"g{depth}")
        node = outer.node.add(op_type="If", input=["x"], output=["y"])
        node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g.CopyFrom(graph)
        graph = outer
    proto.graph.node.add().CopyFrom(graph.node[0])


CHANGES: dict[str, tuple[Change, str]] = {
    "more bytes": (_longer, "a stored value of shape .* needs 576 bytes, got 580|Data size"),
    "fewer bytes": (_shorter, "a stored value of shape .* needs 576 bytes, got 575|ata size"),
    "a negative size": (_dims(-8, -2, 3, 3), "non-negative sizes|Negative"),
    "a large size": (_dims(2**40, 2**40), "needs .* bytes|overflow|size|0-element"),
    "a cycle": (_cycle, "opological"),
    "a name twice": (_twice, "'w' is defined twice|unique"),
    "an output twice": (_same_output, "defined twice|SSA"),
    "an absent input": (_absent, "nobody"),
    "an absent output": (_no_output, "computes the output 'nobody'|nobody"),
    "an unknown dtype": (_dtype, "99"),
    "opset 0": (_opset(0), "opset must be 7 or later.*got 0"),
    "a far opset": (_opset(10**9), "opset must be 7 or later.*got 1000000000"),
    "a negative opset": (_opset(-1), "opset must be 7 or later.*got -1"),
    "no UTF-8": (_text, "utf-8|auto_pad"),
    "a wrong attribute": (_kind, "attribute|type"),
    "a folder above": (_external("../w.bin"), r"must be in the model's folder, got '\.\./w\.bin'"),
    "another folder": (_external("/etc/passwd"), "must be in the model's folder"),
    "no location": (_external(""), "must be in the model's folder"),
    "a missing file": (_external("none.bin"), "cannot read .*none.bin"),
    "a folder as a file": (_external("."), "must be in the model's folder"),
    "a negative offset": (_external("w.bin", offset="-4"), "from byte -4"),
    "no number": (_external("w.bin", offset="four"), "four"),
    "too short": (_external("w.bin", offset="4"), "must be a file of 580 bytes or more, got 576"),
    "a length": (_external("w.bin", length="5"), "needs 576 bytes, but the model gives 5"),
    "a link": (_external("link.bin"), "is a link; copy the file"),
    "graphs in graphs": (_nested, "If"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_one_fault(name: str, tmp_path: Path) -> None:
    change, why = CHANGES[name]
    proto = onnx.load_model_from_string(onnx_files.models()[0])
    (tmp_path / "w.bin").write_bytes(_tensor(proto, "w").raw_data)
    os.symlink("w.bin", tmp_path / "link.bin")
    change(proto)
    path = tmp_path / "broken.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(OnnxError, match=rf"(?s)onnx.load: .*broken\.onnx: .*({why})"):
        load(path, needle.cpu())


def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    content = onnx_files.models()[0]
    path = tmp_path / "broken.onnx"
    for name in (b"BatchNormalization", b"kernel_shape"):
        path.write_bytes(content.replace(name, b"\xff" * len(name)))
        with pytest.raises(OnnxError, match=r"broken\.onnx"):
            load(path, needle.cpu())


def test_values_in_another_file_of_the_folder(tmp_path: Path) -> None:
    content = onnx_files.models()[0]
    (tmp_path / "whole.onnx").write_bytes(content)
    onnx.save_model(
        onnx.load_model_from_string(content),
        tmp_path / "parts.onnx",
        save_as_external_data=True,
        location="parts.bin",
        size_threshold=16,
    )
    assert (tmp_path / "parts.bin").stat().st_size > 600
    x = needle.Tensor(np.ones((2, 4, 6, 6)), device=needle.cpu(), dtype="float32")
    whole, parts = (load(tmp_path / f"{name}.onnx", needle.cpu()) for name in ("whole", "parts"))
    np.testing.assert_array_equal(whole(x).numpy(), parts(x).numpy())


def test_a_node_that_fails_when_it_runs_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx_files.models()[0])
    x = needle.Tensor(np.ones((2, 3, 6, 6)), device=needle.cpu(), dtype="float32")
    with pytest.raises(OnnxError, match=r"m\.onnx: Conv \(node 'the_Conv'\): .*channels"):
        load(path, needle.cpu())(x)
