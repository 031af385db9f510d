"""Test the progress bar of a run: its text on a terminal, and when it is hidden."""

import io
import sys

import pytest

from apps.training.bar import bar_of

pytest.importorskip("tqdm")


class Screen(io.StringIO):
    """A stream that reports that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Screen, io.StringIO])
@pytest.mark.parametrize("shown", [True, False])
def test_a_terminal_shows_the_bar_of_rank_0(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], shown: bool
) -> None:
    screen = stream()
    monkeypatch.setattr(sys, "stderr", screen)
    bar = bar_of([3, 1, 4], "epoch 2/5", " batches", done=1, shown=shown)
    bar.mininterval = 0.0
    seen = []
    for item in bar:
        seen.append(item)
        bar.set_postfix(loss=0.25, refresh=False)
    assert seen == [3, 1, 4]
    if shown and screen.isatty():
        said = screen.getvalue()
        assert "epoch 2/5" in said and "1/3" in said and "batches/s" in said and "loss=0.25" in said
    else:
        assert not screen.getvalue()
