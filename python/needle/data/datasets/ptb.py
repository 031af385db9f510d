"""Text for language models, word by word: the course's Corpus (Penn Treebank) and its batches.

A corpus is one long list of ids, not a Dataset of samples: ``batchify`` lays it out in columns,
``get_batch`` cuts pieces of a few steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError, ShapeError
from ..batching.collate import as_tensor
from .mnist import check_is_there

PathLike = str | os.PathLike[str]

END_OF_LINE = "<eos>"


class Dictionary:
    """Words and their ids, numbered as they come: ``word2idx`` (dict) and ``idx2word`` (list)."""

    def __init__(self) -> None:
        self.word2idx: dict[str, int] = {}
        self.idx2word: list[str] = []

    def add_word(self, word: str) -> int:
        """The id of ``word``, a new one if it was not known."""
        found = self.word2idx.setdefault(word, len(self.idx2word))
        if found == len(self.idx2word):
            self.idx2word.append(word)
        return found

    def __len__(self) -> int:
        return len(self.idx2word)


class Corpus:
    """``train.txt`` and ``test.txt`` of a folder as lists of ids, ``.train`` and ``.test``.

    Words are what white space separates; ``<eos>`` follows every line. Both texts share
    ``.dictionary``, which numbers the training text's words first (10 000 with ``<eos>`` for the
    Penn Treebank of Mikolov et al. 2010). max_lines: only the first lines of each file.
    Raises DataError for files missing or not in UTF-8.
    """

    def __init__(self, base_dir: PathLike, max_lines: int | None = None) -> None:
        self.dictionary = Dictionary()
        self.train = self.tokenize(Path(base_dir) / "train.txt", max_lines)
        self.test = self.tokenize(Path(base_dir) / "test.txt", max_lines)

    def tokenize(self, path: PathLike, max_lines: int | None = None) -> list[int]:
        """The ids of a text's words, new ones added to the dictionary."""
        add = self.dictionary.add_word
        return [add(word) for line in _lines(path, max_lines) for word in (*line, END_OF_LINE)]


def _lines(path: PathLike, max_lines: int | None) -> Iterator[list[str]]:
    """The words of each line."""
    check_is_there("Corpus", path, "any text with one sentence a line, such as the Penn Treebank")
    try:
        with open(path, encoding="utf-8") as text:
            for line in islice(text, max_lines):
                yield line.split()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: expected text in UTF-8, got byte {error.object[error.start]:#04x}; convert it"
        ) from error


def batchify(
    data: Sequence[int], batch_size: int, device: Any = None, dtype: Any = "float32"
) -> npt.NDArray[Any]:
    """Ids laid out in ``batch_size`` columns that are read downwards, (len // batch_size,
    batch_size); the remainder is cut off.

    A NumPy array, on the host whatever ``device`` says; ``get_batch`` puts pieces of it there.
    ShapeError where there is not a row.
    """
    ### BEGIN YOUR SOLUTION [text-columns]
    if not 1 <= batch_size <= len(data):
        raise ShapeError(
            f"batchify: batch_size must be from 1 to the {len(data)} ids there are, got "
            f"{batch_size}; take fewer columns"
        )
    rows = len(data) // batch_size
    ids = np.array(data[: rows * batch_size], dtype=dtype)
    return np.ascontiguousarray(ids.reshape(batch_size, rows).T)
    ### END YOUR SOLUTION


def get_batch(
    batches: npt.NDArray[Any], i: int, bptt: int, device: Any = None, dtype: Any = None
) -> tuple[Any, Any]:
    """Inputs (n, batch_size), rows i to i + n of ``batches``, and targets, the rows after each,
    flat (n * batch_size,); n = min(bptt, rows - 1 - i).

    Tensors on ``device``, in ``dtype`` if given. ShapeError where no row has one after it.
    """
    ### BEGIN YOUR SOLUTION [text-columns]
    steps = min(bptt, len(batches) - 1 - i)
    if i < 0 or steps < 1:
        raise ShapeError(
            f"get_batch: i must be in [0, {len(batches) - 1}) and bptt at least 1, got i={i}, "
            f"bptt={bptt}; stop before the last row"
        )
    targets = batches[i + 1 : i + 1 + steps].reshape(-1)
    return (
        as_tensor(batches[i : i + steps], device, dtype),
        as_tensor(targets, device, dtype),
    )
    ### END YOUR SOLUTION
