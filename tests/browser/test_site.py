"""The documentation site in a real browser: nothing is cut off, keyboards and screen readers work.

make test-browser builds the site in build/docs, and installs axe-core in build/axe.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
BUILD = Path(__file__).resolve().parents[2] / "build"
AXE = BUILD / "axe/node_modules/axe-core/axe.min.js"
PAGES = [f"docs/{name}" for name in ("index", "own_pictures", "course", "syllabus", "trail")]
PAGES += ["docs/data_loading", "docs/api/nn", "hw_notebook"]
SCREENS = {"phone": (390, 844), "desktop": (1280, 800)}
OBSTACLES = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(found => done(
  found.violations.filter(each => ["serious", "critical"].includes(each.impact))
    .map(each => `${each.id}: ${each.nodes[0].html}`)));
"""


class Quiet(SimpleHTTPRequestHandler):
    """A handler that prints nothing."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    if not (BUILD / "docs/docs/index.html").exists():
        pytest.skip("needs the site; make docs builds it")
    handler = partial(Quiet, directory=str(BUILD / "docs"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def opened(browser: Any, address: str, screen: str = "desktop", theme: str = "light") -> Any:
    width, height = SCREENS[screen]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    browser.get(address)
    return browser


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_as_wide_as_the_screen(browser: Any, site: str, page: str, screen: str) -> None:
    opened(browser, f"{site}/{page}.html", screen)
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(wide) == 0
    missing = (
        "return [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
    )
    assert browser.execute_script(missing) == []
    errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not [entry for entry in errors if "favicon.ico" not in entry["message"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_serious_obstacle(browser: Any, site: str, page: str, theme: str) -> None:
    if not AXE.exists():
        pytest.skip("needs axe-core; make test-browser installs it")
    opened(browser, f"{site}/{page}.html", "phone", theme)
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    assert browser.execute_async_script(OBSTACLES) == []


def test_the_first_key_reaches_the_skip_link_and_shows_it(browser: Any, site: str) -> None:
    from selenium.webdriver import ActionChains, Keys
    from selenium.webdriver.support.ui import WebDriverWait

    opened(browser, f"{site}/docs/index.html")
    ActionChains(browser).send_keys(Keys.TAB).perform()
    focused = browser.switch_to.active_element
    assert focused.get_property("textContent") == "Skip to content"
    wait = WebDriverWait(browser, 20, 0.05)
    wait.until(lambda _: focused.rect["y"] >= 0, "the skip link stays out of sight")
    ActionChains(browser).send_keys(Keys.TAB).perform()
    outline = browser.switch_to.active_element.value_of_css_property("outline-style")
    assert outline not in ("none", "")
