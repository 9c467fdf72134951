"""The page over time: what the roll-ups say, drawn, as a table, of any range and general, in the address."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from kingdom.bus.delivery import Depth
from kingdom.court.home import Home
from kingdom.court.models import timestamp
from kingdom.court.rollups.reading import RollupRecorder
from kingdom.journal import Journal
from kingdom.web.dashboard.words import TEXTS
from tests.support.browser import LOOKS, PHONE, Theme, Visitor, barriers, count_shifts, overflow, shoot, visiting
from tests.support.seen_court import SeenCourt

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.walk]
WIDE = 1440
HOUR, DAY = 3600.0, 86400.0
HOSTILE = "<img src=x onerror=alert(1)>"
CHARTS = ("tasks", "success", "durations", "queues", "costByGeneral", "costByModel")


def fill(home: Home) -> None:
    """Ninety days of three generals, and a minute ago one task."""
    recorder, now = RollupRecorder(home, ZoneInfo("UTC")), time.time()
    lines = []
    for day in range(90, -1, -1):
        at = now - day * DAY - 60
        journal = Journal(home.journal, lambda at=at: at)  # type: ignore[misc]
        for number in range(1 + day % 5 if day else 1):
            general = ("gen-pr", "gen-doc", "gen-ops")[number % 3]
            data = {"task_id": "t", "status": "success", "duration_seconds": 60.0 + 9 * day + 200 * number}
            journal.emit("task.completed", general, data)
            model = ("claude-sonnet-4-5", "gpt-5-codex", HOSTILE)[number % 3]
            run = {"ts": timestamp(at), "run_id": f"{day}-{number}", "general": general, "model": model}
            lines.append((timestamp(at)[:7], {**run, "cost_usd": 0.4 + number / 5, "tokens": {"total": 12_000}}))
        if day % 7 == 3:
            journal.emit("task.failed", "gen-doc", {"task_id": "t", "error": "no", "retry_count": 0})
    for month, line in lines:
        with (home.ledger / f"{month}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    for day in range(90, -1, -1):
        waits = {"tasks": Depth(pending=1, oldest_pending_seconds=30.0 + day), "events": Depth(), "messages": Depth()}
        recorder.record(now - day * DAY, waits)
    while not recorder.record(now):
        pass
    recorder.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    court = SeenCourt(tmp_path_factory.mktemp("rolled"))
    fill(court.home)
    async with visiting(browser, court.home.root, court=False) as visitor:
        yield visitor


@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_ninety_days_are_drawn_and_told(visitor: Visitor, theme: Theme, locale: str) -> None:
    words = TEXTS[locale]
    async with visitor.page("/over-time?within=90d", theme=theme, locale=locale, width=PHONE) as page:
        main = page.locator("#main")
        await expect(main.locator(".k-plot")).to_have_count(len(CHARTS))
        await expect(main).to_contain_text("gen-pr")
        await expect(main).to_contain_text("claude-sonnet-4-5")
        await expect(main).to_contain_text(HOSTILE)
        await expect(main.locator("nav [aria-current=page]")).to_have_text(words["overTime.short.90d"])
        for width in (PHONE, WIDE):
            await page.set_viewport_size({"width": width, "height": 900})
            assert await overflow(page) == 0
            await shoot(page, f"over-time-{theme}-{locale}-{width}")
        sizes = await page.evaluate(
            "[...new Set([...document.querySelectorAll('.k-plot text')].map((one) => getComputedStyle(one).fontSize))]"
        )
        assert sizes == ["12px"], "one size for all labels"
        highest = await page.evaluate(
            "Math.max(...[...document.querySelectorAll('.k-plot text')].map((one) => one.getBBox().height))"
        )
        assert highest < 20, "and they are not scaled"
        assert await barriers(page) == []


async def test_each_chart_is_also_a_table(visitor: Visitor) -> None:
    async with visitor.page("/over-time?within=30d") as page:
        durations = page.locator("#main").get_by_role("region", name="Durations", exact=True)
        await expect(durations.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"Last 30 days: p50 \d"))
        await expect(durations.get_by_role("table")).to_be_hidden()
        await durations.get_by_text("Show as a table").click()
        await expect(durations.get_by_role("columnheader")).to_have_text(["Time", "p50", "p95"])
        await expect(durations.locator("tbody tr")).to_have_count(31)
        tasks = page.locator("#main").get_by_role("region", name="Tasks by outcome", exact=True)
        await expect(tasks.locator("details")).not_to_have_attribute("open", "")
        zero = page.locator("#main").get_by_role("region", name="Age of the oldest in each queue", exact=True)
        await expect(zero.locator("svg path")).to_have_count(1)  # two queues were always empty: no line covers another


async def test_range_and_general_are_in_the_address(visitor: Visitor) -> None:
    async with visitor.page("/over-time") as page:
        main = page.locator("#main")
        await expect(main.locator("nav [aria-current=page]")).to_have_text("24 h")
        await main.get_by_role("link", name="7 d", exact=True).click()
        await expect(page).to_have_url(re.compile(r"/over-time\?within=7d$"))
        await expect(main.locator("nav [aria-current=page]")).to_have_text("7 d")
        await main.get_by_role("combobox", name="General").click()
        await page.get_by_role("option", name="gen-pr").click()
        await expect(page).to_have_url(re.compile(r"/over-time\?within=7d&general=gen-pr$"))
        table = main.get_by_role("table", name="By general")
        await expect(table.locator("tbody tr")).to_have_count(1)
        await expect(table).to_contain_text("gen-pr")
    async with visitor.page("/over-time?within=nonsense&general=gen-nobody") as page:
        await expect(page.locator("#main")).to_contain_text("Nothing recorded in this time")


async def test_a_page_shows_what_is_recorded_later_and_nothing_moves(browser: Browser, tmp_path: Path) -> None:
    court = SeenCourt(tmp_path / "later")
    fill(court.home)
    async with (
        visiting(browser, court.home.root, court=False) as visitor,
        visitor.page("/over-time?within=1h", width=WIDE) as page,
    ):
        figure = page.locator("#main .k-figure-value").first
        await expect(figure).to_have_text("1")
        await count_shifts(page)
        await page.get_by_text("Show as a table").first.click()
        court.emit("task.failed", "gen-pr", task_id="t", error="no", retry_count=0)
        recorder = RollupRecorder(court.home, ZoneInfo("UTC"))
        recorder.record(time.time())
        recorder.close()
        await expect(figure).to_have_text("2")
        await expect(page.locator("#main details[open]")).to_have_count(1)
        assert await page.evaluate("window.moved") < 0.1
