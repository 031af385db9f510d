"""Test keyed draws: a stream's number is its position in a list, however it is called."""

import numpy as np

from needle import data
from needle.backends import philox
from needle.data.samples.random_source import draws, keyed, random_source
from needle.data.transforms import streams_of


class Notes(data.Transform):
    """A transform that records its words and changes nothing."""

    words = 3

    def __init__(self):
        self.seen = []

    def parameters(self, words, sizes, spec=None):
        return words.astype(np.float64)

    def apply(self, image, row):
        self.seen.append(row.tolist())
        return image


def expected(stream, seed=5, epoch=2, index=9):
    return philox.words(seed, epoch, np.array([index]), stream, 3)[0].tolist()


def test_transforms_take_the_streams_of_their_place_depth_first():
    a, b, c, d = (Notes() for _ in range(4))
    nested = data.Compose([a, data.Compose([b, data.ToCHW()]), c, lambda x: x, d])
    assert nested.streams == 4 + streams_of(len) + 1
    with keyed(5, 2, 9) as source:
        nested(np.zeros((2, 2, 1)))
        assert source.stream == nested.streams
    places = [0, 1, 3, 4 + streams_of(len)]
    assert [n.seen for n in (a, b, c, d)] == [[expected(s)] for s in places]


def test_draws_of_a_callable_do_not_change_later_draws():
    def greedy(x):
        random_source().rand(100)
        draws().take(3, 5)
        return x

    late = Notes()
    for first in (greedy, lambda x: x):
        with keyed(5, 2, 9):
            data.Compose([first, late])(np.zeros((2, 2, 1)))
    assert late.seen[0] == late.seen[1]


def test_each_place_has_its_own_random_source():
    def draw(x):
        return [*x, random_source().rand()]

    with keyed(5, 2, 9) as source:
        before = random_source().rand()
        values = data.Compose([draw, draw, draw])([])
    assert len({before, *values}) == 4
    with keyed(5, 2, 9) as source:
        source.seek(streams_of(draw))
        assert draw([]) == [values[1]]


def test_outside_a_block_words_come_from_numpys_stream():
    notes = Notes()
    np.random.seed(4)
    want = np.random.randint(0, 2**32, size=3, dtype=np.uint32).tolist()
    np.random.seed(4)
    data.Compose([data.ToCHW(), data.ToFloat(), notes])(np.zeros((2, 2, 1), np.uint8))
    assert notes.seen == [want]


def test_numpy_integers_are_as_good_as_pythons():
    found = []
    for kind in (int, np.int64, np.uint32):
        with keyed(kind(7), kind(3), kind(2**31 + 1)) as own:
            found.append((own.words(5, 3).tolist(), random_source().rand()))
    with keyed(7, 3, np.int64(-1)):
        assert 0 <= random_source().rand() < 1
    assert found[0] == found[1] == found[2]


def test_one_of_takes_a_stream_for_the_choice_and_those_of_all():
    a, b, after = Notes(), Notes(), Notes()
    chosen = data.Compose([data.OneOf([a, data.Compose([b, Notes()])]), after])
    for index in range(40):
        with keyed(5, 2, index):
            chosen(np.zeros((2, 2, 1)))
    assert chosen.streams == 1 + 3 + 1
    assert after.seen == [expected(4, index=i) for i in range(40)]
    which = philox.below(philox.words(5, 2, np.arange(40), 0, 2)[:, 1], 2)
    assert a.seen == [expected(1, index=i) for i in np.flatnonzero(which == 0)]
    assert b.seen == [expected(2, index=i) for i in np.flatnonzero(which == 1)]
    assert len(a.seen) > 8 and len(b.seen) > 8
