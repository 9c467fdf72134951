"""A real browser on a served dashboard. Whatever the console calls an error fails the test."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright

from tests.support.web import TOKEN, Served, served

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "artifacts" / "screenshots"
IMAGES = ROOT / "docs" / "images"
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage"]
PHONE = 390
DESKTOP = 1280
PATIENCE = 30_000  # milliseconds; what is waited for comes far sooner, unless the machine is busy
LOOKS = [("light", "en", DESKTOP), ("dark", "ko", DESKTOP), ("dark", "en", PHONE), ("light", "ko", PHONE)]
"""Theme, language and width: each of both themes and languages on a desk and on a phone."""


def chromium() -> str:
    """Where Chromium is; the test is skipped where there is none."""
    found = os.environ.get("KINGDOM_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium here: install it, or name one in KINGDOM_CHROMIUM")
    return found


@contextlib.asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """A browser for a whole run."""
    path = chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Visitor:
    """Opens pages of one served dashboard, logged in."""

    browser: Browser
    web: Served
    errors: list[str] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def page(
        self,
        path: str = "/",
        *,
        theme: str = "light",
        locale: str = "en",
        width: int = DESKTOP,
        height: int = 800,
        status: int = 200,
    ) -> AsyncIterator[Page]:
        """A page, opened and answered with this status; at the end the console must have been silent."""
        browser = await self.browser.new_context(
            viewport={"width": width, "height": height},
            locale={"en": "en-US", "ko": "ko-KR"}[locale],
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
        )
        browser.set_default_timeout(PATIENCE)
        try:
            entered = await browser.request.get(f"{self.web.url}/login?token={TOKEN}", max_redirects=0)
            assert entered.status == 303, await entered.text()
            cookies = {"kingdom_theme": theme, "kingdom_locale": locale}
            await browser.add_cookies(
                [{"name": key, "value": one, "url": self.web.url} for key, one in cookies.items()]
            )
            page = await browser.new_page()
            self._listen(page)
            answered = await page.goto(self.web.url + path)
            assert answered is not None
            assert answered.status == status
            await page.wait_for_selector("#main")
            if status != 200:  # the console says so too
                self.errors = [error for error in self.errors if f"with a status of {status}" not in error]
            yield page
            assert not self.errors, self.errors
        finally:
            self.errors.clear()
            await browser.close()

    def _listen(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.errors.append(f"{page.url}: {error}"))
        page.on(
            "console",
            lambda message: (
                self.errors.append(f"{page.url}: {message.text}") if message.type in ("error", "warning") else None
            ),
        )


@contextlib.asynccontextmanager
async def visiting(browser: Browser, root: Path, *, court: bool = True, engine: bool = False) -> AsyncIterator[Visitor]:
    """Serve a folder, and go there."""
    async with served(root, pages=True, court=court, engine=engine) as web:
        yield Visitor(browser, web)


async def shoot(page: Page, name: str) -> None:
    """Keep what the page looks like."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SHOTS / f"{name}.png")


async def shoot_for_docs(page: Page, name: str) -> None:
    """Keep it in the documentation, when that is to be made anew: ``KINGDOM_SCREENSHOTS=docs``."""
    await shoot(page, name)
    if os.environ.get("KINGDOM_SCREENSHOTS") == "docs":
        IMAGES.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SHOTS / f"{name}.png", IMAGES / f"{name}.png")


async def overflow(page: Page) -> int:
    """By how many pixels a page is wider than its window: nobody wants to scroll sideways."""
    wide: int = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wide
