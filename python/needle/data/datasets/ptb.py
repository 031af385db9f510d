"""Text for language models: the course's Corpus (Penn Treebank) and its batches.

A corpus is one list of word ids, not a Dataset: ``batchify`` arranges it in columns, and
``get_batch`` returns a few rows of them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError, ShapeError
from ..formats.files import PathLike, find_file, open_file
from ..samples.tensor_hook import as_tensor
from .mnist import check_is_there

END_OF_LINE = "<eos>"


class Dictionary:
    """Words numbered in order of appearance: ``word2idx`` (dict) and ``idx2word`` (list)."""

    def __init__(self) -> None:
        self.word2idx: dict[str, int] = {}
        self.idx2word: list[str] = []

    def add_word(self, word: str) -> int:
        """Return the id of ``word``, adding it if it is new."""
        found = self.word2idx.setdefault(word, len(self.idx2word))
        if found == len(self.idx2word):
            self.idx2word.append(word)
        return found

    def __len__(self) -> int:
        return len(self.idx2word)


class Corpus:
    """The files ``train.txt`` and ``test.txt``, or ``ptb.train.txt`` and so on, as lists of ids.

    White space separates words; ``<eos>`` follows every line. Both texts share ``dictionary``,
    which numbers the words of the training text first (10 000 with ``<eos>`` for the Penn Treebank
    of Mikolov et al. 2010). max_lines: read only the first lines of each file.
    Raises DataError for files that are missing or not in UTF-8.
    """

    def __init__(self, base_dir: PathLike, max_lines: int | None = None) -> None:
        self.dictionary = Dictionary()
        folder = Path(base_dir)
        train, test = (
            find_file(folder, name, f"ptb.{name}") or folder / name
            for name in ("train.txt", "test.txt")
        )
        self.train, self.test = self.tokenize(train, max_lines), self.tokenize(test, max_lines)

    def tokenize(self, path: PathLike, max_lines: int | None = None) -> list[int]:
        """Return the ids of the words in a text, adding new words to the dictionary."""
        add = self.dictionary.add_word
        return [add(word) for line in _lines(path, max_lines) for word in (*line, END_OF_LINE)]


def _lines(path: PathLike, max_lines: int | None) -> Iterator[list[str]]:
    """Yield the words of each line."""
    check_is_there("Corpus", path, "any text with one sentence per line, such as the Penn Treebank")
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8") as text:
            for line in islice(text, max_lines):
                yield line.split()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: expected text in UTF-8, got byte {error.object[error.start]:#04x}; convert it"
        ) from error


def batchify(
    data: Sequence[int], batch_size: int, device: Any = None, dtype: Any = "float32"
) -> npt.NDArray[Any]:
    """Return the ids as ``batch_size`` columns, ``(len // batch_size, batch_size)``.

    Each column is a contiguous piece of the text; the remainder is dropped. The result is a NumPy
    array on the host, regardless of ``device``; ``get_batch`` moves the data to the device. Raises
    ShapeError if there are fewer ids than columns.
    """
    ### BEGIN YOUR SOLUTION [text-columns]
    if not 1 <= batch_size <= len(data):
        raise ShapeError(
            f"batchify: batch_size must be from 1 to {len(data)}, the number of ids, got "
            f"{batch_size}; use fewer columns"
        )
    rows = len(data) // batch_size
    ids = np.array(data[: rows * batch_size], dtype=dtype)
    return np.ascontiguousarray(ids.reshape(batch_size, rows).T)
    ### END YOUR SOLUTION


def get_batch(
    batches: npt.NDArray[Any], i: int, bptt: int, device: Any = None, dtype: Any = None
) -> tuple[Any, Any]:
    """Return inputs ``(n, batch_size)`` and targets ``(n * batch_size,)``.

    Inputs are the rows i to i + n of ``batches``, and targets are the rows i + 1 to i + 1 + n,
    flattened; n = min(bptt, rows - 1 - i). Both are Tensors on ``device``, in ``dtype`` if given.
    Raises ShapeError if row i is the last one.
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
