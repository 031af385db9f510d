"""Read ONNX files into complete, checked messages of the onnx package.

A file is untrusted data. Values in other files are read only from the model's own folder, never
through a symbolic link, and never beyond the end of the other file. Called by importing.py.
"""

from __future__ import annotations

import math
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .package import NEWEST, OLDEST, OPSET, OnnxError, blamed


def read(onnx: Any, path: Path) -> Any:
    """Return the ``onnx.ModelProto`` of a file, including values stored in other files."""
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise OnnxError(f"cannot read {path}: {why}; check the path") from error
    try:
        proto = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf has no public class for this error
        raise OnnxError(
            f"it is not an ONNX file or is damaged ({error}); use another copy"
        ) from error
    for each in _all_stored(proto.graph):
        if each.data_location == onnx.TensorProto.EXTERNAL:
            with blamed(f"the stored value {each.name!r}"):
                _fetch(onnx, each, path.parent)
    return proto


def check(onnx: Any, proto: Any) -> int:
    """Return the opset of a model; raise OnnxError for an invalid model."""
    opset = _opset(onnx, proto)
    for each in _all_stored(proto.graph):
        if each.data_location == onnx.TensorProto.EXTERNAL:
            raise OnnxError(
                f"the stored value {each.name!r} is in another file; read the model with "
                "needle.onnx.load, from the folder that holds both"
            )
    if proto.functions or proto.graph.sparse_initializer:
        raise OnnxError(
            "functions and sparse values are not supported; rewrite the model with "
            "onnx.inliner.inline_local_functions, or export it without them"
        )
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        raise OnnxError(f"the model violates ONNX's rules: {error}") from error
    _check_names(proto.graph)
    return opset


def _opset(onnx: Any, proto: Any) -> int:
    newest = min(NEWEST, onnx.defs.onnx_opset_version())
    versions = {each.version for each in proto.opset_import if each.domain in ("", "ai.onnx")}
    if not versions:
        raise OnnxError(
            "it is not an ONNX file or is damaged (it names no opset); use another copy"
        )
    if len(versions) != 1 or not OLDEST <= min(versions) <= newest:
        found = ", ".join(map(str, sorted(versions)))
        raise OnnxError(
            f"the opset must be {OLDEST} or later, up to {newest} with this version of onnx "
            f"(exports use {OPSET}), got {found}; convert the model with onnx.version_converter"
        )
    return int(versions.pop())


def _check_names(graph: Any) -> None:
    """Raise OnnxError if two values have the same name, or if no node computes an output."""
    stored = [each.name for each in graph.initializer]
    given = [each.name for each in graph.input]
    made = [name for node in graph.node for name in node.output if name]
    for names in (stored, given, [*made, *{*stored, *given}]):
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise OnnxError(f"the value {twice[0]!r} is defined twice; rename one")
    known = {*stored, *given, *made}
    for value in graph.output:
        if value.name not in known or not value.name:
            raise OnnxError(f"no node computes the output {value.name!r}; use another copy")


def _all_stored(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for each in node.attribute:
            if each.HasField("t"):
                yield each.t
            yield from each.tensors


def _fetch(onnx: Any, proto: Any, folder: Path) -> None:
    """Replace a reference to an external file by the bytes in it."""
    entries = {each.key: each.value for each in proto.external_data}
    where = Path(entries.get("location", ""))
    if where.is_absolute() or ".." in where.parts or not where.parts:
        raise OnnxError(f"external data must be in the model's folder, got {str(where)!r}")
    offset, itemsize = int(entries.get("offset", 0)), _itemsize(onnx, proto.data_type)
    needed = math.prod(proto.dims) * itemsize
    length = int(entries.get("length", needed))
    if offset < 0 or length != needed or any(size < 0 for size in proto.dims):
        raise OnnxError(
            f"its shape {list(proto.dims)} needs {needed} bytes, but the model gives {length} "
            f"bytes from byte {offset} on; use another copy"
        )
    proto.raw_data = _bytes(folder, where, offset, length)
    proto.data_location = onnx.TensorProto.DEFAULT
    del proto.external_data[:]


def _itemsize(onnx: Any, code: int) -> int:
    if code not in onnx.TensorProto.DataType.values() or not code:
        raise OnnxError(f"the dtype {code} is not known")
    return int(onnx.helper.tensor_dtype_to_np_dtype(code).itemsize)


def _bytes(folder: Path, where: Path, offset: int, length: int) -> bytes:
    """Return bytes of a file below ``folder``; no part of its path may be a symbolic link."""
    at = folder
    for part in where.parts:
        at = at / part
        if at.is_symlink():
            raise OnnxError(f"the external data file {str(where)!r} is a link; copy the file")
    try:
        descriptor = os.open(at, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        raise OnnxError(
            f"cannot read {at}: {error.strerror}; copy it into the model's folder"
        ) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size < offset + length:
            raise OnnxError(
                f"{at} must be a file of {offset + length} bytes or more, got {status.st_size}; "
                "use another copy"
            )
        file.seek(offset)
        return file.read(length)
