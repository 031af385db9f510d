"""The documentation site in a real browser: no clipped content, usable by keyboard and screen
reader.

make test-browser builds the site in build/docs, and installs axe-core in build/axe.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
BUILD = Path(__file__).resolve().parents[2] / "build"
PAGES = [f"docs/{name}" for name in ("index", "own_pictures", "course", "syllabus", "trail")]
PAGES += ["docs/data_loading", "docs/notebook_to_web", "docs/teaching", "docs/api/nn"]
PAGES += ["hw_notebook"]


class Quiet(SimpleHTTPRequestHandler):
    """A handler that prints nothing."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    if not (BUILD / "docs/docs/index.html").exists():
        pytest.skip("needs the site; make docs builds it")
    with served(BUILD / "docs") as address:
        yield address


@contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("screen", ["phone", "desktop"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_as_wide_as_the_screen(opened: Any, site: str, page: str, screen: str) -> None:
    browser = opened(f"{site}/{page}.html", screen)
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(wide) == 0
    missing = (
        "return [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
    )
    assert browser.execute_script(missing) == []
    errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not [entry for entry in errors if "favicon.ico" not in entry["message"]]


@pytest.mark.parametrize(("screen", "theme"), [("phone", "light"), ("desktop", "dark")])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_serious_obstacle(
    opened: Any, obstacles: Any, site: str, page: str, screen: str, theme: str
) -> None:
    assert obstacles(opened(f"{site}/{page}.html", screen, theme)) == []


def test_the_first_key_reaches_the_skip_link_and_shows_it(opened: Any, site: str) -> None:
    from selenium.webdriver import ActionChains, Keys
    from selenium.webdriver.support.ui import WebDriverWait

    browser = opened(f"{site}/docs/index.html")
    ActionChains(browser).send_keys(Keys.TAB).perform()
    focused = browser.switch_to.active_element
    assert focused.get_property("textContent") == "Skip to content"
    wait = WebDriverWait(browser, 20, 0.05)
    wait.until(lambda _: focused.rect["y"] >= 0, "the skip link stays out of sight")
    ActionChains(browser).send_keys(Keys.TAB).perform()
    outline = browser.switch_to.active_element.value_of_css_property("outline-style")
    assert outline not in ("none", "")


def test_a_version_offers_the_others(opened: Any, site: str, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import Select, WebDriverWait

    for version in ("0.3.0", "0.2.0"):
        (tmp_path / version).symlink_to(BUILD / "docs")
    (tmp_path / "0.1.0/docs").mkdir(parents=True)
    (tmp_path / "0.1.0/index.html").write_text("<title>first page</title>")
    (tmp_path / "versions.json").write_text(json.dumps(["0.3.0", "0.2.0", "0.1.0"]))
    with served(tmp_path) as address:
        browser = opened(f"{address}/0.2.0/docs/index.html")
        wait = WebDriverWait(browser, 20, 0.05)

        def offered() -> Any:
            return Select(wait.until(lambda b: b.find_element("css selector", "select.versions")))

        assert [option.text for option in offered().options] == ["0.3.0", "0.2.0", "0.1.0"]
        assert offered().first_selected_option.text == "0.2.0"
        offered().select_by_visible_text("0.3.0")
        wait.until(lambda b: b.current_url == f"{address}/0.3.0/docs/index.html")
        offered().select_by_visible_text("0.1.0")  # version 0.1.0 lacks this page
        wait.until(lambda b: b.title == "first page")
    browser = opened(f"{site}/docs/index.html")
    assert browser.find_elements("css selector", "select.versions") == []
