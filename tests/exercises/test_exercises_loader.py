"""Part 8 of the course: datasets, flips and crops, an epoch's batches and the loader's loop."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from apps.course.compare import expect
from needle.data import ArrayDataset, DataLoader
from needle.data.loader.iteration import LoaderIterator
from needle.data.sampling.epoch_order import DrawnOrder, PositionOrder
from needle.data.transforms import RandomCrop, RandomFlipHorizontal, RandomFlipVertical

Array = np.ndarray[Any, Any]


# ---- array-dataset -------------------------------------------------------------------------------

ROWS = np.array([[1, 2], [3, 4], [5, 6]])
LABELS = np.array([7, 8, 9])


@pytest.mark.exercise("array-dataset")
def test_rows_of_arrays_are_samples() -> None:
    given = {"arrays": "rows (3, 2) and labels (3,)", "rows": ROWS, "labels": LABELS}
    data = ArrayDataset(ROWS, LABELS)
    expect("len(dataset)", len(data), 3, given=given)
    item = data[1]
    expect("the type of dataset[1]", type(item).__name__, "tuple", given=given)
    expect("the number of fields of dataset[1]", len(item), 2, given=given)
    expect("dataset[1][0]", item[0], ROWS[1], given=given)
    expect("dataset[1][1]", item[1], LABELS[1], given=given)
    part = data[:2]
    expect("dataset[:2][0]", part[0], ROWS[:2], given=given)
    expect("dataset[:2][1]", part[1], LABELS[:2], given=given)
    alone = ArrayDataset(ROWS)[2]
    mistakes = {"a tuple also for one array": type(ROWS).__name__}
    expect("the type of an item of one array", type(alone).__name__, "tuple", mistakes=mistakes)
    expect("ArrayDataset(rows)[2][0]", alone[0], ROWS[2], given=given)


@pytest.mark.exercise("array-dataset")
def test_transforms_see_one_row_of_the_first_array() -> None:
    targets = ROWS + 10
    data = ArrayDataset(ROWS, targets, transforms=[lambda row: row[::-1]])
    given = {"rows": ROWS, "targets": targets, "transforms": "reverse a row"}
    mistakes = {"the transforms are not applied": ROWS[1]}
    expect("dataset[1][0]", data[1][0], np.array([4, 3]), given=given, mistakes=mistakes)
    mistakes = {"the transforms are for the first array alone": targets[1, ::-1]}
    expect("dataset[1][1]", data[1][1], targets[1], given=given, mistakes=mistakes)
    mistakes = {
        "the transform got all rows at once: apply it to each row and stack": ROWS[::-1],
        "the transforms are not applied to a slice": ROWS,
    }
    want = ROWS[:, ::-1]
    expect("dataset[:][0]", data[:][0], want, given=given, mistakes=mistakes)
    chosen = data[np.array([2, 0])]
    expect("dataset[array([2, 0])][0]", chosen[0], want[[2, 0]], given=given)
    mistakes = {"the transforms are for the first array alone": targets[:, ::-1]}
    expect("dataset[:][1]", data[:][1], targets, given=given, mistakes=mistakes)
    expect("dataset[[2, 0]][0], for a list", data[[2, 0]][0], want[[2, 0]], given=given)


# ---- flip and random-crop ------------------------------------------------------------------------

IMAGE = np.arange(6).reshape(2, 3, 1)
SIZES = np.array([[2, 3], [2, 3], [2, 3]])


@pytest.mark.exercise("flip")
def test_a_mirrored_image() -> None:
    flip: Any = RandomFlipHorizontal()
    image = IMAGE[..., 0]
    answers = {
        (1.0, 0.0): image[:, ::-1],
        (0.0, 0.0): image,
        (0.0, 1.0): image[::-1],
        (1.0, 1.0): image[::-1, ::-1],
    }
    for row, want in answers.items():
        got = flip.apply(IMAGE, np.array(row))
        given = {"image[..., 0]": image, "(left-right, upside-down)": row}
        expect("the shape of apply(image, row)", got.shape, (2, 3, 1), given=given)
        mistakes = {
            "rows and columns: left and right is axis 1": answers[row[::-1]],
            "nothing was mirrored": image,
            "always mirrored: look at the row of parameters": answers[1.0, 0.0],
        }
        expect("apply(image, row)[..., 0]", got[..., 0], want, given=given, mistakes=mistakes)
        view = bool(np.shares_memory(got, IMAGE))
        expect("the result shares the image's memory", view, True, given=given)


@pytest.mark.exercise("flip")
def test_which_images_of_a_batch_are_mirrored() -> None:
    quarter = 2**30
    words = np.array([[0], [quarter], [3 * quarter]], dtype=np.uint32)
    given = {"words / 2**32": "0, 0.25, 0.75", "p": 0.5}
    yes, no = [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]
    flips: dict[str, Any] = {"RandomFlipHorizontal": (RandomFlipHorizontal(0.5), [yes, no])}
    flips["RandomFlipVertical"] = RandomFlipVertical(0.5), [no, yes]
    for name, (flip, columns) in flips.items():
        want = np.array(columns).T
        mistakes = {
            "the other column: use self.column": want[:, ::-1],
            "one decision for the whole batch": np.repeat(want[:1], 3, 0),
        }
        got = flip.parameters(words, SIZES)
        expect(f"{name}.parameters(words, sizes)", got, want, given=given, mistakes=mistakes)
    never: Any = RandomFlipHorizontal(0.0)
    zeros, given["p"] = np.zeros((3, 2)), 0.0
    mistakes = {"p is not used": np.array([yes, no]).T}
    got = never.parameters(words, SIZES)
    expect("RandomFlipHorizontal(0).parameters", got, zeros, given=given, mistakes=mistakes)


def words_of(*parts: float) -> Array:
    """Return a row of words for each fraction of 2**32, with the same word for both axes."""
    words = np.array([[part * 2**32] * 2 for part in parts])
    return np.minimum(words, 2.0**32 - 1).astype(np.uint32)


@pytest.mark.exercise("random-crop")
def test_places_of_shifted_images() -> None:
    crop: Any = RandomCrop(padding=2)
    words = words_of(0.0, 0.5, 1.0)
    given = {"padding": 2, "words / 2**32": "0, 0.5, almost 1"}
    mistakes = {
        "a shift may also go up and left: from -padding": np.array([[0.0] * 2, [2] * 2, [4] * 2]),
        "padding itself is a possible shift": np.array([[-2.0] * 2, [0] * 2, [1] * 2]),
    }
    want = np.array([[-2.0] * 2, [0] * 2, [2] * 2])
    got = crop.parameters(words, np.array([[5, 5]] * 3))
    expect("(top, left) of three images", got, want, given=given, mistakes=mistakes)
    expect("the dtype", str(got.dtype), "float64")


@pytest.mark.exercise("random-crop")
def test_places_of_a_window() -> None:
    crop: Any = RandomCrop(size=(2, 4), padding=0)
    sizes, words = np.array([[5, 4], [5, 4], [3, 9]]), words_of(0.0, 1.0, 1.0)
    given = {"size": (2, 4), "padding": 0, "sizes": sizes, "words / 2**32": "0, almost 1, almost 1"}
    want = np.array([[0.0, 0], [3, 0], [1, 5]])
    mistakes = {
        "the last place, image - window, is possible": np.array([[0.0, 0], [2, 0], [0, 4]]),
    }
    got = crop.parameters(words, sizes)
    expect("(top, left) of three images", got, want, given=given, mistakes=mistakes)
    padded: Any = RandomCrop(size=(2, 4), padding=1)
    want = np.array([[-1.0, -1], [4, 1], [2, 6]])
    given["padding"] = 1
    mistakes = {
        "padding is not used": np.array([[0.0, 0], [3, 0], [1, 5]]),
    }
    got = padded.parameters(words, sizes)
    expect("(top, left) of three images", got, want, given=given, mistakes=mistakes)
    small = padded.parameters(words_of(0.0, 1.0), np.array([[2, 1], [2, 1]]))
    given = {"size": (2, 4), "padding": 1, "image": "2 x 1, smaller than the window"}
    want = np.array([[-1.0, -2], [1, -1]])
    expect("(top, left), first and last place", small, want, given=given)


# ---- the batches of an epoch ---------------------------------------------------------------------


class Drawn:
    """A sampler that returns an order and counts its calls."""

    repeatable = False

    def __init__(self, order: Array) -> None:
        self.values, self.asked = order, 0

    def order(self) -> Array:
        self.asked += 1
        return self.values

    def __len__(self) -> int:
        return len(self.values)


ORDER = np.array([6, 2, 0, 5, 1, 4, 3])


@pytest.mark.exercise("epoch-batches")
def test_an_order_is_cut_into_batches() -> None:
    given = {"order": ORDER, "batch_size": 3}
    whole, short = [[6, 2, 0], [5, 1, 4], [3]], [[6, 2, 0], [5, 1, 4]]
    for drop_last, want in ((False, whole), (True, short)):
        split = PositionOrder(Drawn(ORDER), 3, drop_last).split(ORDER)
        given["drop_last"] = drop_last
        got = [batch.tolist() for batch in split]
        mistakes: dict[str, Any] = {
            "without drop_last the short last batch is kept": short,
            "drop_last leaves the short last batch out": whole,
        }
        expect("the batches", got, want, given=given, mistakes=mistakes)
    exact = [batch.tolist() for batch in PositionOrder(Drawn(ORDER[:6]), 3, False).split(ORDER[:6])]
    mistakes = {"an empty batch at the end": [*short, []]}
    expect("the batches of six indices", exact, short, mistakes=mistakes)


@pytest.mark.exercise("epoch-batches")
def test_the_tickets_of_a_drawn_order() -> None:
    sampler = Drawn(ORDER)
    order = DrawnOrder(sampler, 3, False)
    for start in (0, 1):
        epoch = order.epoch(None, 4, start)
        tickets = list(iter(epoch.next, None))
        want = [(0, [6, 2, 0]), (1, [5, 1, 4]), (2, [3])][start:]
        got = [(ticket.place, ticket.indices.tolist()) for ticket in tickets]
        given = {"order": ORDER, "batch_size": 3, "start": start}
        mistakes = {
            "places count from the beginning of the epoch": [
                (place - start, batch) for place, batch in want
            ],
        }
        expect("(place, indices) of the tickets", got, want, given=given, mistakes=mistakes)
        expect("their epoch", [ticket.epoch for ticket in tickets], [4] * len(want), given=given)
        calls = {"the order is drawn once, not for each batch": 3}
        expect("calls of sampler.order()", sampler.asked, start + 1, mistakes=calls)
    drawn = None if order.drawn is None else order.drawn.tolist()
    expect("order.drawn, which loader.ordering reads", drawn, ORDER.tolist())


@pytest.mark.exercise("epoch-batches")
def test_shuffling_draws_one_permutation() -> None:
    np.random.seed(0)
    want = np.random.permutation(5)
    np.random.seed(0)
    order = DataLoader(range(5), batch_size=2, shuffle=True).make_order()
    epoch = order.epoch(None, 0, 0)
    got = np.concatenate([ticket.indices for ticket in iter(epoch.next, None)])
    given = {"np.random.permutation(5)": want}
    mistakes = {"the data is not shuffled": np.arange(5)}
    expect("the indices of a shuffled epoch", got, want, given=given, mistakes=mistakes)


# ---- the loader's loop ---------------------------------------------------------------------------


class Loop:
    """A stand-in for a LoaderIterator whose engine takes ``capacity`` tickets."""

    def __init__(self, tickets: int, capacity: int) -> None:
        self.engine = SimpleNamespace(capacity=capacity)
        self._waiting: dict[int, str] = {}
        self._ready: dict[int, str] = {}
        self._tickets = SimpleNamespace(next=self._next_ticket)
        self.left, self.asked = iter(range(tickets)), 0
        self.submitted: list[int] = []

    def _next_ticket(self) -> Any:
        self.asked += 1
        place = next(self.left, None)
        return None if place is None else SimpleNamespace(place=place)

    def _submit(self, engine: Any, ticket: Any) -> None:
        if len(self.submitted) > 50:
            raise RuntimeError("more than 50 tickets: self._waiting is not looked at")
        self.submitted.append(ticket.place)
        self._waiting[ticket.place] = "ticket"

    def submit_ahead(self) -> None:
        function: Any = LoaderIterator._submit_ahead
        function(self, self.engine)

    def next_out(self) -> int | None:
        function: Any = LoaderIterator._next_out
        place: int | None = function(self)
        return place


@pytest.mark.exercise("loader-loop")
def test_tickets_are_submitted_ahead() -> None:
    loop = Loop(tickets=9, capacity=3)
    given: dict[str, Any] = {"tickets": "0 ... 8", "engine.capacity": 3}
    loop.submit_ahead()
    mistakes = {
        "one ticket only: submit until capacity of them wait": [0],
        "one too many: stop at capacity": [0, 1, 2, 3],
    }
    submitted = np.array(loop.submitted)
    named = {cause: np.array(each) for cause, each in mistakes.items()}
    expect("submitted at first", submitted, np.array([0, 1, 2]), given=given, mistakes=named)
    del loop._waiting[0]
    loop.submit_ahead()
    given["delivered"] = "batch 0"
    named = {"as many as capacity, though two wait": np.array([0, 1, 2, 3, 4, 5])}
    submitted = np.array(loop.submitted)
    expect("submitted then", submitted, np.array([0, 1, 2, 3]), given=given, mistakes=named)
    expect("tickets taken from the order", loop.asked, 4, given=given)
    end = Loop(tickets=2, capacity=3)
    end.submit_ahead()
    given = {"tickets": "0, 1", "engine.capacity": 3}
    expect("submitted of a short epoch", end.submitted, [0, 1], given=given)


@pytest.mark.exercise("loader-loop")
def test_batches_leave_in_order() -> None:
    loop = Loop(tickets=3, capacity=3)
    loop._waiting = dict.fromkeys(range(3), "ticket")
    given = {"waiting": "0, 1, 2", "ready": "none"}
    expect("the batch that leaves next", loop.next_out(), None, given=given)
    loop._ready = {2: "batch", 1: "batch"}
    given["ready"] = "2, then 1"
    mistakes = {
        "batch 0 is the next one, and it is not ready": 2,
    }
    expect("the batch that leaves next", loop.next_out(), None, given=given, mistakes=mistakes)
    loop._ready[0] = "batch"
    given["ready"] = "2, then 1, then 0"
    expect("the batch that leaves next", loop.next_out(), 0, given=given)


@pytest.mark.exercise("loader-loop")
def test_a_loader_yields_every_sample_once() -> None:
    data = [np.array([index]) for index in range(7)]
    batches = [batch.numpy()[:, 0].tolist() for batch in DataLoader(data, batch_size=3)]
    expect("the batches of samples 0 ... 6", batches, [[0, 1, 2], [3, 4, 5], [6]])
    np.random.seed(1)
    shuffled = DataLoader(data, batch_size=3, shuffle=True)
    seen = [int(value) for batch in shuffled for value in batch.numpy()[:, 0]]
    expect("the samples of a shuffled epoch, sorted", sorted(seen), list(range(7)))
