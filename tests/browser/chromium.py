"""Chromium for tests: Debian's, driven by Playwright, with everything noted that a browser complains about.

Rule: it is never skipped. ``scripts/services`` and ``scripts/screenshots`` install Chromium; without it, tests fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
HEIGHT = 900
BAD_CONSOLE = ("error", "warning")
AXE_OPTIONS = {"resultTypes": ["violations"], "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}


def executable() -> str:
    """Where Chromium is."""
    named = os.environ.get("SPARKBOLT_TEST_CHROMIUM")
    found = named or next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found, "these tests need Chromium: as root, apt-get install --no-install-recommends chromium"
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium; without its sandbox for root, who may not have one."""
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=[*arguments, "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """A person with a browser window of some width, who likes light or dark pages; ``complaints`` is what it logged."""

    def __init__(
        self, browser: Browser, url: str, *, width: int = 1280, scheme: Any = "light", javascript: bool = True
    ) -> None:
        self.url = url
        self.complaints: list[str] = []
        self.context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": HEIGHT},
            color_scheme=scheme,
            reduced_motion="reduce",
            java_script_enabled=javascript,
            timezone_id="Asia/Kolkata",
            locale="en-GB",
        )
        self.page: Page = self.context.new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"{self.page.url}: {error}"))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in BAD_CONSOLE:
            self.complaints.append(f"{self.page.url}: {message.text}")

    def goto(self, path: str) -> Page:
        """Go to a page, and wait until it is drawn."""
        answer = self.page.goto(f"{self.url}{path}", wait_until="load")
        assert answer is not None
        assert answer.status == 200, f"{path} answers with {answer.status}"
        return self.page

    def log_in(self, token: str) -> None:
        """Type the token into the login page."""
        self.goto("/login")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url(f"{self.url}/")

    def violations(self) -> list[str]:
        """What axe finds wrong with the page for those who cannot see it, or use no mouse."""
        found = Axe().run(self.page, options=AXE_OPTIONS).response["violations"]
        return [
            f"{self.page.url}: {one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
            for one in found
        ]

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def close(self) -> None:
        self.context.close()
