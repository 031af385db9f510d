"""Exceptions of workers, and samples that cannot be read: complaint 17, on_error."""

from __future__ import annotations

import io
import time
import traceback
import urllib.error
from typing import Any

import pytest

from needle import data
from needle.errors import DataError, NeedleError, WorkerError

from .sets import Locked, Numbers, Raising, TwoParts, Unreadable

ENGINES: list[dict[str, Any]] = [
    {},
    {"num_workers": 2, "engine": "threads"},
    {"num_workers": 2, "engine": "processes"},
]
IDS = ["inline", "threads", "processes"]


def not_found() -> Exception:
    return urllib.error.HTTPError("http://a/b", 404, "gone", {}, io.BytesIO(b"x"))  # type: ignore[arg-type]


def same_as(error: BaseException, other: BaseException) -> bool:
    """Return True if type, text and attributes of the exceptions agree."""
    names = ("code", "place", "path", "errno", "filename", "start")
    return (
        type(error) is type(other)
        and str(error) == str(other)
        and all(getattr(error, name, None) == getattr(other, name, None) for name in names)
    )


@pytest.mark.parametrize("options", ENGINES, ids=IDS)
@pytest.mark.parametrize(
    "make",
    [
        not_found,
        lambda: TwoParts("a.jpg", 17),
        lambda: KeyError(3),
        lambda: FileNotFoundError(2, "No such file", "/a/b"),
        lambda: UnicodeDecodeError("utf8", b"abc", 1, 2, "why"),
    ],
    ids=["HTTPError", "two parts", "KeyError", "FileNotFoundError", "UnicodeDecodeError"],
)
def test_17_an_exception_comes_back_as_it_was(make, options):
    """Type, arguments, the place it was raised at, and which sample it was."""
    with data.DataLoader(Raising(make), 4, **options) as loader:
        batches = iter(loader)
        next(batches)
        began = time.monotonic()
        with pytest.raises(type(make())) as caught:
            next(batches)
        assert time.monotonic() - began < 10  # and not for ever
        assert same_as(caught.value, make())
        told = "".join(traceback.format_exception(caught.value))
        assert "in __getitem__" in told and "raise self.make()" in told
        assert data.samples.pytree.tagged_sample(caught.value) == 5 and "sample 5" in told
        assert sum(len(labels.numpy()) for _, labels in batches) == 12  # the others are there


def test_17_exit_in_a_worker_is_raised_in_the_program():
    """SystemExit keeps its code and its sample."""
    with data.DataLoader(Raising(lambda: SystemExit(4)), 4, num_workers=2) as loader:
        with pytest.raises(SystemExit) as caught:
            list(loader)
        assert caught.value.code == 4 and data.samples.pytree.tagged_sample(caught.value) == 5


def test_17_what_cannot_be_pickled_is_told_of():
    """An exception that does not travel: a WorkerError with its repr, sample and traceback."""
    with data.DataLoader(Raising(lambda: Locked("odd")), 4, num_workers=2) as loader:
        with pytest.raises(WorkerError, match=r"sample 5 with Locked\('odd'\)") as caught:
            list(loader)
        assert isinstance(caught.value, NeedleError)
        assert "raise self.make()" in str(caught.value.__cause__)
        assert sum(len(labels.numpy()) for _, labels in [next(iter(loader))]) == 4


@pytest.mark.parametrize("options", ENGINES, ids=IDS)
def test_unreadable_samples_are_left_out_and_counted_where_asked(options):
    """on_error="skip": the rest is given, and stats() says how many were left out."""
    with data.DataLoader(Unreadable(50), 5, on_error="skip", **options) as loader:
        seen = [i for _, labels in loader for i in labels.numpy().tolist()]
        assert seen == [i for i in range(50) if i % 7]
        stats = loader.stats()
    assert stats.samples == 42 and stats.skipped == 8
    with (
        data.DataLoader(Unreadable(50), 5, **options) as loader,
        pytest.raises(DataError, match="file 0: cut short"),
    ):
        list(loader)


@pytest.mark.parametrize("options", ENGINES, ids=IDS)
def test_other_errors_are_not_skipped(options):
    """on_error="skip" is for files that cannot be read, not for mistakes of the program."""
    made = Raising(lambda: KeyError("a misspelt name"))
    with data.DataLoader(made, 4, on_error="skip", **options) as loader:
        with pytest.raises(KeyError, match="misspelt"):
            list(loader)
        assert len(next(iter(loader))[1].numpy()) == 4


@pytest.mark.parametrize("options", ENGINES, ids=IDS)
def test_a_transform_that_fails_does_not_hang(options):
    """An error of a transform or of collate comes up in the loop, with every engine."""

    def fails(value: Any) -> Any:
        raise ZeroDivisionError("on purpose")

    for where in ({"transforms": [fails]}, {"collate": fails}, {"batch_transforms": [fails]}):
        with (
            data.DataLoader(Numbers(20), 4, **where, **options) as loader,
            pytest.raises(ZeroDivisionError, match="on purpose"),
        ):
            list(loader)
