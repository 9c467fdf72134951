"""What needs a person stands at the top of the start page, in the words of the language."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from kingdom.base.files import write_json
from kingdom.court.models import timestamp
from kingdom.web.dashboard.words import TEXTS
from tests.support.browser import PHONE, Visitor, overflow, visiting
from tests.support.seen_court import ASKING, SeenCourt

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALERT = "gen-pr has failed 3 tasks in a row"
DEADLINE = "2026-02-08T09:30:00Z"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    """A court with an alert, little budget, and a question whose deadline the king knows."""
    court = SeenCourt(tmp_path_factory.mktemp("told"))
    await court.fill()
    chamberlain = court.home.role("chamberlain")
    chamberlain.mkdir(parents=True, exist_ok=True)
    now = timestamp(time.time())
    write_json(court.home.heartbeat("chamberlain"), {"ts": now, "alert_texts": {"failures:gen-pr": ALERT}})
    write_json(chamberlain / "health.json", {"level": "yellow", "reason": "memory at 85 %", "ts": now})
    write_json(chamberlain / "tokens.json", {"status": "warning"})
    king = json.loads(court.home.heartbeat("king").read_text())
    write_json(court.home.heartbeat("king"), {**king, "deadlines": {ASKING: DEADLINE}})
    async with visiting(browser, court.home.root, court=False) as visitor:
        yield visitor


@pytest.mark.parametrize("locale", ["en", pytest.param("ko", marks=pytest.mark.walk)])
async def test_the_start_page_begins_with_health_budget_and_alerts(visitor: Visitor, locale: str) -> None:
    words = TEXTS[locale]
    async with visitor.page("/", locale=locale, width=PHONE) as page:
        condition = page.locator(".k-condition")
        for promised in ("condition.down", "budget.warning", "court.attention"):
            await expect(condition).to_contain_text(words[promised])
        await expect(condition).to_contain_text("memory at 85 %")
        await expect(condition).to_contain_text("$2.50 of $10.00")
        await expect(condition.locator("[data-attention=alert]")).to_have_text(ALERT)
        asked = words["court.attention.questions"].format(n=1, subject=ASKING)
        await expect(condition.locator("[data-attention=questions]")).to_have_text(asked)
        await expect(condition.locator("[data-attention=down]")).to_have_text(words["court.attention.down"])
        load = words["court.attention.load"].format(state=words["load.yellow"], reason=" (memory at 85 %)")
        await expect(condition.locator("[data-attention=load]")).to_have_text(load)
        badge = page.locator("[data-condition=down]")  # says the same, and why
        await expect(badge).to_have_text(words["condition.down"])
        await badge.click()
        for reason in (ALERT, load, words["court.attention.down"]):
            await expect(page.locator(".k-reasons").get_by_role("link", name=reason)).to_be_visible()
        assert await overflow(page) == 0


@pytest.mark.parametrize(
    "path", ["/", *(pytest.param(path, marks=pytest.mark.walk) for path in ("/tasks", f"/tasks/{ASKING}"))]
)
async def test_an_open_question_shows_the_deadline_that_the_king_keeps(visitor: Visitor, path: str) -> None:
    for locale, shown in (("en", "until 2026-02-08 09:30:00"), ("ko", "2026-02-08 09:30:00까지")):
        async with visitor.page(path, locale=locale) as page:
            await expect(page.locator("#main")).to_contain_text(shown)
