"""The page of apps/predict.py --serve in a real browser: drawn, dropped and wrong pictures.

Run by make test-all and make test-browser; needs Chromium and its driver (Debian: packages chromium
and chromium-driver).
"""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apps import train
from apps.course.checking import environment_of
from apps.course.edition import write_edition
from apps.prediction.classifier import Classifier
from apps.prediction.server import server_for
from needle import data

pytestmark = pytest.mark.browser
SECONDS = 20
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    assert train.main(["--epochs", "3", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def classifier(run: Path) -> Classifier:
    return Classifier(run / "model.safetensors")


@pytest.fixture(scope="module")
def address(classifier: Classifier) -> Iterator[str]:
    with server_for(classifier, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def portrait(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of ``python -m apps.course progress --html``, of a tree with one exercise."""
    tree = tmp_path_factory.mktemp("course") / "tree"
    write_edition(ROOT, tree, {"scalar-add"})
    command = [sys.executable, "-m", "apps.course", "progress", "--html", "portrait.html"]
    subprocess.run(command, cwd=tree, check=True, env=environment_of(tree, "np"))
    return tree / "portrait.html"


@pytest.fixture
def page(browser: Any, address: str) -> Any:
    browser.get(address)
    wait_for(browser, lambda: "Draw, or drop" in text(browser, "hint"))
    return browser


def wait_for(browser: Any, condition: Callable[[], Any]) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, SECONDS, 0.05).until(lambda _: condition())


def element(browser: Any, name: str) -> Any:
    return browser.find_element("id", name)


def text(browser: Any, name: str) -> str:
    return str(element(browser, name).text)


def shown(browser: Any) -> list[tuple[str, str]]:
    """Classes and percentages as they stand on the page."""
    words = text(browser, "answers").split("\n")
    return list(zip(words[::2], words[1::2], strict=True))


def expected(classifier: Classifier, picture: Any) -> list[tuple[str, str]]:
    (best,) = classifier.predict(classifier.prepare(picture)[None])
    shares = (f"{100 * p:.1f} %" for p in best.probabilities)
    return list(zip(best.classes, shares, strict=True))


def test_what_is_drawn_is_classified_and_its_maps_are_shown(
    page: Any, classifier: Classifier
) -> None:
    from selenium.webdriver import ActionChains

    board = element(page, "board")
    strokes = ActionChains(page, duration=20).move_to_element_with_offset(board, 0, -90)
    strokes.click_and_hold().move_by_offset(5, 90).move_by_offset(-5, 90).release().perform()
    wait_for(page, lambda: text(page, "answers"))
    drawn = page.execute_script("return arguments[0].toDataURL('image/png')", board)
    picture = base64.b64decode(drawn.partition(",")[2])
    assert len(set(classifier.prepare(picture).ravel().tolist())) > 2, "nothing was drawn"
    assert shown(page) == expected(classifier, picture)
    images = page.find_elements("css selector", "#maps img")
    wait_for(page, lambda: all(int(image.get_property("naturalWidth")) > 0 for image in images))
    names = [image.get_attribute("alt").removeprefix("feature maps of ") for image in images]
    assert names == list(classifier.feature_maps(classifier.prepare(picture)))
    assert not [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"]
    element(page, "clear").click()
    assert text(page, "answers") == "" and not page.find_elements("css selector", "#maps img")


def test_a_file_is_classified_and_one_that_is_no_picture_is_an_error(
    page: Any, classifier: Classifier, tmp_path: Path
) -> None:
    from PIL import Image

    image, label = data.Digits(train=False, layout="HWC")[0]
    path, other = tmp_path / "digit.png", tmp_path / "notes.txt"
    grey = np.round(image[..., 0] * 255).astype(np.uint8)
    Image.fromarray(np.kron(grey, np.ones((8, 8), np.uint8))).save(path)
    other.write_text("no picture")
    element(page, "file").send_keys(str(path))
    wait_for(page, lambda: text(page, "answers"))
    assert shown(page) == expected(classifier, path)
    assert shown(page)[0][0] == str(label)
    element(page, "file").send_keys(str(other))
    wait_for(page, lambda: text(page, "error"))
    assert "cannot be decoded" in text(page, "error")


@pytest.mark.parametrize(("screen", "theme"), [("phone", "light"), ("desktop", "dark")])
@pytest.mark.parametrize("name", ["prediction", "report", "portrait"])
def test_a_page_of_a_program_has_no_serious_obstacle(
    opened: Any,
    obstacles: Any,
    address: str,
    run: Path,
    portrait: Path,
    name: str,
    screen: str,
    theme: str,
) -> None:
    pages = {"prediction": address, "report": f"file://{run / 'report.html'}"}
    browser = opened(pages.get(name, f"file://{portrait}"), screen, theme)
    assert obstacles() == []
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(wide) == 0
