"""Headless Chromium, for the tests of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

SWITCHES = ("headless=new", "no-sandbox", "disable-gpu", "disable-background-networking")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in found:
        pytest.skip("needs Chromium and its driver; Debian: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    profile = f"user-data-dir={tmp_path_factory.mktemp('profile')}"
    for switch in (*SWITCHES, profile):
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(found[1]))
    yield driver
    driver.quit()
