"""Keys: the search, the list of keys, and moving in lists; never while somebody types."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.browser import DESKTOP, LOOKS, PHONE, Theme, Visitor, barriers, overflow, shoot, visiting
from tests.support.seen_court import ASKING, FAILED, SeenCourt

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    """A court with one task of each kind."""
    court = SeenCourt(tmp_path_factory.mktemp("keys"))
    await court.fill("Release v2.4.0 today?")
    async with visiting(browser, court.home.root, court=False) as visitor:
        yield visitor


async def _row(page: Page) -> str:
    """The row that has the focus."""
    words: str = await page.evaluate("document.activeElement.closest('tbody tr')?.innerText ?? ''")
    return words


@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_a_slash_searches_and_the_results_are_links(visitor: Visitor, theme: Theme, locale: str) -> None:
    async with visitor.page("/tasks", theme=theme, locale=locale) as page:
        await page.keyboard.press("/")
        dialog = page.get_by_role("dialog")
        field = dialog.get_by_role("searchbox")
        await expect(field).to_be_focused()
        await expect(field).to_have_value("")
        await field.fill("release v2.4.0")
        hits = dialog.get_by_role("link")
        await expect(hits.first).to_contain_text("Release v2.4.0 today?")
        for width in (DESKTOP, PHONE):
            await page.set_viewport_size({"width": width, "height": 800})
            assert await overflow(page) == 0
            await shoot(page, f"search-{theme}-{width}")
        assert await barriers(page) == []
        await field.fill("nothing-has-this-word")
        await expect(dialog.get_by_role("status")).not_to_be_empty()
        await expect(hits).to_have_count(0)
        await field.fill(FAILED)
        await expect(hits.first).to_have_attribute("href", f"/tasks/{FAILED}")
        await page.keyboard.press("ArrowDown")
        await expect(hits.first).to_be_focused()
        await page.keyboard.press("ArrowUp")
        await expect(field).to_be_focused()
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/tasks/{FAILED}")


@pytest.mark.walk
async def test_the_palette_offers_the_pages(visitor: Visitor) -> None:
    async with visitor.page("/tasks") as page:
        await page.keyboard.press("Control+k")
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_role("link").first).to_contain_text("Court")
        await shoot(page, "palette")
        await dialog.get_by_role("searchbox").fill("repos")
        await expect(dialog.get_by_role("link").first).to_contain_text("Repositories")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/repositories")


@pytest.mark.walk
async def test_the_search_is_a_button_too_and_escape_gives_the_focus_back(visitor: Visitor) -> None:
    async with visitor.page("/tasks", width=PHONE) as page:
        button = page.get_by_role("button", name="Search", exact=True)
        await button.click()
        await expect(page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(button).to_be_focused()


@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_a_question_mark_lists_the_keys(visitor: Visitor, theme: Theme, locale: str) -> None:
    async with visitor.page("/", theme=theme, locale=locale) as page:
        await page.keyboard.press("?")
        dialog = page.get_by_role("dialog")
        await expect(dialog.locator("kbd")).to_have_text(["/", "Ctrl K", "j", "k", "Enter", "?", "Esc"])
        await shoot(page, f"keys-{theme}")
        assert await barriers(page) == []
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)


async def test_j_and_k_move_in_a_list_and_enter_opens(visitor: Visitor) -> None:
    async with visitor.page("/tasks") as page:
        rows = page.locator("#main tbody tr")
        await expect(rows).to_have_count(4)
        texts = await rows.all_inner_texts()
        await page.keyboard.press("j")
        assert await _row(page) == texts[0]
        for _ in range(5):  # it stays at the last
            await page.keyboard.press("j")
        assert await _row(page) == texts[3]
        await page.keyboard.press("k")
        assert await _row(page) == texts[2]
        await shoot(page, "list-by-keys")
        wanted = await page.evaluate("document.activeElement.getAttribute('href')")
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**{wanted}")


async def test_keys_are_letters_while_somebody_types(visitor: Visitor) -> None:
    async with visitor.page(f"/tasks/{ASKING}") as page:
        field = page.locator("#main").get_by_role("textbox")
        await field.click()
        await page.keyboard.type("j/k?")
        await page.keyboard.press("Control+k")
        await expect(field).to_have_value("j/k?")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await field.fill("")


@pytest.mark.walk
async def test_keys_do_nothing_above_a_dialog(visitor: Visitor) -> None:
    async with visitor.page("/generals") as page:
        await page.get_by_role("button", name="Install a general").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Back").focus()
        await page.keyboard.press("/")
        await page.keyboard.press("?")
        await expect(dialog).to_have_count(1)
        await expect(dialog.get_by_label("Folder")).to_be_visible()


@pytest.mark.walk
async def test_single_keys_can_be_switched_off(visitor: Visitor) -> None:
    async with visitor.page("/tasks") as page:
        await page.keyboard.press("?")
        box = page.get_by_role("dialog").get_by_role("checkbox")
        await box.uncheck()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.keyboard.press("/")
        await page.keyboard.press("j")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert await _row(page) == ""
        await page.keyboard.press("?")
        await page.get_by_role("dialog").get_by_role("checkbox").check()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.keyboard.press("/")
        await expect(page.get_by_role("dialog").get_by_role("searchbox")).to_be_focused()
