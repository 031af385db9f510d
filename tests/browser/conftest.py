"""Fixtures that start headless Chromium for the tests in this folder."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).resolve().parents[2] / "build/axe/node_modules/axe-core/axe.min.js"
SCREENS = {"phone": (390, 844), "desktop": (1280, 800)}
OBSTACLES = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(found => done(
  found.violations.filter(each => ["serious", "critical"].includes(each.impact))
    .map(each => `${each.id}: ${each.nodes[0].html}`)));
"""
SWITCHES = ("headless=new", "no-sandbox", "disable-background-networking")
SOFTWARE_GPU = ("enable-unsafe-webgpu", "use-webgpu-adapter=swiftshader")


def chromium(profile: Path, *switches: str) -> Iterator[Any]:
    """Yield a browser started with these command-line switches."""
    webdriver = pytest.importorskip("selenium.webdriver")
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in found:
        pytest.skip("needs Chromium and its driver; Debian: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    for switch in (*SWITCHES, *switches, f"user-data-dir={profile}"):
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(found[1]))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from chromium(tmp_path_factory.mktemp("profile"), "disable-gpu")


@pytest.fixture(scope="module")
def gpu_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a browser whose pages find a GPU, which SwiftShader emulates."""
    yield from chromium(tmp_path_factory.mktemp("profile"), *SOFTWARE_GPU)


@pytest.fixture
def opened(browser: Any) -> Callable[..., Any]:
    """Return a function that opens an address for a screen and a theme and returns the browser."""

    def open_page(address: str, screen: str = "desktop", theme: str = "light") -> Any:
        width, height = SCREENS[screen]
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
        browser.get(address)
        return browser

    return open_page


@pytest.fixture
def obstacles() -> Callable[[Any], list[str]]:
    """Return a function that lists serious accessibility violations of a page, by axe-core."""
    if not AXE.exists():
        pytest.skip("needs axe-core; make test-browser installs it")

    def find(browser: Any) -> list[str]:
        browser.execute_script(AXE.read_text(encoding="utf-8"))
        found: list[str] = browser.execute_async_script(OBSTACLES)
        return found

    return find
