"""The list of workflows in the browser: its columns sort it, and the address says how."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.browser import LOOKS, PHONE, Theme, barriers, connected, overflow, shoot, visiting
from tests.support.web import Web
from tests.support.web_work import Desk, scripted

pytestmark = pytest.mark.asyncio(loop_scope="session")
NAMES = ["beta", "Alpha", "gamma"]


@pytest.mark.walk
@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_workflows_are_sorted_by_their_headings(
    browser: Browser, tmp_path: Path, theme: Theme, locale: str
) -> None:
    name, created = {"en": ("Name", "Created"), "ko": ("이름", "생성")}[locale]
    async with visiting(browser, tmp_path, court=False) as visitor:
        desk = Desk(Web(visitor.web.context, visitor.web.app, visitor.web.client))
        template = await desk.template(scripted("fix"))
        for one in NAMES:
            await desk.post("workflows", {"templateId": template, "name": one})
        async with visitor.page("/workflows?within=90d", theme=theme, locale=locale, width=1440) as page:
            table = page.locator("#main table")
            rows = table.locator(".k-row-link")
            heading = table.locator("th").filter(has_text=created)
            await expect(heading).to_have_attribute("aria-sort", "descending")
            await expect(rows).to_have_text(NAMES[::-1])
            await heading.get_by_role("link").click()
            await expect(page).to_have_url(re.compile(r"/workflows\?within=90d&sort=oldest$"))
            await expect(rows).to_have_text(NAMES)
            await expect(heading).to_have_attribute("aria-sort", "ascending")
            await connected(page)
            await table.locator("th").filter(has_text=name).get_by_role("link").focus()
            await page.keyboard.press("Enter")
            await expect(page).to_have_url(re.compile(r"/workflows\?within=90d&sort=name$"))
            await expect(rows).to_have_text(["Alpha", "beta", "gamma"])
            await connected(page)
            assert await barriers(page) == []
            for width in (1440, PHONE):
                await page.set_viewport_size({"width": width, "height": 800})
                assert await overflow(page) == 0
                await shoot(page, f"workflows-by-name-{theme}-{width}")
