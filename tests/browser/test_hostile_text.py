"""Markup and scripts in every text that comes from outside: shown letter by letter, never carried out."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from kingdom.base.files import write_json
from kingdom.court.models import Task, timestamp
from kingdom.court.queues import EVENTS, open_queues, put_documents
from tests.support.browser import Visitor, visiting
from tests.support.seen_court import ASKING, FAILED, RUNNING, SeenCourt

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = "<img src=x onerror=\"window.owned=1\"><script>window.owned=1</script>{{7*7}} :x='window.owned=1' `${owned=1}`"
MARK = "<script>window.owned=1</script>{{7*7}}"
EVIL_TASK = "task-20260207-666"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    """A court in which everybody says the same evil thing, wherever they can."""
    court = SeenCourt(tmp_path_factory.mktemp("<b>court"))
    await court.fill(EVIL)
    now = timestamp(time.time())
    question = {"text": EVIL, "choices": [EVIL, "b"], "deadline": EVIL}
    base = {"task_id": ASKING, "general": EVIL, "ended_at": now}
    write_json(court.home.result(ASKING), {**base, "status": "needs_human", "summary": EVIL, "question": question})
    write_json(court.home.result(FAILED), {**base, "task_id": FAILED, "status": "failed", "error": EVIL})
    king = json.loads(court.home.heartbeat("king").read_text())
    write_json(court.home.heartbeat("king"), {**king, "holds": {EVIL: {"count": 2, "events": [EVIL]}}})
    court.home.role("chamberlain").mkdir(parents=True, exist_ok=True)
    write_json(court.home.role("chamberlain") / "health.json", {"level": "yellow", "reason": EVIL, "ts": now})
    court.say(EVIL)
    with court.home.journal.open("a") as journal:
        line = {"ts": now[:19] + "Z", "type": "task.failed", "actor": EVIL, "data": {"task_id": EVIL, "error": EVIL}}
        journal.write(json.dumps(line) + "\n")
    evil = {"id": EVIL_TASK, "event_id": "evt-x-1", "target_general": "gen-x", "type": EVIL, "created_at": now}
    async with open_queues(court.home.queue_url) as bus:
        await put_documents(bus, [Task.model_validate({**evil, "payload": {"title": EVIL, EVIL: EVIL}})])
        (held,) = await bus.claim(EVENTS, worker="king", ids=[f"evt-github-{FAILED}"], lease=60)
        await bus.settle(dead=[(held, EVIL, EVIL)])
    async with visiting(browser, court.home.root, court=False) as visitor:
        yield visitor


PATHS = [
    "/",
    f"/tasks/{EVIL_TASK}",
    "/bus?bus=court&stream=events",
    *(
        pytest.param(path, marks=pytest.mark.walk)
        for path in ("/tasks", "/tasks?q=666", f"/tasks/{RUNNING}", f"/tasks/{ASKING}", f"/tasks/{FAILED}")
    ),
]


async def _owned(page: Page) -> object:
    return await page.evaluate("window.owned ?? null")


@pytest.mark.parametrize("path", PATHS)
async def test_it_is_shown_as_text_and_nothing_of_it_runs(visitor: Visitor, path: str) -> None:
    async with visitor.page(path) as page:
        if path != f"/tasks/{RUNNING}":
            await expect(page.locator("#main")).to_contain_text(MARK)
        await page.locator("[data-condition]").click()
        await expect(page.locator(".k-reasons")).to_contain_text(EVIL)
        assert await page.locator("#app img:not([src='/assets/mark.svg']), #app script").count() == 0
        assert await _owned(page) is None


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/tasks?q=%3Cscript%3Ewindow.owned%3D1%3C/script%3E&general=%3Cb%3E&status=%3Cb%3E", 200),
        pytest.param("/tasks/%3Cscript%3Ewindow.owned=1", 422, marks=pytest.mark.walk),
        ("/tasks/%3Cscript%3Ewindow.owned=1%3C%2Fscript%3E", 404),
        pytest.param("/bus?bus=%3Cscript%3Ewindow.owned=1%3C/script%3E", 404, marks=pytest.mark.walk),
        ("/bus?bus=court&stream=%3Cscript%3Ewindow.owned=1%3C/script%3E", 200),
    ],
)
async def test_an_address_with_markup_in_it_is_answered_in_words(visitor: Visitor, path: str, status: int) -> None:
    async with visitor.page(path, status=status) as page:
        await expect(page.locator("#main")).not_to_be_empty()
        await expect(page.locator("header").get_by_role("link", name="Generals")).to_be_visible()
        assert await page.locator("#app script").count() == 0
        assert await _owned(page) is None


async def test_what_is_written_into_an_answer_and_a_search_stays_text(visitor: Visitor) -> None:
    async with visitor.page("/tasks") as page:
        await page.get_by_placeholder("Search tasks").fill(MARK)
        await expect(page.locator("#main")).to_contain_text("1 in total")
        await expect(page.locator("tbody")).to_contain_text(EVIL_TASK)
        assert await _owned(page) is None
