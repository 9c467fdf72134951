"""Typed text is not lost, dialogs give the focus back, and menus are walked with the arrow keys."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Dialog, Page, expect

from tests.support.browser import Visitor, barriers, connected, shoot, visiting
from tests.support.seen_court import ASKING, FAILED, SeenCourt

pytestmark = pytest.mark.asyncio(loop_scope="session")
RESTORED = "Your draft was restored."


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    court = SeenCourt(tmp_path_factory.mktemp("typing"))
    await court.fill()
    async with visiting(browser, court.home.root, court=False) as visitor:
        yield visitor


@pytest.mark.walk
async def test_an_answer_survives_a_lost_server_until_it_is_sent(visitor: Visitor) -> None:
    async with visitor.page(f"/tasks/{ASKING}") as page:
        box = page.get_by_placeholder("Your answer")
        await page.evaluate("window.socket.disconnect()")
        await box.fill("typed while nobody listened")
        await page.reload()
        await connected(page)
        await expect(box).to_have_value("typed while nobody listened")
        note = page.locator(".k-draft-note")
        await expect(note).to_contain_text(RESTORED)
        await shoot(page, "draft-answer")
        await note.get_by_role("button").click()
        await expect(box).to_have_value("")
        await expect(note).to_have_count(0)
        await box.fill("b, please")
        await page.goto(visitor.web.url)  # the same question, on another page
        await connected(page)
        box = page.locator("[data-question]").get_by_placeholder("Your answer")
        await expect(box).to_have_value("b, please")
        await page.keyboard.press("Tab")
        await box.press("Enter")
        await expect(page.locator(".q-notification")).to_be_visible()
        assert await barriers(page) == []  # the notice has enough contrast, too
        await expect(page.locator("[data-question]")).to_have_count(0)
        assert await page.evaluate("kingdomDrafts.read('answer/" + ASKING + "')") is None


@pytest.mark.walk
async def test_a_form_that_is_not_saved_asks_before_it_is_left_and_comes_back(visitor: Visitor) -> None:
    asked: list[str] = []
    stay = True

    async def decide(dialog: Dialog) -> None:
        asked.append(dialog.type)
        await (dialog.dismiss() if stay else dialog.accept())

    async with visitor.page("/templates/new") as page:
        page.on("dialog", decide)
        await page.get_by_label("Name", exact=True).first.fill("release-notes")
        await page.get_by_role("button", name="Add task").click()
        await page.get_by_label("Query").nth(1).fill("Write them down")
        tasks = page.locator(".k-nav").get_by_role("link", name="Tasks")
        await tasks.click()
        await expect(page.get_by_label("Query").nth(1)).to_have_value("Write them down")
        assert asked == ["beforeunload"]
        await page.wait_for_function("kingdomDrafts.read('template/new')?.form?.works[0].tasks[1]?.query")
        stay = False
        await tasks.click()
        await page.wait_for_url("**/tasks")
        await page.goto(f"{visitor.web.url}/templates/new")
        await connected(page)
        await expect(page.get_by_label("Query").nth(1)).to_have_value("Write them down")
        await expect(page.get_by_label("Name", exact=True).first).to_have_value("release-notes")
        await expect(page.locator(".k-draft-note")).to_contain_text(RESTORED)
        await shoot(page, "draft-template")
        await _complete(page)
        await page.get_by_role("button", name="Save").click()
        await page.wait_for_url(re.compile("/templates/(?!new)"))
        assert asked == ["beforeunload"] * 2
        await page.goto(f"{visitor.web.url}/templates/new")
        await connected(page)
        await expect(page.get_by_label("Query")).to_have_count(1)
        await expect(page.get_by_label("Name", exact=True).first).to_have_value("")
        await expect(page.locator(".k-draft-note")).to_have_count(0)


async def _complete(page: Page) -> None:
    await page.get_by_label("Name", exact=True).nth(1).fill("write")
    for number, name in enumerate(("collect", "write")):
        await page.get_by_label("Task name").nth(number).fill(name)
    await page.get_by_label("Query").first.fill("Collect what changed")


async def test_the_focus_returns_from_dialogs_and_menus_are_walked_with_arrow_keys(visitor: Visitor) -> None:
    async with visitor.page(f"/tasks/{FAILED}") as page:
        retry = page.locator("#main").get_by_role("button", name="Retry")
        await retry.focus()
        await page.keyboard.press("Enter")
        await page.get_by_role("dialog").get_by_role("button", name="Back").press("Enter")
        await expect(retry).to_be_focused()
        await page.get_by_role("button", name="Theme").focus()
        for key, chosen in (("ArrowDown", "System"), ("ArrowDown", "Light"), ("End", "Dark"), ("ArrowDown", "System")):
            await page.keyboard.press(key)
            await expect(page.get_by_role("menuitem", name=chosen)).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Theme")).to_be_focused()
        await retry.focus()
        await page.evaluate("document.activeElement.remove()")
        await expect(page.locator("#main")).to_be_focused()
