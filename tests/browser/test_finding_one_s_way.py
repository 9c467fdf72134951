"""Getting around: by keyboard, on a phone, with filters, in one's own language and theme, and where nothing is."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.browser import LOOKS, PHONE, Theme, Visitor, barriers, connected, overflow, shoot, visiting
from tests.support.seen_court import ASKING, FAILED, RUNNING, WAITING, SeenCourt

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    """A court with one task of each kind."""
    court = SeenCourt(tmp_path_factory.mktemp("ways"))
    await court.fill()
    async with visiting(browser, court.home.root, court=False) as visitor:
        yield visitor


async def _focused(page: Page) -> str:
    words: str = await page.evaluate(
        "(document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || '').trim()"
    )
    return words


async def test_all_is_reached_with_the_keyboard_and_the_focus_is_seen(visitor: Visitor) -> None:
    async with visitor.page("/tasks") as page:
        await page.keyboard.press("Tab")
        assert await _focused(page) == "Skip to content"
        passed = []
        for _ in range(45):
            await page.keyboard.press("Tab")
            passed.append(await _focused(page))
            outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            row = await page.evaluate(
                "getComputedStyle(document.activeElement.closest('tr') ?? document.body).outlineStyle"
            )
            inside = await page.evaluate("document.activeElement.closest('.q-field') !== null")
            assert inside or "solid" in (outline, row), passed[-1]
            if passed[-1] == RUNNING:
                break
        for wanted in ("Court", "Tasks", "Workflows", "More", "Language", "Theme", "failed", "Search tasks", WAITING):
            assert wanted in passed, (wanted, passed)
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/tasks/{RUNNING}")


async def test_the_skip_link_leads_past_the_navigation(visitor: Visitor) -> None:
    async with visitor.page("/tasks") as page:
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator("#main")).to_be_focused()


@pytest.mark.walk
@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_the_header_fits_and_has_the_other_pages_in_a_menu(visitor: Visitor, theme: Theme, locale: str) -> None:
    more, logs, events = {"en": ("More", "Logs", "Events"), "ko": ("더 보기", "기록", "이벤트")}[locale]
    async with visitor.page("/", theme=theme, locale=locale, width=1440) as page:
        for width in (1440, 1280, 1100, 1041):
            await page.set_viewport_size({"width": width, "height": 800})
            await expect(page.locator(".k-nav")).to_be_visible()
            assert await overflow(page) == 0
            gap = "document.querySelector('.k-header-end').getBoundingClientRect()"
            gap = f"{gap}.left - document.querySelector('.k-nav-more').getBoundingClientRect().right"
            assert await page.evaluate(gap) >= 0, width
            assert await page.evaluate("document.querySelector('.k-header').scrollWidth") <= width
            lines = await page.evaluate(
                "[...document.querySelectorAll('.k-nav a span:first-child')].map((one) => one.getClientRects().length)"
            )
            assert set(lines) == {1}, "no name is broken into lines"
            await shoot(page, f"header-{theme}-{width}")
        opener = page.locator(".k-nav").get_by_role("button", name=more)
        await opener.focus()
        await page.keyboard.press("ArrowDown")
        menu = page.locator(".q-menu")
        await expect(menu.get_by_role("link", name=events)).to_be_focused()
        assert await barriers(page) == []
        await page.keyboard.press("Escape")
        await expect(menu).to_have_count(0)
        await expect(opener).to_be_focused()
        await opener.click()
        await menu.get_by_role("link", name=logs).click()
        await page.wait_for_url("**/logs")
        await connected(page)
        await expect(opener).to_have_class(re.compile("k-nav-here"))
        await opener.click()
        await expect(menu.get_by_role("link", name=logs)).to_have_attribute("aria-current", "page")
        await shoot(page, f"header-more-{theme}")


@pytest.mark.walk
async def test_on_a_phone_the_navigation_is_in_a_drawer(visitor: Visitor) -> None:
    async with visitor.page("/", width=PHONE) as page:
        await expect(page.locator(".k-nav")).to_be_hidden()
        await page.get_by_role("button", name="Open the menu").click()
        drawer = page.locator(".q-drawer")
        await expect(drawer.get_by_role("link", name="Bus")).to_be_in_viewport()
        await shoot(page, "drawer")
        await drawer.get_by_role("link", name="Bus").click()
        await page.wait_for_url("**/bus")


async def test_tasks_are_filtered_and_searched_and_the_address_tells(visitor: Visitor) -> None:
    async with visitor.page("/tasks") as page:
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(4)
        await page.get_by_role("button", name="failed").click()
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text(FAILED)
        await page.wait_for_url("**/tasks?status=failed")
        await page.reload()
        await expect(rows).to_have_count(1)
        await expect(page.get_by_role("button", name="failed")).to_have_attribute("aria-pressed", "true")
        await page.get_by_role("button", name="All").click()
        await expect(rows).to_have_count(4)
        await page.get_by_placeholder("Search tasks").fill(f"github {ASKING}")
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text(ASKING)
        await page.get_by_placeholder("Search tasks").fill("nothing like it")
        await expect(page.locator("#main")).to_contain_text("No task matches")


async def test_theme_and_language_are_chosen_and_kept(visitor: Visitor) -> None:
    async with visitor.page("/tasks") as page:
        await page.get_by_role("button", name="Theme").click()
        await page.get_by_role("menuitem", name="Dark").click()
        await expect(page.locator("body")).to_have_class("desktop no-touch body--dark")
        await page.get_by_role("button", name="Language").click()
        await page.get_by_role("menuitem", name="한국어").click()
        await expect(page.get_by_role("heading", name="작업", level=1)).to_be_visible()
        assert page.url.endswith("/tasks")
        await expect(page.locator("body")).to_have_class("desktop no-touch body--dark")


@pytest.mark.walk
async def test_what_is_not_there_is_told_with_what_to_do(visitor: Visitor) -> None:
    async with visitor.page("/nowhere", status=404) as page:
        await expect(page.locator("#main")).to_contain_text("Page not found")
        assert await barriers(page) == []
    async with visitor.page("/tasks/task-20260207-999", status=404) as page:
        await expect(page.get_by_role("alert")).to_contain_text("no task task-20260207-999 here")
        await expect(page.locator(".k-nav").get_by_role("link", name="Tasks")).to_be_visible()


@pytest.mark.walk
async def test_an_empty_court_says_how_to_begin(browser: Browser, tmp_path: Path) -> None:
    async with visiting(browser, tmp_path) as visitor:
        async with visitor.page("/") as page:
            await expect(page.locator("#main")).to_contain_text("No soldier is at work")
            await expect(page.locator("#main")).to_contain_text("kingdom up --home")
        async with visitor.page("/tasks") as page:
            await expect(page.locator("#main")).to_contain_text("No tasks yet")
            await expect(page.locator("#main")).not_to_contain_text("kingdom emit")
            await page.locator("#main").get_by_role("link", name="Emit an event").click()
            await expect(page).to_have_url(re.compile("/events/new$"))
            await connected(page)
        async with visitor.page("/generals") as page:
            await page.locator("#main .k-state-actions").get_by_role("button", name="Install a general").click()
            await expect(page.get_by_role("dialog")).to_be_visible()
            assert await barriers(page) == []
        async with visitor.page("/templates") as page:
            await page.locator("#main .k-state-link").click()
            await expect(page).to_have_url(re.compile("/templates/new$"))
            await connected(page)


@pytest.mark.walk
async def test_where_there_is_no_court_are_workflows_and_how_to_found_one(browser: Browser, tmp_path: Path) -> None:
    async with visiting(browser, tmp_path, court=False) as visitor:
        async with visitor.page("/") as page:
            await expect(page).to_have_url(re.compile("/workflows$"))
            pages = page.get_by_role("banner").get_by_role("navigation").get_by_role("link")
            await expect(pages).to_have_text(["Workflows", "Inbox", "Templates", "Bus"])
            assert await barriers(page) == []
        async with visitor.page("/tasks") as page:
            await expect(page.locator("#main")).to_contain_text(f"kingdom init {tmp_path}")
        async with visitor.page("/bus") as page:
            await expect(page.get_by_role("table", name="Streams")).to_contain_text("workflow")


@pytest.mark.walk
async def test_range_and_order_of_a_list_are_in_its_address(visitor: Visitor) -> None:
    async with visitor.page("/tasks") as page:
        main = page.locator("#main")
        ids = main.locator("tbody tr td:first-child")
        await expect(ids).to_have_count(4)
        newest = await ids.all_text_contents()
        await main.get_by_role("combobox", name="Sort").click()
        await page.get_by_role("option", name="Oldest first").click()
        await expect(ids).to_have_text(newest[::-1])
        await expect(page).to_have_url(re.compile(r"/tasks\?sort=oldest$"))
        await main.get_by_role("combobox", name="Time").click()
        await page.get_by_role("option", name="Last 90 days").click()
        await expect(page).to_have_url(re.compile(r"/tasks\?within=90d&sort=oldest$"))
    async with visitor.page("/tasks?sort=status") as page:
        statuses = page.locator("#main tbody tr td:nth-child(2)")
        await expect(statuses).to_have_text(["failed", "in progress", "needs an answer", "pending"])
    async with visitor.page("/tasks?sort=nonsense&within=nonsense") as page:
        await expect(page.locator("#main tbody tr td:first-child")).to_have_text(newest)


@pytest.mark.walk
async def test_workflows_have_a_time_range_and_an_order(visitor: Visitor) -> None:
    async with visitor.page("/workflows?within=7d") as page:
        main = page.locator("#main")
        await main.get_by_role("combobox", name="Sort").click()
        await page.get_by_role("option", name="Oldest first").click()
        await expect(page).to_have_url(re.compile(r"/workflows\?within=7d&sort=oldest$"))
        await main.get_by_role("combobox", name="Time").click()
        await page.get_by_role("option", name="Any time").click()
        await expect(page).to_have_url(re.compile(r"/workflows\?sort=oldest$"))
