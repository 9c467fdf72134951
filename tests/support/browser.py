"""A real browser on a served dashboard. Whatever the console calls an error fails the test."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.support.web import TOKEN, Served, served

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "artifacts" / "screenshots"
AXE = ROOT / ".tools" / "axe-core" / "node_modules" / "axe-core" / "axe.min.js"
IMAGES = ROOT / "docs" / "images"
# With a process for each site instead of each page, and none for a GPU, a page costs a third of the CPU time.
FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--in-process-gpu",
    "--process-per-site",
]
_PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
PHONE = 390
DESKTOP = 1280
PATIENCE = 30_000  # milliseconds; what is waited for comes far sooner, unless the machine is busy
expect.set_options(timeout=PATIENCE)
Theme: TypeAlias = Literal["light", "dark"]
LOOKS = [("light", "en"), pytest.param("dark", "ko", marks=pytest.mark.walk)]
"""Each of both themes and languages; `make walks` looks at the second."""


def chromium() -> str:
    """Where Chromium is; the test is skipped where there is none. Without windows it takes a third less CPU time."""
    named = os.environ.get("KINGDOM_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, _PROGRAMS)), None)
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


class Visitor:
    """Opens pages of one served dashboard, logged in. What a browser keeps of the first it has for the next."""

    def __init__(self, context: BrowserContext, web: Served) -> None:
        self._context = context
        self.web = web
        self.errors: list[str] = []

    @contextlib.asynccontextmanager
    async def page(
        self,
        path: str = "/",
        *,
        theme: Theme = "light",
        locale: str = "en",
        width: int = DESKTOP,
        height: int = 800,
        status: int = 200,
    ) -> AsyncIterator[Page]:
        """A page, opened and answered with this status; at the end the console must have been silent."""
        cookies = {"kingdom_theme": theme, "kingdom_locale": locale}
        await self._context.add_cookies(
            [{"name": key, "value": one, "url": self.web.url} for key, one in cookies.items()]
        )
        page = await self._context.new_page()
        try:
            await page.set_viewport_size({"width": width, "height": height})
            await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            self._listen(page)
            answered = await page.goto(self.web.url + path)
            assert answered is not None
            assert answered.status == status
            await connected(page)
            if status != 200:  # the console says so too
                self.errors = [error for error in self.errors if f"with a status of {status}" not in error]
            yield page
            assert not self.errors, self.errors
        finally:
            self.errors = []
            await page.close()

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
        context = await browser.new_context()
        context.set_default_timeout(PATIENCE)
        try:
            entered = await context.request.get(f"{web.url}/login?token={TOKEN}", max_redirects=0)
            assert entered.status == 303, await entered.text()
            stays = await context.new_page()  # or the process of the site would end with each page
            await stays.goto(f"{web.url}/assets/mark.svg")
            yield Visitor(context, web)
        finally:
            await context.close()


async def connected(page: Page) -> None:
    """Wait until a page is whole and speaks with the server: to leave it before that is an error in the console."""
    await page.wait_for_selector("#main")
    await page.wait_for_function("window.did_handshake === true")


async def answer_dialog(page: Page, name: str, *, exact: bool = False) -> None:
    """Click a button of the open dialog, and wait until the dialog is gone: its buttons are found while it fades."""
    await page.get_by_role("dialog").get_by_role("button", name=name, exact=exact).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)


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


def axe_is_missing() -> str | None:
    """Why pages cannot be checked for barriers; None when they can."""
    if AXE.exists():
        return None
    assert os.environ.get("CI") != "true", "axe-core is not installed: run scripts/axe-core"
    return "axe-core is not installed: run scripts/axe-core"


async def count_shifts(page: Page) -> None:
    """Count from now on in ``window.moved`` how much of the page moves by itself."""
    await page.evaluate(
        """window.moved = 0; new PerformanceObserver((list) => {
            for (const entry of list.getEntries()) window.moved += entry.value;
        }).observe({type: "layout-shift", buffered: false})"""
    )


async def barriers(page: Page) -> list[str]:
    """What axe-core finds on a page that keeps people out, in short; nothing where it is not installed."""
    if axe_is_missing() is not None:
        return []
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[str] = await page.evaluate(
        """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.flatMap((one) =>
            one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 200)} ${node.any.map((any) => any.message)}`))"""
    )
    return found
