"""A headless Chromium for the tests: the one that is installed, or Debian's, installed here where we are root."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.chrome.webdriver import WebDriver

PACKAGES = ("chromium", "chromium-driver")
HELP = f"the page's tests need {' and '.join(PACKAGES)}: install them, or run the tests as root on Debian"
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


def installed() -> tuple[str, str]:
    """Where browser and driver are."""
    if shutil.which("chromedriver") is None or shutil.which("chromium") is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            pytest.skip(HELP)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for call in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
            subprocess.run(["apt-get", "-q", *call], env=environment, check=True, timeout=1200, capture_output=True)
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert browser is not None, HELP
    assert driver is not None, HELP
    return browser, driver


@contextmanager
def chromium(width: int = 1200, height: int = 900) -> Iterator[WebDriver]:
    """A browser, ended at the end."""
    program, driver = installed()
    options = Options()
    options.binary_location = program
    for argument in (*ARGUMENTS, f"--window-size={width},{height}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


def emulate(browser: WebDriver, width: int, *, dark: bool) -> None:
    """A phone if it is narrow."""
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def picture(browser: WebDriver, path: Path, most: int = 2400) -> None:
    """The whole page, as far down as `most`."""
    width, height = browser.execute_script(
        "const root = document.documentElement; return [root.scrollWidth, root.scrollHeight]"
    )
    clip: dict[str, Any] = {"x": 0, "y": 0, "width": width, "height": min(height, most), "scale": 1}
    taken = browser.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True, "clip": clip}
    )
    path.write_bytes(base64.b64decode(taken["data"]))


def complaints(browser: WebDriver) -> list[str]:
    """What the console says went wrong, but for connections that were cut on purpose."""
    entries = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry["message"] for entry in entries if entry["level"] == "SEVERE" and entry["source"] != "network"]
