"""What people do in the dashboard happens in the court, and what happens in the court shows at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.support.browser import Visitor, answer_dialog, shoot, visiting
from tests.support.living_court import SLOW, LivingCourt, living

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Place(NamedTuple):
    """A court at work, and somebody who looks at it."""

    court: LivingCourt
    visitor: Visitor


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """One court for all tests here: each looks at tasks of its own."""
    root = tmp_path_factory.mktemp("living")
    async with living(root) as court, visiting(browser, root, court=False) as visitor:
        yield Place(court, visitor)


async def _row_of(page: Page, event_id: str) -> Locator:
    """The row of the task that an event became."""
    row = page.locator("tbody tr", has_text=event_id)
    await expect(row).to_be_visible()
    return row


@pytest.mark.walk
async def test_a_question_is_answered_with_a_choice_and_the_task_goes_on_to_its_end(place: Place) -> None:
    await place.court.emit("gen-release", version="v2.4.0")
    async with place.visitor.page("/") as page:
        asked = page.locator("[data-question]", has_text="v2.4.0 changes the price table. Release it?")
        await expect(asked).to_be_visible()
        await shoot(page, "court-asked")
        await asked.get_by_role("button", name="release", exact=True).click()
        await expect(asked).to_have_count(0)
        await expect(page.locator(".k-journal")).to_contain_text("task.completed")


async def test_a_question_is_answered_in_words_on_the_page_of_its_task(place: Place) -> None:
    event_id = await place.court.emit("gen-release", version="v3.0.0")
    async with place.visitor.page("/tasks?status=needs_human") as page:
        await (await _row_of(page, event_id)).get_by_role("link").click()
        await page.wait_for_url("**/tasks/task-*")
        await page.get_by_placeholder("Your answer").fill("on Monday, with care")
        await page.keyboard.press("Enter")
        await expect(page.locator(".k-asking")).to_have_count(0)
        asked = page.url.rpartition("/")[2]
        answer = page.locator(".k-answered")
        await expect(answer).to_contain_text("owner answered, 20")
        await expect(answer).to_contain_text(": on Monday, with care")
        await expect(page.locator("[data-status]")).to_have_attribute("data-status", "answered")
        followed = answer.get_by_role("link")
        resumed = await followed.inner_text()
        await followed.click()
        await page.wait_for_url(f"**/tasks/{resumed}")
        await expect(page.locator("#main")).to_contain_text("v3.0.0 is prepared: on Monday, with care")
    assert resumed != asked
    for locale, shown, said in (("en", "answered", "owner answered, 20"), ("ko", "답변됨", "owner의 답변, 20")):
        async with place.visitor.page("/tasks?status=answered", locale=locale) as page:
            row = await _row_of(page, f"{asked}{shown}")
            await expect(row).to_contain_text(said)
            await expect(row).to_contain_text(": on Monday, with care")
            await row.get_by_role("link", name=resumed).click()  # it is above the link of the row
            await page.wait_for_url(f"**/tasks/{resumed}")
    async with place.visitor.page("/tasks?status=needs_human") as page:
        await expect(page.locator(".k-card")).to_be_visible()
        await expect(page.locator("tbody tr", has_text=asked)).to_have_count(0)


async def test_what_somebody_types_survives_what_happens_meanwhile(place: Place) -> None:
    await place.court.emit("gen-release", version="v4.0.0")
    async with place.visitor.page("/") as page:
        asked = page.locator("[data-question]", has_text="v4.0.0")
        box = asked.get_by_placeholder("Your answer")
        await box.fill("half an ans")
        await place.court.emit("gen-release", version="v5.0.0")
        await expect(page.locator("[data-question]", has_text="v5.0.0")).to_be_visible()
        await expect(box).to_have_value("half an ans")
        await expect(box).to_be_focused()


@pytest.mark.walk
async def test_a_soldier_is_heard_while_it_works_and_cancelled_after_asking_back(place: Place) -> None:
    event_id = await place.court.emit(SLOW)
    async with place.visitor.page("/") as page:
        soldier = page.locator("[data-soldier]", has_text=SLOW)
        await expect(soldier).to_contain_text("This takes long: <b>bold</b>")
        await soldier.get_by_role("link").click()
        await page.wait_for_url("**/tasks/task-*")
        await expect(page.get_by_role("log")).to_contain_text("This takes long")
        await expect(page.locator("[data-status]")).to_have_attribute("data-status", "in_progress")
        await page.locator("#main").get_by_role("button", name="Cancel").click()
        await answer_dialog(page, "Back")
        await expect(page.locator("[data-status]")).to_have_attribute("data-status", "in_progress")
        await page.locator("#main").get_by_role("button", name="Cancel").click()
        dialog, lead = page.get_by_role("dialog"), page.locator(".k-task-lead")
        await expect(dialog).to_be_visible()
        for _ in range(2):  # its panels are drawn again while somebody reads the question
            await expect(lead).not_to_have_text(await lead.inner_text(), use_inner_text=True)
        await expect(dialog).to_be_visible()
        await answer_dialog(page, "Cancel")
        await expect(page.locator("[data-status]")).to_have_attribute("data-status", "cancelled")
        await expect(page.locator(".k-timeline")).to_contain_text(event_id)


@pytest.mark.walk
async def test_a_failed_task_is_done_once_more(place: Place) -> None:
    event_id = await place.court.emit("gen-broken")
    async with place.visitor.page("/tasks?general=gen-broken&status=failed") as page:
        await (await _row_of(page, event_id)).get_by_role("link").click()
        await page.wait_for_url("**/tasks/task-*")
        await expect(page.locator("#main")).to_contain_text("the build is red")
        await page.get_by_role("button", name="Retry").click()
        await answer_dialog(page, "Retry")
        first = page.url.rpartition("/")[2]
        again = page.locator("[data-related=retriedAs]")  # links lead both ways
        await expect(again).to_be_visible()
        await again.click()
        await expect(page.locator("[data-related=retryOf]")).to_have_text(first)
        await page.goto(f"{place.visitor.web.url}/tasks?general=gen-broken")
        await expect(page.locator("tbody tr", has_text="failed")).to_have_count(2)
