"""Test that samples are read and transformed in groups, which changes no byte."""

from typing import Any

import numpy as np
import pytest

from needle import data
from needle.data.batching import fetch as reading
from needle.data.batching.pipeline import Pipeline, Work
from needle.data.samples.ticket import Ticket
from needle.errors import DataError

SIZES = [(7, 9), (5, 4), (12, 12), (7, 9), (3, 8), (6, 6), (7, 9)] * 4


class Photos:
    """A data set of images of many sizes, read one by one; some are unreadable."""

    def __init__(self, broken: tuple[int, ...] = ()) -> None:
        self.broken = broken

    def __len__(self) -> int:
        return len(SIZES)

    def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], int]:
        if index in self.broken:
            raise DataError(f"{index}: broken")
        generator = np.random.default_rng(index)
        return generator.integers(0, 256, (*SIZES[index], 3), dtype=np.uint8), index


def mirrored_late(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Flip images in a plain callable, which runs in Python."""
    return image[:, ::-1]


CHAINS: dict[str, list[Any]] = {
    "one size": [data.Resize((6, 5)), data.RandomFlipHorizontal(), data.ToFloat()],
    "python": [data.RandomCrop(size=4), mirrored_late],
    "dtypes that change": [data.Resize((4, 4)), lambda x: x / 2.0 if x[0, 0, 0] > 99 else x],
}


def prepared(
    monkeypatch: pytest.MonkeyPatch, group: int, transforms: list[Any], placed: bool, **options: Any
) -> Any:
    """Return rows 3 to 25 of a batch, prepared in groups of about ``group`` bytes."""
    monkeypatch.setattr(reading, "GROUP_BYTES", group)
    broken = (4, 9, 10) if options else ()
    pipeline = Pipeline(Photos(broken), transforms, **options)
    request = Ticket(0, 7, 2, np.arange(len(SIZES))[::-1].copy())
    rows, out = slice(3, 25), None
    if placed:
        out = [np.zeros((22, 6, 5, 3), np.float32), np.zeros(22, np.int64)]
    part = pipeline.prepare(request.rows(rows), Work(out=out))
    return part.batch(), part.samples, part.placed


@pytest.mark.parametrize("options", [{}, {"on_error": "skip"}], ids=["all", "skipping"])
@pytest.mark.parametrize("placed", [False, True], ids=["free", "placed"])
@pytest.mark.parametrize("name", ["one size", "python", "dtypes that change"])
def test_groups_of_any_size_give_the_same(monkeypatch, name, placed, options):
    wanted = prepared(monkeypatch, 1 << 30, CHAINS[name], placed, **options)
    for group in (1, 500):
        made = prepared(monkeypatch, group, CHAINS[name], placed, **options)
        assert made[1:] == wanted[1:]
        for mine, theirs in zip(made[0], wanted[0]):
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)
    if placed and name == "one size":
        assert wanted[2] == (True, True)


def test_a_group_is_transformed_before_the_next_is_read(monkeypatch):
    """Reading in groups keeps the images of a whole batch from being in memory at once."""
    monkeypatch.setattr(reading, "GROUP_BYTES", 1)
    order: list[Any] = []

    class Told(Photos):
        def __getitem__(self, index: int) -> Any:
            order.append(index)
            return super().__getitem__(index)

    def seen(image: Any) -> Any:
        order.append("seen")
        return image[:3, :3]

    pipeline = Pipeline(Told(), [seen])
    pipeline.prepare(Ticket(0, 7, 0, np.array([2, 5, 1])))
    assert order == [2, "seen", 5, "seen", 1, "seen"]
