"""Test the page that ``progress --html`` writes: its content, and the LeNet that it trains."""

import json
import os
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from apps.course import __main__ as course
from apps.course import own_lenet, portrait, progress
from apps.course.blocks import fill
from apps.course.checking import Result
from apps.course.edition import write_edition
from apps.course.rates import Rate
from apps.course.registry import exercises, parts

ROOT = Path(__file__).resolve().parents[2]
LENET = {
    "filters": [[[0.5, -1.0], [0.0, 0.25]]],
    "losses": [2.0, 1.0],
    "accuracy": 0.97,
    "digit": [[0.0, 1.0]],
    "maps": [[[0.0, 2.0]]],
}


def given(**other: str) -> dict[str, str]:
    states = dict.fromkeys(exercises(), "open")
    return states | {tag.replace("_", "-"): state for tag, state in other.items()}


class Outline(HTMLParser):
    """A parser that collects headings, images, elements and text, and checks their nesting."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.starts: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.starts.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1], data.strip()))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.starts if name == tag]


def test_the_page_says_what_is_done_in_one_file_without_scripts() -> None:
    states = given(scalar_add="own", scalar_multiply="solved", scalar_tanh="fails", lenet5="given")
    entries = {
        "scalar-add": progress.Entry("passes", minutes=75.0),
        "gemm-vectors": progress.Entry(rate=(20.0, 50.0, 80.0)),
    }
    text = portrait.page(states, entries, LENET)
    page = Outline(text)
    names = [tag for tag, _ in page.starts]
    assert not {"script", "link", "img", "iframe"} & set(names)
    assert re.findall(r"(?:src|href|url)\s*[=(]", text) == []
    assert names.count("h1") == 1 and names.count("h2") == 4
    assert names.count("li") == len(exercises())
    earned, most = exercises()["scalar-add"].points, sum(e.points for e in exercises().values())
    assert f"{earned} <small>of {most}</small>" in text
    assert f"1 <small>of {len(exercises()) - 1}</small>" in text  # one exercise was solved before
    assert "1 <small>h</small> 15 <small>min</small>" in text
    assert "20.0 GFLOP/s: 25% of the core's limit of 80, 40% of the library's kernel" in text
    assert text.count("<details>") == 2  # the user's own answer and the one given by solve
    assert "97.0%" in text and "2 batches" in text
    assert [svg["aria-label"] for svg in page.of("svg")] == [
        *("filter 1", "the digit", "where filter 1 answers to the digit"),
        "The loss falls from 2.00 to 1.00 in 2 batches",
    ]


def test_a_page_without_lenet_or_kernels_says_what_is_missing() -> None:
    text = portrait.page(given(), {}, {"open": "lenet5"})
    Outline(text)
    assert "<code>lenet5</code>" in text and "Your kernels" not in text
    assert "What to remember" not in text and "spent" not in text
    problem = portrait.page(given(), {}, {"problem": "ValueError: 1 < 2"})
    assert "could not be trained: ValueError: 1 &lt; 2" in problem
    assert {part.title[1:] for part in parts()} <= set(re.findall(r"· .(.*?)</h3>", text))


def test_the_tree_trains_its_own_lenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tmp_path / "tree"
    write_edition(ROOT, tree, {"lenet5", "adam"})
    monkeypatch.setattr(course, "ROOT", tree)
    assert course.main(["progress", "--html", str(tmp_path / "page.html")]) == 0
    assert "<code>lenet5</code>" in (tmp_path / "page.html").read_text()
    answered = progress.states(tree) | {"lenet5": "own"}
    fill(tree, {"lenet5": json.loads((tree / ".course/solutions.json").read_text())["lenet5"]})
    assert portrait.own_lenet(tree, answered) == {"open": "adam"}
    model = tree / "apps/models/small.py"
    model.write_text(model.read_text().replace("super().__init__()", "super().__init__(1)", 1))
    problem = portrait.own_lenet(tree, answered)["problem"]
    assert problem.startswith("TypeError") and "at apps/models/small.py:" in problem
    monkeypatch.setattr(portrait, "LONGEST", 0.2)
    assert portrait.own_lenet(tree, answered) == {"problem": "the training was stopped after 0.2 s"}


def test_a_few_batches_teach_lenet_something() -> None:
    found = own_lenet.trained(batches=40, seconds=60)
    assert np.shape(found["filters"]) == (6, 5, 5) and np.shape(found["maps"]) == (6, 14, 14)
    assert np.shape(found["digit"]) == (8, 8) and len(found["losses"]) == 40
    assert found["losses"][0] > 2 > np.mean(found["losses"][-5:]) and found["accuracy"] > 0.6


def test_answers_of_filters_are_pooled_products() -> None:
    image = np.random.default_rng(0).normal(size=(32, 32))
    filters = np.random.default_rng(1).normal(size=(2, 5, 5))
    found = own_lenet.answers_of(filters, image)
    products = [
        (image[6 + i : 11 + i, 8 + j : 13 + j] * filters[1]).sum() for i in (0, 1) for j in (0, 1)
    ]
    assert found.shape == (2, 14, 14)
    np.testing.assert_allclose(found[1, 3, 4], max(0.0, *products))


def test_time_and_rates_are_kept(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    write_edition(ROOT, tree, {"hooks", "record"})
    result = Result(exercises()["hooks"], [])
    progress.begin(tree)
    kept = tree / ".course/progress.json"
    for minutes, total in ((12, 12.0), (progress.LONGEST_BREAK + 1, 12.0)):  # time before a break
        moment = time.time() - 60 * minutes
        os.utime(kept, (moment, moment))
        progress.remember(tree, [result])
        assert progress.load(tree)["hooks"].minutes == pytest.approx(total, abs=0.2)
    progress.remember_rate(tree, "hooks", Rate(1.0, 2.0, 4.0))
    progress.remember_rate(tree, "hooks", "not timed: it fails")
    assert list(progress.load(tree)["hooks"].rate) == [1.0, 2.0, 4.0]
