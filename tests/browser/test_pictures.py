"""The pictures of the dashboard in the README: ``KINGDOM_SCREENSHOTS=docs`` makes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.browser import SHOTS, shoot_for_docs, visiting
from tests.support.shown_court import ShownCourt

pytestmark = pytest.mark.asyncio(loop_scope="session")
MOST_BYTES = 250_000


async def test_the_court_on_an_ordinary_morning(browser: Browser, tmp_path: Path) -> None:
    court = ShownCourt(tmp_path / "acme")
    await court.fill_morning()
    async with visiting(browser, court.home.root, court=False) as visitor, visitor.page("/") as page:
        await expect(page.locator("[data-soldier]")).to_have_count(2)
        await expect(page.locator("[data-question]")).to_contain_text("Release it today?")
        await expect(page.locator("header")).to_contain_text("acme")
        await expect(page.locator(".k-notice")).to_have_count(0)
        await shoot_for_docs(page, "dashboard-court")
        assert (SHOTS / "dashboard-court.png").stat().st_size < MOST_BYTES
