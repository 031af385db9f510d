"""Test the course's text corpus: ids, columns, slices, and malformed files."""

import pytest

from needle.data import Corpus, batchify, get_batch
from needle.errors import DataError, ShapeError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.txt").write_text(" the cat  sat \n\nthe dog sat\n")
    (tmp_path / "test.txt").write_text("the bird\nsat the cat")
    return tmp_path


def test_both_texts_share_a_dictionary(folder):
    corpus = Corpus(folder)
    words = ["the", "cat", "sat", "<eos>", "dog", "bird"]
    assert corpus.dictionary.idx2word == words
    assert corpus.dictionary.word2idx == {word: i for i, word in enumerate(words)}
    assert len(corpus.dictionary) == 6
    assert corpus.train == [0, 1, 2, 3, 3, 0, 4, 2, 3]
    assert corpus.test == [0, 5, 3, 2, 0, 1, 3]


@pytest.mark.parametrize("names", ["ptb.{}.txt", "{}.TXT", "PTB_{}.txt"])
def test_texts_under_their_published_names(folder, names):
    wanted = Corpus(folder)
    for split in ("train", "test"):
        (folder / f"{split}.txt").rename(folder / names.format(split))
    assert (Corpus(folder).train, Corpus(folder).test) == (wanted.train, wanted.test)


def test_only_the_first_lines(folder):
    corpus = Corpus(str(folder), max_lines=1)
    assert (corpus.train, corpus.test) == ([0, 1, 2, 3], [0, 4, 3])
    assert len(Corpus(folder, max_lines=0).dictionary) == 0


def test_files_that_are_not_there_or_no_text(folder):
    (folder / "test.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match=r"test\.txt: expected text in UTF-8, got byte 0xe9"):
        Corpus(folder)
    (folder / "test.txt").unlink()
    with pytest.raises(DataError, match=r"Corpus: needs the file .*test\.txt, got none"):
        Corpus(folder)


@pytest.mark.parametrize(("i", "bptt"), [(2, 1), (-1, 1), (0, 0)])
def test_rows_without_targets_are_refused(i, bptt):
    columns = batchify(list(range(6)), 2)
    with pytest.raises(ShapeError, match=r"get_batch: i must be in \[0, 2\) and bptt at least"):
        get_batch(columns, i, bptt)
