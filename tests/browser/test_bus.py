"""Dead letters in the browser: seen with their reason, and given another chance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from kingdom.court.commands import inject_event
from kingdom.court.queues import EVENTS
from tests.support.browser import Visitor, answer_dialog, shoot, visiting

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(browser: Browser, tmp_path: Path) -> AsyncIterator[Visitor]:
    """A court that is not up, with three dead events of two types."""
    async with visiting(browser, tmp_path) as visitor:
        services = visitor.web.context.court
        for number, kind in enumerate(("test.one", "test.one", "test.two")):
            document = {"id": f"evt-test-{number}", "type": kind, "source": "test", "payload": {"n": number}}
            await inject_event(services, document)
        held = await services.bus.claim(EVENTS, worker="king", limit=10, lease=60)
        await services.bus.settle(dead=[(one, "NO_USE", f"why {one.envelope.event_id} died") for one in held])
        yield visitor


async def _dead(visitor: Visitor) -> set[str]:
    return {letter.event_id for letter in await visitor.web.context.court.bus.dead(EVENTS)}


async def test_one_selected_and_all_of_a_type_are_requeued_after_asking_back(visitor: Visitor) -> None:
    async with visitor.page("/bus?bus=court&stream=events") as page:
        letters = page.locator("[data-letter]")
        await expect(letters).to_have_count(3)
        second = page.locator('[data-letter="evt-test-2"]')
        await expect(second).to_contain_text("why evt-test-2 died")
        await second.locator("summary").click()
        await expect(second.locator("pre")).to_contain_text('"n": 2')
        await shoot(page, "bus-dead")

        await second.get_by_role("button", name="Requeue evt-test-2").click()
        await answer_dialog(page, "Back")
        assert len(await _dead(visitor)) == 3
        await second.get_by_role("checkbox").click()
        await page.get_by_role("button", name="Requeue selected (1)").click()
        await answer_dialog(page, "Requeue")
        await expect(letters).to_have_count(2)
        assert await _dead(visitor) == {"evt-test-0", "evt-test-1"}

        await page.get_by_role("button", name="Requeue all of this type").click()
        await expect(page.get_by_role("dialog")).to_contain_text("Requeue 2 dead letters?")
        await answer_dialog(page, "Requeue")
        await expect(page.locator("#main")).to_contain_text("No dead letters")
        assert await _dead(visitor) == set()
        assert (await visitor.web.context.court.bus.depth())[EVENTS].pending == 3


@pytest.mark.walk
async def test_charts_are_drawn_and_tell_what_they_show(visitor: Visitor) -> None:
    async with visitor.page("/bus?bus=court&stream=events") as page:
        for name in ("Depth of events", "Throughput of events"):
            await expect(page.get_by_role("img", name=name).locator("svg")).to_be_visible()
        await page.get_by_role("link", name="Workflows").last.click()
        await expect(page.get_by_role("table", name="Streams")).to_contain_text("workflow")
