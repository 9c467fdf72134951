"""Generals, events and messages in the browser: found, followed, and acted on."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from kingdom.court.models import Message, timestamp
from kingdom.court.packages.disabled import DisabledGenerals
from kingdom.court.queues import EVENTS, MESSAGES, open_queues, put_documents
from tests.support.browser import (
    PHONE,
    Visitor,
    answer_dialog,
    barriers,
    connected,
    count_shifts,
    overflow,
    shoot,
    visiting,
)
from tests.support.seen_court import FAILED, RUNNING, WAITING, SeenCourt

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.walk]
MESSAGE = "msg-20260207-001"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    """A court with a discarded event, an invalid one, and a message that could not be sent."""
    court = SeenCourt(tmp_path_factory.mktemp("pages"))
    await court.fill()
    async with open_queues(court.home.queue_url) as bus:
        (held,) = await bus.claim(EVENTS, worker="king", ids=[f"evt-github-{FAILED}"], lease=60)
        await bus.settle(done=[held])
        document = {
            "id": MESSAGE,
            "type": "notification",
            "content": "It went wrong.",
            "context": {"task_id": RUNNING},
            "created_at": timestamp(time.time()),
        }
        await put_documents(bus, [Message.model_validate(document)])
        (held,) = await bus.claim(MESSAGES, worker="envoy", ids=[MESSAGE], lease=60)
        await bus.settle(dead=[(held, "SLACK", "no such channel")])
    court.emit(
        "event.discarded", "king", event_id=f"evt-github-{FAILED}", event_type="github.pr.opened", reason="not trusted"
    )
    invalid = court.home.queue / "events" / "invalid"
    invalid.mkdir(parents=True, exist_ok=True)
    (invalid / "broken.json").write_text("{")
    (invalid / "broken.json.reason").write_text("not JSON")
    async with visiting(browser, court.home.root, court=False) as visitor:
        yield visitor


async def test_a_general_is_disabled_after_asking_back_and_enabled(visitor: Visitor) -> None:
    home = visitor.web.context.court.home
    async with visitor.page("/generals") as page:
        await page.get_by_role("link", name="gen-pr").click()
        await page.wait_for_url("**/generals/gen-pr")
        status = page.locator("[data-status]")
        await page.get_by_role("button", name="Disable").click()
        await answer_dialog(page, "Back")
        await expect(status).to_have_attribute("data-status", "enabled")
        await page.get_by_role("button", name="Disable").click()
        await answer_dialog(page, "Disable")
        await expect(status).to_have_attribute("data-status", "disabled")
        await expect(page.locator("#main")).to_contain_text("its events and schedules wait")
        assert "gen-pr" in DisabledGenerals(home)
        await shoot(page, "general-disabled")
        await page.get_by_role("button", name="Enable").click()
        await expect(status).to_have_attribute("data-status", "enabled")
        assert "gen-pr" not in DisabledGenerals(home)
        await page.locator("tbody").get_by_role("link", name=RUNNING).click()
        await page.wait_for_url(f"**/tasks/{RUNNING}")


async def test_a_general_is_installed_from_a_folder_and_its_problems_are_told(visitor: Visitor, tmp_path: Path) -> None:
    source = tmp_path / "gen-new"
    source.mkdir()
    (source / "manifest.yaml").write_text("name: gen-new\ndescription: Looks at builds.\nsubscribes: [ci.build.*]\n")
    async with visitor.page("/generals") as page:
        await page.get_by_role("button", name="Install a general").click()
        await page.get_by_role("dialog").get_by_label("Folder").fill(str(source))
        await shoot(page, "general-install")
        await answer_dialog(page, "Install")
        await expect(page.locator(".q-notification")).to_contain_text("prompt.md")
        (source / "prompt.md").write_text("Do it.\n{{ report }}\n")
        await page.get_by_role("button", name="Install a general").click()
        await page.get_by_role("dialog").get_by_label("Folder").fill(str(source))
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/generals/gen-new")
        await expect(page.locator("#main")).to_contain_text("Looks at builds.")


async def test_an_event_is_emitted_with_a_form_made_from_its_schema(visitor: Visitor) -> None:
    async with visitor.page("/events/new") as page:
        await page.get_by_label("Type").fill("github.pr.op")
        await page.get_by_role("option", name="github.pr.opened").click()
        await page.wait_for_url("**/events/new?type=github.pr.opened")
        await connected(page)
        await expect(page.locator("#main")).to_contain_text("Taken by: gen-pr")
        await page.get_by_label("number").fill("12")
        await page.get_by_label("title").fill("Discounts")
        await page.get_by_label("Repository").fill("acme/shop")
        more = page.get_by_label("More fields")
        await more.fill("[1]")
        await page.get_by_role("button", name="Emit").click()
        await expect(page.locator(".q-notification")).to_contain_text("must be a JSON object")
        await more.fill('{"urgent": true}')
        assert await barriers(page) == []
        await page.get_by_role("button", name="Emit").click()
        await page.wait_for_url("**/events/evt-web-*")
        await expect(page.get_by_role("heading", level=1)).to_have_text("acme/shop#12 Discounts")
        found = await visitor.web.context.court.bus.find(page.url.rpartition("/")[2])
    assert found is not None
    document = found.envelope.payload
    assert (document["type"], document["repo"], document["source"]) == ("github.pr.opened", "acme/shop", "web")
    assert document["payload"] == {"number": 12, "title": "Discounts", "urgent": True}


async def test_an_event_nobody_takes_says_so_before_it_is_emitted(visitor: Visitor) -> None:
    async with visitor.page("/events/new") as page:
        await page.get_by_label("Type").fill("ci.nobody.hears")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/events/new?type=ci.nobody.hears")
        await expect(page.locator("#main")).to_contain_text("No general subscribes to this type")


async def test_discarded_and_invalid_events_are_found_with_their_reason(visitor: Visitor) -> None:
    async with visitor.page("/events") as page:
        rows = page.locator("tbody tr")
        await page.get_by_role("button", name="discarded").click()
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("not trusted")
        await page.wait_for_url("**/events?status=discarded")
        await page.get_by_role("button", name="invalid").click()
        await expect(rows).to_contain_text("not JSON")
        await page.get_by_role("button", name="completed").click()
        await expect(page.locator("#main")).to_contain_text("No task matches")
        await page.get_by_role("button", name="All").click()
        await page.get_by_role("combobox", name="Time").click()
        await page.get_by_role("option", name="Last hour").click()
        await page.wait_for_url("**/events?within=1h")
        await page.get_by_placeholder("Search events").fill(RUNNING)
        await expect(rows).to_have_count(1)
        await page.set_viewport_size({"width": PHONE, "height": 800})
        assert await overflow(page) == 0


async def test_event_task_and_message_lead_to_each_other(visitor: Visitor) -> None:
    event_id = f"evt-github-{RUNNING}"
    async with visitor.page(f"/events/{event_id}") as page:
        await expect(page.locator("[data-linked=messages]")).to_contain_text("It went wrong.")
        await page.locator("[data-linked=tasks]").get_by_role("link", name=RUNNING).click()
        await page.wait_for_url(f"**/tasks/{RUNNING}")
        await expect(page.locator("[data-linked=events]")).to_contain_text(event_id)
        await page.locator("[data-linked=messages]").get_by_role("link", name=MESSAGE).click()
        await page.wait_for_url(f"**/messages/{MESSAGE}")
        await expect(page.locator(".k-notice")).to_contain_text("no such channel")
        await page.get_by_role("button", name="Send again").click()
        await expect(page.locator("[data-status]")).to_have_attribute("data-status", "pending")
        await page.locator("[data-linked=events]").get_by_role("link", name=event_id).click()
        await page.wait_for_url(f"**/events/{event_id}")


@pytest.mark.parametrize("path", ["/generals/gen-none", "/events/evt-none-1", "/messages/msg-20260101-999"])
async def test_what_does_not_exist_is_not_found(visitor: Visitor, path: str) -> None:
    async with visitor.page(path, status=404) as page:
        await expect(page.locator("#main")).to_contain_text("Cannot show this")


async def test_the_journal_is_searched_and_new_lines_appear_by_themselves(visitor: Visitor) -> None:
    journal = visitor.web.context.court.journal
    async with visitor.page("/logs") as page:
        lines = page.locator(".k-logs li")
        await expect(page.locator(".k-logs")).to_contain_text("task.failed")
        await page.get_by_role("combobox", name="Type").click()
        await page.get_by_role("option", name="task.failed").click()
        await expect(lines).to_have_count(1)
        await page.wait_for_url("**/logs?type=task.failed")
        journal.emit("task.failed", "gen-pr", {"task_id": WAITING, "error": "a new one", "retry_count": 0})
        await expect(lines).to_have_count(2)
        await expect(lines.first).to_contain_text("a new one")
        await page.get_by_placeholder("Search ids and words").fill(FAILED)
        await expect(lines).to_have_count(1)
        await page.wait_for_url(f"**/logs?type=task.failed&q={FAILED}")
        await page.get_by_placeholder("Search ids and words").fill("nothing like it")
        await expect(page.locator("#main")).to_contain_text("No line matches")
        await page.goto(f"{visitor.web.url}/logs?q={FAILED}&actor=gen-pr")
        await connected(page)
        await lines.get_by_role("link", name=FAILED).first.click()
        await page.wait_for_url(f"**/tasks/{FAILED}")


async def test_settings_tell_file_from_default_and_one_logs_out(browser: Browser, tmp_path: Path) -> None:
    court = SeenCourt(tmp_path / "home")
    await court.fill()
    (court.home.config / "envoy.yaml").write_text("nothing: 1\n")
    async with visiting(browser, court.home.root, court=False) as visitor, visitor.page("/") as page:
        await page.get_by_role("link", name="Settings").click()
        await page.wait_for_url("**/settings")
        await connected(page)
        given = page.get_by_role("table", name="Set in system.yaml")
        await expect(given.locator("tbody tr")).to_have_count(2)
        await expect(given).to_contain_text("budget.daily_usd10.0file")
        await page.get_by_text("Defaults (").first.click()
        await expect(page.get_by_role("table", name="Defaults of system.yaml")).to_contain_text("web.port8700default")
        await expect(page.locator("[data-file='envoy.yaml']")).to_have_text("has problems")
        await expect(page.locator("#main")).to_contain_text("unknown key 'nothing'")
        assert await barriers(page) == []
        await page.get_by_role("button", name="Log out").click()
        await expect(page.locator("body")).to_contain_text("You are not logged in.")
        ended = ("status of 401", "WebSocket is already in CLOSING")  # the server ends the page's own connection too
        visitor.errors = [error for error in visitor.errors if not any(one in error for one in ended)]


async def test_lines_that_come_move_nothing_on_the_court_s_page(browser: Browser, tmp_path: Path) -> None:
    """A line with the keyboard's focus keeps its words until the focus leaves."""
    court = SeenCourt(tmp_path / "court")
    for number in range(40):
        court.emit("task.started", "gen-pr", task_id=f"task-20260207-{number:03}")
    async with visiting(browser, court.home.root, court=False) as visitor, visitor.page("/") as page:
        lines = page.get_by_role("list", name="Recent").get_by_role("listitem")
        await expect(lines.first).to_contain_text("task-20260207-039")
        await count_shifts(page)
        for number in range(3):
            court.emit("task.started", "gen-pr", task_id=f"task-20260208-{number:03}")
            await expect(lines.first).to_contain_text(f"task-20260208-{number:03}")
        await expect(lines.nth(3)).to_contain_text("task-20260207-039")
        assert await page.evaluate("window.moved") < 0.01
        await lines.first.get_by_role("link").focus()
        court.emit("task.failed", "gen-pr", task_id="task-20260208-003", error="no", retry_count=0)
        await expect(page.locator("#troubles")).to_contain_text("task-20260208-003")  # so the line has arrived, too
        await expect(lines.first).to_contain_text("task-20260208-002")
        await lines.first.get_by_role("link").blur()
        await expect(lines.first).to_contain_text("task-20260208-003")
