"""A page of the report in a real browser: Debian's chromium, driven by playwright."""

import shutil
from contextlib import contextmanager

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

INSIDE = ("data:", "blob:")  # what is in the page already


def launch():
    """A started browser and what stops it; a skip that says what is missing where there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api",
        reason="NO BROWSER TESTS: playwright is missing, pip install -e '.[dev]'",
    )
    if CHROMIUM is None:
        pytest.skip("NO BROWSER TESTS: chromium is missing, apt-get install chromium")
    driver = playwright.sync_playwright().start()
    browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    return driver, browser


@contextmanager
def opened(browser, path, **options):
    """The page of a file. Fails on any error, message on the console, or request beyond the file."""
    page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
    seen = []
    page.on("console", lambda message: seen.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: seen.append(f"error: {error}"))
    page.on("request", lambda request: seen.append(request.url))
    page.goto(path.as_uri())
    settle(page)
    yield page
    settle(page)
    page.close()
    assert [line for line in seen if not line.startswith(INSIDE)] == [path.as_uri()]


def settle(page):
    """Wait for what was asked to be drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")
