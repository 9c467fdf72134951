"""One inbox for all that needs a person, with the action in place."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from kingdom.court.queues import EVENTS, open_queues
from kingdom.web.dashboard.words import TEXTS
from tests.support.browser import (
    DESKTOP,
    LOOKS,
    PHONE,
    Theme,
    Visitor,
    answer_dialog,
    barriers,
    overflow,
    shoot,
    visiting,
)
from tests.support.seen_court import ASKING, FAILED, WAITING, SeenCourt
from tests.support.workflow_pages import post

pytestmark = pytest.mark.asyncio(loop_scope="session")
ASKED = "Which of the two?"
MORE_FAILED = [f"task-20260207-9{number:02}" for number in range(4)]
WORK = {
    "name": "build",
    "engine": "scripted",
    "engineOptions": {
        "script": {
            "steps": [{"result": {"status": "needs_human", "question": {"text": ASKED, "choices": ["left", "right"]}}}],
            "on_resume": [{"result": {"summary": "it is done"}}],
        }
    },
    "tasks": [{"name": "choose", "query": "Choose.", "retries": 0}],
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    """A court with a question, failures and a dead letter, and a workflow that asks."""
    court = SeenCourt(tmp_path_factory.mktemp("inbox"))
    await court.fill("Release v2.4.0 today?")
    async with open_queues(court.home.queue_url) as bus:
        (held,) = await bus.claim(EVENTS, worker="king", ids=[f"evt-github-{WAITING}"], lease=60)
        await bus.settle(dead=[(held, "NO_GENERAL", "nobody subscribes to it")])
    for task_id in MORE_FAILED:
        court.emit("task.failed", "gen-pr", task_id=task_id, error="the build is red", retry_count=2)
    async with visiting(browser, court.home.root, court=False, engine=True) as visitor:
        template = await post(visitor, "/api/workflow-templates", {"name": "choose a colour", "works": [WORK]})
        made = await post(visitor, "/api/workflows", {"templateId": template["id"]})
        await post(visitor, f"/api/workflows/{made['id']}/start", {})
        yield visitor


@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_it_shows_what_needs_a_person_and_the_tab_counts_it(visitor: Visitor, theme: Theme, locale: str) -> None:
    words = TEXTS[locale]
    async with visitor.page("/inbox", theme=theme, locale=locale, width=PHONE) as page:
        items = page.locator("[data-item]")
        await expect(page.get_by_text(ASKED)).to_be_visible()
        await expect(items).to_have_count(5)  # the others are drawn when they are unfolded
        await expect(page.locator(".k-rest > summary")).to_have_text(words["list.rest"].format(n=4))
        await expect(page).to_have_title(f"(9) {words['nav.inbox']} · inbox0")
        for width in (PHONE, DESKTOP):
            await page.set_viewport_size({"width": width, "height": 900})
            await expect(page.locator(".k-nav")).to_be_visible(visible=width == DESKTOP)
            assert await overflow(page) == 0
            await shoot(page, f"inbox-{theme}-{locale}-{width}")
        await expect(page.locator(".k-nav .k-nav-count")).to_have_text("9")
        assert await barriers(page) == []


@pytest.mark.walk
async def test_all_can_be_selected_while_most_are_folded(visitor: Visitor) -> None:
    async with visitor.page("/inbox") as page:
        side = page.locator(".k-card-side")
        await expect(page.locator("[data-item]")).not_to_have_count(0)
        await page.get_by_role("checkbox", name="Select all").click()
        answer = await visitor.web.client.get("/api/inbox")
        total = sum(set(item["actions"]) != {"answer"} for item in answer.json()["data"]["items"])
        await expect(side).to_contain_text(f"{total} selected")
        await page.locator(".k-rest > summary").click()
        await expect(page.locator("[data-item] [role=checkbox][aria-checked=true]")).to_have_count(total)
        await page.get_by_role("checkbox", name="Select all").click()
        await expect(side).not_to_contain_text("selected")
        await page.locator(".k-rest > summary").click()
        await expect(page.locator("[data-item]").locator("visible=true")).to_have_count(5)


async def test_items_are_settled_in_place_one_by_one_and_many_at_once(visitor: Visitor) -> None:
    async with visitor.page("/inbox") as page:
        await page.locator(".k-rest > summary").click()
        asked = page.locator("[data-item^='question:wf-']")
        await asked.get_by_role("button", name="left").click()
        await expect(asked).to_have_count(0)
        answered = page.locator(f"[data-item='question:{ASKING}']")
        await answered.get_by_placeholder("Your answer").fill("b, on Monday")
        await answered.get_by_placeholder("Your answer").press("Enter")
        await expect(answered).to_have_count(0)
        letter = page.locator("[data-item^='letter:']")
        await letter.get_by_role("button", name="Requeue").click()
        await expect(letter).to_have_count(0)
        for task_id in MORE_FAILED[:3]:
            await page.get_by_role("checkbox", name=f"Select {task_id}").click()
        await expect(page.locator(".k-card-side")).to_contain_text("3 selected")
        await page.locator(".k-card-side").get_by_role("button", name="Acknowledge").click()
        await expect(page.locator("[data-item^='task:']")).to_have_count(2)
        failed = page.locator(f"[data-item='task:{FAILED}']")
        await failed.get_by_role("button", name="Retry").click()
        await expect(failed.get_by_role("button", name="Retry")).to_be_enabled()
        await expect(page).to_have_title("(3) Inbox · inbox0")
    retried = await visitor.web.client.get("/api/events?type=web.task_retry")
    assert retried.json()["data"]["total"] == 1


@pytest.mark.walk
async def test_a_workflow_s_question_is_answered_on_its_page_and_it_asks_and_has_not_failed(visitor: Visitor) -> None:
    templates = (await visitor.web.client.get("/api/workflow-templates")).json()["data"]["items"]
    made = await post(visitor, "/api/workflows", {"templateId": templates[0]["id"]})
    await post(visitor, f"/api/workflows/{made['id']}/start", {})
    async with visitor.page(f"/workflows/{made['id']}") as page:
        asked = page.locator(".k-asking")
        await expect(asked).to_contain_text(ASKED)
        await expect(asked).to_contain_text("build asks you")
        await expect(page.locator(".k-workflow-head .k-badge")).to_have_text("asks")
        await expect(page.locator("#main")).not_to_contain_text("failed")
        await expect(page.locator("#main")).not_to_contain_text("agent is working")
        await expect(page.get_by_role("button", name="Retry")).to_be_hidden()
        await page.goto(f"{visitor.web.url}/workflows")
        await expect(page.locator("tbody tr", has_text="choose a colour").first).to_contain_text("asks")
        await page.goto(f"{visitor.web.url}/workflows/{made['id']}")
        await shoot(page, "workflow-asks")
        await asked.get_by_placeholder("Your answer").fill("right, and upwards")
        await asked.get_by_placeholder("Your answer").press("Enter")
        await expect(asked).to_have_count(0)
        await expect(page.locator(".k-workflow-head .k-badge")).to_have_text("completed")


async def test_the_browser_notifies_those_who_ask_for_it(visitor: Visitor) -> None:
    async with visitor.page("/inbox") as page:
        await page.evaluate(
            """() => {
                window.shown = [];
                window.Notification = class extends EventTarget {
                    static permission = "default";
                    static async requestPermission() { return (Notification.permission = "granted"); }
                    constructor(title, options) { super(); window.shown.push(`${title}: ${options.body}`); }
                };
            }"""
        )
        wants = page.get_by_role("button", name="Notify me in this browser")
        await wants.click()
        await expect(page.get_by_role("button", name="Stop notifications")).to_have_attribute("aria-pressed", "true")
        old, new = {"id": "a", "title": "gen-pr", "text": "old"}, {"id": "b", "title": "gen-release", "text": "Today?"}
        await page.evaluate("(news) => kingdomInbox.show(news)", {"count": 1, "items": [old]})
        await page.evaluate("(news) => kingdomInbox.show(news)", {"count": 2, "items": [new, old]})
        assert (await page.evaluate("window.shown"))[-1:] == ["gen-release: Today?"]
        await page.get_by_role("button", name="Stop notifications").click()
        await page.evaluate("(news) => kingdomInbox.show(news)", {"count": 1, "items": [old | {"id": "c"}]})
        assert (await page.evaluate("window.shown"))[-1:] == ["gen-release: Today?"]


@pytest.mark.walk
async def test_items_are_muted_and_shown_again(visitor: Visitor) -> None:
    task_id = MORE_FAILED[3]
    item = f"[data-item='task:{task_id}']"
    async with visitor.page("/inbox") as page:
        await page.locator(item).get_by_role("button", name="Mute").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text(f"Mute {task_id}?")
        await shoot(page, "inbox-mute")
        await dialog.get_by_role("button", name="For a week").press("Enter")
        await expect(page.locator(item)).to_have_count(0)
        folded = page.locator(".k-muted-items")
        await expect(folded.locator("summary")).to_have_text("Muted: 1")
        await folded.locator("summary").click()
        await expect(folded).to_contain_text("muted by owner")
        await shoot(page, "inbox-muted")
        assert await barriers(page) == []
        await folded.get_by_role("button", name="Show again").click()
        await expect(page.locator(item)).to_have_count(1)
        await expect(folded).to_be_hidden()


@pytest.mark.walk
async def test_workflows_go_back_before_the_work_at_which_they_stopped(visitor: Visitor) -> None:
    work = {**WORK, "engineOptions": {"script": {"steps": [{"result": {"summary": "it is done"}}]}}, "pauseAfter": True}
    template = await post(visitor, "/api/workflow-templates", {"name": "review it", "works": [work]})
    made = [
        (await post(visitor, "/api/workflows", {"templateId": template["id"], "name": name}))["id"] for name in "ab"
    ]
    for workflow_id in made:
        await post(visitor, f"/api/workflows/{workflow_id}/start", {})
    async with visitor.page("/inbox") as page:
        for name in "ab":
            await page.get_by_role("checkbox", name=f"Select {name}", exact=True).click()
        await page.locator(".k-card-side").get_by_role("button", name="Go back").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("Go back with 2 workflows")
        await shoot(page, "inbox-go-back")
        await answer_dialog(page, "Go back and hold")
        await expect(page.locator(".q-notification")).to_contain_text("Done: 2")
    for workflow_id in made:
        full = (await visitor.web.client.get(f"/api/workflows/{workflow_id}")).json()["data"]
        assert (full["status"], full["works"][0]["status"]) == ("PAUSED", "PENDING")
