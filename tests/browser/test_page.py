"""Open the page of apps/predict.py --serve in a real browser and give it valid and invalid images.

Run by make test-all and make test-browser; needs Chromium and its driver (Debian: packages chromium
and chromium-driver).
"""

import base64
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
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
    """Return the page that ``apps.course progress --html`` writes for a tree with one exercise."""
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
    """Return the classes and percentages that the page shows."""
    words = text(browser, "answers").split("\n")
    return list(zip(words[::2], words[1::2], strict=True))


def expected(classifier: Classifier, picture: Any) -> list[tuple[str, str]]:
    (best,) = classifier.predict(classifier.prepare(picture)[None])
    shares = (f"{100 * p:.1f} %" for p in best.probabilities)
    return list(zip(best.classes, shares, strict=True))


def draw(browser: Any) -> bytes:
    """Draw a line, wait for the answer, and return the picture."""
    from selenium.webdriver import ActionChains

    board = element(browser, "board")
    strokes = ActionChains(browser, duration=20).move_to_element_with_offset(board, 0, -90)
    strokes.click_and_hold().move_by_offset(5, 90).move_by_offset(-5, 90).release().perform()
    wait_for(browser, lambda: text(browser, "answers"))
    drawn = browser.execute_script("return arguments[0].toDataURL('image/png')", board)
    return base64.b64decode(drawn.partition(",")[2])


def test_what_is_drawn_is_classified_and_its_maps_are_shown(
    page: Any, classifier: Classifier
) -> None:
    picture = draw(page)
    assert len(set(classifier.prepare(picture).ravel().tolist())) > 2, "nothing was drawn"
    assert text(page, "where") == (
        "Computed by the server, because this browser offers no GPU (WebGPU)."
    )
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
    assert obstacles(browser) == []
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(wide) == 0


# ---- the visitor's GPU -----------------------------------------------------------------------


LAYERS = """
const done = arguments[1];
network.run(new Float32Array(arguments[0])).then((found) => done(found.layers.map((v) => [...v])));
"""


@pytest.fixture
def gpu_page(gpu_browser: Any, address: str) -> Any:
    gpu_browser.get(address)
    wait_for(gpu_browser, lambda: text(gpu_browser, "where"))
    assert text(gpu_browser, "where").startswith("Computed by your GPU: google swiftshader")
    return gpu_browser


def test_the_visitors_gpu_computes_what_the_cpu_computes(
    gpu_page: Any, classifier: Classifier
) -> None:
    picture = draw(gpu_page)
    assert shown(gpu_page) == expected(classifier, picture)
    image = classifier.prepare(picture)
    layers = gpu_page.execute_async_script(LAYERS, image.ravel().tolist())
    modules = [*classifier.model.features.modules, *classifier.model.classifier.modules]
    assert len(layers) == len(modules)
    x = needle.Tensor(image[None], requires_grad=False)
    with needle.no_grad():
        for module, values in zip(modules, layers, strict=True):
            x = module(x)
            np.testing.assert_allclose(values, x.numpy().ravel(), rtol=1e-4, atol=1e-5)


def test_each_layer_shows_its_maps_and_its_kernel(gpu_page: Any) -> None:
    draw(gpu_page)
    figures = gpu_page.find_elements("css selector", "figure")
    assert len(figures) == 12
    assert figures[0].text.startswith("features.0: Conv2d(1, 6, kernel_size=(5, 5)")
    canvas = figures[0].find_element("css selector", "canvas")
    assert canvas.get_attribute("aria-label") == "feature maps of features.0"
    pixels = "return new Set(arguments[0].getContext('2d').getImageData(0, 0, 84, 84).data).size"
    assert gpu_page.execute_script(pixels, canvas) > 10
    kernel = figures[0].find_element("css selector", "pre")
    assert not kernel.is_displayed()
    figures[0].find_element("css selector", "summary").click()
    wait_for(gpu_page, kernel.is_displayed)
    assert "@compute" in kernel.text
    assert not [entry for entry in gpu_page.get_log("browser") if entry["level"] == "SEVERE"]


def test_the_server_answers_when_the_gpu_is_lost(gpu_page: Any, classifier: Classifier) -> None:
    gpu_page.execute_script("network.device.destroy()")
    wait_for(gpu_page, lambda: text(gpu_page, "where").startswith("Computed by the server"))
    assert "because the GPU was lost" in text(gpu_page, "where")
    picture = draw(gpu_page)
    assert shown(gpu_page) == expected(classifier, picture)
    assert gpu_page.find_elements("css selector", "#maps img")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_layers_on_the_page_are_no_serious_obstacle(
    gpu_page: Any, obstacles: Any, width: int
) -> None:
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    gpu_page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    draw(gpu_page)
    for summary in gpu_page.find_elements("css selector", "figure > details > summary")[:2]:
        summary.click()
    assert obstacles(gpu_page) == []
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert gpu_page.execute_script(wide) == 0
