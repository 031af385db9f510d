"""Raise exceptions in workers, and read corrupt samples: complaint 17 and on_error."""

import io
import sys
import traceback
import urllib.error
from typing import Any

import pytest

from needle import data
from needle.errors import DataError, NeedleError, WorkerError

from .programs import engines
from .sets import Locked, Marking, Numbers, Raising, Refusing, TwoParts, Unprintable, Unreadable


def not_found() -> Exception:
    return urllib.error.HTTPError("http://a/b", 404, "gone", {}, io.BytesIO(b"x"))  # type: ignore[arg-type]


def same_as(error: BaseException, other: BaseException) -> bool:
    """Return True if the exceptions agree in type, text and attributes."""
    names = ("code", "place", "path", "errno", "filename", "start")
    return (
        type(error) is type(other)
        and str(error) == str(other)
        and all(getattr(error, name, None) == getattr(other, name, None) for name in names)
    )


@engines
@pytest.mark.parametrize(
    "make",
    [
        not_found,
        lambda: TwoParts("a.jpg", 17),
        lambda: KeyError(3),
        lambda: SystemExit(4),
        lambda: FileNotFoundError(2, "No such file", "/a/b"),
        lambda: UnicodeDecodeError("utf8", b"abc", 1, 2, "why"),
    ],
    ids=[
        "HTTPError",
        "two parts",
        "KeyError",
        "SystemExit",
        "FileNotFoundError",
        "UnicodeDecodeError",
    ],
)
def test_17_an_exception_comes_back_as_it_was(make, options):
    """An exception keeps its type, arguments and traceback, and names its sample."""
    with data.DataLoader(Raising(make), 4, **options) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(type(make())) as caught:
            next(batches)
        assert same_as(caught.value, make())
        told = "".join(traceback.format_exception(caught.value))
        assert "in __getitem__" in told and "raise self.make()" in told
        assert data.samples.pytree.tagged_sample(caught.value) == 5
        # before Python 3.11 exceptions have no notes
        assert "sample 5" in told or sys.version_info < (3, 11)
        assert sum(len(labels.numpy()) for _, labels in batches) == 12  # all other samples arrive


def test_17_what_cannot_be_pickled_is_told_of():
    """An exception that cannot be pickled becomes a WorkerError with its repr, sample and
    traceback.
    """
    with data.DataLoader(Raising(lambda: Locked("odd")), 4, num_workers=2) as loader:
        with pytest.raises(WorkerError, match=r"sample 5 with Locked\('odd'\)") as caught:
            list(loader)
        assert isinstance(caught.value, NeedleError)
        assert "raise self.make()" in str(caught.value.__cause__)
        assert sum(len(labels.numpy()) for _, labels in [next(iter(loader))]) == 4


ODD = {
    "SystemExit": lambda: SystemExit(3),
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "StopIteration": StopIteration,
    "unprintable": Unprintable,
    "unpicklable": Locked,
    "refusing": Refusing,
}


def placed_at(place: str, make: Any) -> dict[str, Any]:
    """Return options of a loader in which ``place`` raises an error at sample 5."""

    def transform(image: Any) -> Any:
        if image.ravel()[0] == 5:
            raise make()
        return image

    def collate(samples: list[Any]) -> Any:
        if any(number == 5 for _, number in samples):
            raise make()
        return data.default_collate(samples)

    def whole(batch: Any) -> Any:
        if 5 in batch[1]:
            raise make()
        return batch

    choices = {
        "sample": {},
        "transform": {"transforms": [transform]},
        "collate": {"collate": collate},
        "batch": {"transforms": [data.OnBatch(whole)]},
    }
    return choices[place]


@engines
@pytest.mark.parametrize("place", ["sample", "transform", "collate", "batch"])
@pytest.mark.parametrize("name", ODD)
def test_17_odd_exceptions_come_at_their_batch_and_the_epoch_continues(name, place, options):
    """An exception raised once at batch 2 leaves the epoch usable; that batch is prepared again."""
    make = ODD[name]
    inside = not options or place == "batch"  # the error is raised in the calling thread
    if name == "KeyboardInterrupt" and inside:
        times = iter([True])
        raised = make

        def make() -> BaseException:
            return raised() if next(times, False) else Once()

    dataset = Raising(make) if place == "sample" else Numbers(20)
    expected: tuple[type[BaseException], ...] = (type(ODD[name]()),)
    if name == "StopIteration":
        expected = (RuntimeError,)  # StopIteration would end the loop silently
    elif name in ("unpicklable", "refusing") and options.get("engine") == "processes":
        expected = (WorkerError,) if place != "batch" else expected
    with data.DataLoader(dataset, 4, **options, **placed_at(place, make)) as loader:
        batches = iter(loader)
        assert next(batches)[1].numpy().tolist() == [0, 1, 2, 3]
        with pytest.raises(expected) as caught:
            next(batches)
        if name == "SystemExit" and place in ("sample", "transform"):
            assert data.samples.pytree.tagged_sample(caught.value) == 5
        if name == "KeyboardInterrupt" and inside:
            with pytest.raises(Once):
                next(batches)
        rest = [labels.numpy().tolist() for _, labels in batches]
        assert rest == [[8, 9, 10, 11], [12, 13, 14, 15], [16, 17, 18, 19]]
        assert loader.state_dict()["position"] == 0 and loader.state_dict()["epoch"] == 1


class Once(Exception):
    """Raised by the second attempt at a batch whose first attempt was interrupted."""


@engines
def test_a_data_set_may_write_to_its_own_arrays(options, tmp_path):
    """Worker processes get copy-on-write pages, so the program's own arrays stay unchanged."""
    dataset = Marking(20, tmp_path / "counts")
    with data.DataLoader(dataset, 4, **options) as loader:
        for counts, mapped in loader:
            assert counts.numpy().tolist() == mapped.numpy().tolist() == [1] * 4
    private = options.get("engine") == "processes"
    assert dataset.counts[:20].tolist() == [0 if private else 1] * 20
    assert dataset.mapped[:20].tolist() == dataset.counts[:20].tolist()


@engines
def test_unreadable_samples_are_left_out_and_counted_where_asked(options):
    """on_error="skip" leaves unreadable samples out, and stats() counts them."""
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


@engines
def test_other_errors_are_not_skipped(options):
    """on_error="skip" applies to unreadable files, not to bugs of the program."""
    made = Raising(lambda: KeyError("a misspelt name"))
    with data.DataLoader(made, 4, on_error="skip", **options) as loader:
        with pytest.raises(KeyError, match="misspelt"):
            list(loader)
        assert len(next(iter(loader))[1].numpy()) == 4
