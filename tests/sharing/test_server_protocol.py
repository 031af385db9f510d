"""Test the messages between loader and server: frames, index sets, records, transforms, blocks."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle import data
from needle.data.samples.pytree import Structure
from needle.errors import DataError, NeedleError
from needle.sharing.wire.descriptions import TRANSFORMS, build, describe, divide
from needle.sharing.wire.protocol import (
    FrameKind,
    FrameSocket,
    marks_of_text,
    marks_to_text,
    pack_frame,
    pack_marks,
    unpack_marks,
)
from needle.sharing.wire.sample_layout import layout_of, read_layout

DESCRIBED = [
    data.Resize((7, 9)),
    data.Resize(8, antialias=False),
    data.CenterCrop((3, 4)),
    data.Pad(2),
    data.RandomCrop(2),
    data.RandomCrop(0, (5, 6), 3.0),
    data.RandomFlipHorizontal(0.25),
    data.RandomFlipVertical(),
    data.RandomResizedCrop(9, (0.2, 1.0)),
    data.RandomRotation(20),
    data.RandomAffine(10, translate=(0.1, 0.2)),
    data.ColorJitter(0.1, 0.2, 0.3, 0.1),
    data.RandomBrightnessContrast(0.2, 0.1),
    data.RandomErasing(0.3),
    data.Cutout(3),
    data.ToFloat(),
    data.Normalize((0.1, 0.2, 0.3), (1.0, 2.0, 3.0)),
    data.ToCHW(),
    data.Permute((2, 0, 1)),
]


def received(sent: bytes, pieces: list[int]) -> tuple[list[Any], FrameSocket]:
    """Return the frames decoded from data that arrives in chunks of these sizes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        inbox, frames, at = FrameSocket(ours), [], 0
        for size in [*pieces, len(sent)]:
            theirs.sendall(sent[at : at + size])
            at += size
            frames += inbox.receive()
        return frames, inbox


@given(st.lists(st.tuples(st.integers(0, 2**60), st.text(max_size=50)), max_size=6), st.data())
@settings(max_examples=50, deadline=None)
def test_frames_arrive_whole_however_they_are_cut(values: list[Any], more: st.DataObject) -> None:
    sent = [(FrameKind.REGISTER, {"n": n, "t": t}, t.encode()) for n, t in values]
    whole = b"".join(pack_frame(*each) for each in sent)
    cuts = more.draw(st.lists(st.integers(0, 40), max_size=8))
    frames, inbox = received(whole, cuts)
    assert [(f.kind, f.values, f.raw) for f in frames] == sent
    assert not inbox.ended


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_frames_or_data_error(noise: bytes) -> None:
    for sent in (
        noise,
        pack_frame(FrameKind.HELLO)[:4] + noise,
        pack_frame(FrameKind.REGISTER, {"a": 1}) + noise,
    ):
        with suppress(DataError):
            frames, inbox = received(sent, [])
            assert frames or not inbox.ended


@pytest.mark.parametrize("count", [1, 8, 200])
def test_marks_that_are_damaged_are_refused(count: int) -> None:
    more = np.zeros(count + 8, bool)
    for raw in (b"", b"?", pack_marks(more)):
        with pytest.raises(DataError, match="bits of"):
            unpack_marks(raw, count)
    for text in ("", "?", marks_to_text(more), 7, None):
        with pytest.raises(DataError, match="bits of"):
            marks_of_text(text, count)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner)))
@settings(max_examples=100, deadline=None)
def test_any_values_are_a_layout_or_data_error(values: Any) -> None:
    for given_values in (values, {"tree": values, "leaves": []}, {"tree": 0, "leaves": values}):
        with suppress(DataError):
            read_layout(given_values)


def test_what_cannot_lie_in_shared_memory_is_refused() -> None:
    for sample in (np.asarray("text"), np.asarray(object()), None):
        with pytest.raises(DataError, match="must be numbers, arrays of numbers or strings"):
            layout_of(Structure("leaf", ("mixed",)), [sample])
    with pytest.raises(DataError, match="got 9223372036854775808, which is no int64; convert it"):
        layout_of(Structure("leaf", ("mixed",)), [2**63])


@given(st.lists(st.text(max_size=90) | st.binary(max_size=90), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_texts_come_back(texts: list[str | bytes]) -> None:
    structure = Structure(("tuple", None, ("leaf",) * (1 + len(texts))), ("array",) * 5)
    layout = layout_of(structure, [np.int16(7), *texts])
    assert read_layout(json.loads(json.dumps(layout.as_values()))) == layout
    buffer = bytearray(layout.nbytes)
    layout.write(buffer, np.zeros(1, np.int64), [np.array([7], np.int16), *([t] for t in texts)])
    assert layout.leaves(buffer, 0) == [7, *texts]
    for at, kind in zip(layout.offsets, layout.kinds):  # lengths that exceed the field
        if kind != "array":
            buffer[at : at + 8] = b"\xff" * 8
    with pytest.raises(DataError, match="does not fit"):
        layout.leaves(buffer, 0)


@pytest.mark.parametrize("transform", DESCRIBED, ids=lambda t: type(t).__name__)
def test_a_transform_travels_as_values(transform: Any) -> None:
    description = describe(transform)
    assert description is not None
    assert build(json.loads(json.dumps([description]))) == [transform]


def test_every_transform_has_a_row_above_or_cannot_travel() -> None:
    assert {type(each).__name__ for each in DESCRIBED} == set(TRANSFORMS)
    assert describe(abs) is None and describe(data.OneOf([data.Cutout(2)])) is None
    mine = type("Resize", (data.Resize,), {})
    assert describe(mine(3)) is None


@pytest.mark.parametrize(
    ("transforms", "shared"),
    [
        ([data.Resize(9), data.CenterCrop(8), data.ToFloat(), data.ToCHW()], 2),
        ([data.RandomCrop(2), data.Resize(9)], 0),
        ([data.Resize(9), data.RandomCrop(2), data.CenterCrop(3)], 1),
        ([data.Resize(9), abs, data.CenterCrop(3)], 1),
        ([data.ToFloat(), data.Resize(9), data.Normalize(0.0, 1.0)], 2),
        (None, 0),
    ],
)
def test_what_is_shared_is_the_costly_front_without_random_numbers(
    transforms: Any, shared: int
) -> None:
    division = divide(transforms, "decoded")
    assert len(division.shared) == shared
    assert len(division.own.parts) == len(transforms or []) - shared


def test_refusals_name_needle() -> None:
    for bad in ("x", [1], [{"name": "Compose", "values": {}}], [{"name": "Resize", "values": 3}]):
        with pytest.raises(NeedleError, match="server: "):
            build(bad)
