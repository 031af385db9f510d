"""The first wrong element of an n-dimensional answer, with its window drawn as text.

Used by the tests of convolution and pooling. Images are (N, H, W, C) and padded; planes of one
channel are drawn with the pixels of a window in brackets and the padding as dots.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from apps.course.compare import Case, WrongAnswer, expect

Array = np.ndarray[Any, Any]
Index = tuple[int, ...]
Places = Collection[tuple[int, int]]


def expect_elements(
    what: str,
    got: Any,
    want: Array,
    drawn: Callable[[Index], str],
    *,
    given: Mapping[str, Any] | None = None,
    mistakes: Mapping[str, Any] | None = None,
) -> None:
    """Call ``expect``; for a wrong answer of the right shape, show only the first wrong element.

    drawn: returns the text that shows where an element of this index comes from.
    """
    try:
        expect(what, got, want, given=given, mistakes=mistakes)
    except WrongAnswer as wrong:
        if np.shape(got) != want.shape:
            raise
        raise WrongAnswer(_first(wrong.case, np.asarray(got), want, drawn)) from None


def _first(case: Case, got: Array, want: Array, drawn: Callable[[Index], str]) -> Case:
    """Return the case of the first wrong element in row-major order."""
    differs = ~np.isclose(got, want, rtol=1e-6, atol=1e-9, equal_nan=True)
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    place = ", ".join(map(str, index))
    return replace(
        case,
        what=f"{case.what}, element [{place}], the first of {differs.sum()} wrong ones",
        given="\n".join(filter(None, [case.given, drawn(index)])),
        expected=number(want[index]),
        got=number(got[index]),
    )


def number(value: Any) -> str:
    """Return a number without trailing zeros."""
    return f"{float(value):g}"


def plane(values: Array, marked: Places = (), padding: tuple[int, int] = (0, 0)) -> list[str]:
    """Return the lines of a matrix: marked elements in brackets, the padding as dots."""
    (height, width), (ph, pw) = values.shape, padding
    texts = {
        (r, c): number(values[r, c]) if ph <= r < height - ph and pw <= c < width - pw else "."
        for r, c in np.ndindex(height, width)
    }
    wide = max(map(len, texts.values()))
    cell = "[{}]".format
    return [
        "".join(
            (cell if (r, c) in marked else " {} ".format)(f"{texts[r, c]:>{wide}}")
            for c in range(width)
        )
        for r in range(height)
    ]


def beside(*columns: tuple[str, Sequence[str]]) -> str:
    """Return blocks of lines side by side, each with its title above."""
    blocks = [[title, *lines] for title, lines in columns]
    wide = [max(map(len, block)) for block in blocks]
    rows = zip_longest(*blocks, fillvalue="")
    return "\n".join(
        "   ".join(f"{text:<{w}}" for text, w in zip(row, wide)).rstrip() for row in rows
    )


def written_out(pairs: Sequence[tuple[Any, Any]]) -> str:
    """Return a sum of products as text."""
    total = number(sum(float(a) * float(b) for a, b in pairs))
    return " + ".join(f"{number(a)}*{number(b)}" for a, b in pairs) + f" = {total}"
