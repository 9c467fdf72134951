"""Every page, as people see it: in both themes, in both languages, on a desk and on a phone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route, expect

from kingdom.bus import EventBus
from kingdom.court.models import Event, Message, timestamp
from kingdom.court.queues import EVENTS, MESSAGES, open_queues, put_documents
from kingdom.web.dashboard.words import TEXTS
from kingdom.web.security.tokens import TokenStore
from tests.support.browser import (
    DESKTOP,
    LOOKS,
    PHONE,
    Theme,
    Visitor,
    axe_is_missing,
    barriers,
    connected,
    overflow,
    shoot,
    visiting,
)
from tests.support.seen_court import ASKING, FAILED, RUNNING, SeenCourt

pytestmark = pytest.mark.asyncio(loop_scope="session")

MESSAGE, UNWANTED = "msg-20260207-001", "evt-test-unwanted"
PAGES = [
    ("court", "/"),
    ("tasks", "/tasks"),
    ("task", f"/tasks/{RUNNING}"),
    ("emit", "/events/new?type=github.pr.opened"),
    ("bus", "/bus?bus=court&stream=events"),
    ("logs", "/logs"),
    ("over-time", "/over-time"),
    ("settings", "/settings"),
    *(
        pytest.param(name, path, marks=pytest.mark.walk)  # these are lists and documents as those of tasks are
        for name, path in (
            ("generals", "/generals"),
            ("general", "/generals/gen-pr"),
            ("events", "/events"),
            ("event", f"/events/{UNWANTED}"),
            ("messages", "/messages"),
            ("message", f"/messages/{MESSAGE}"),
            ("people", "/people"),
        )
    ),
]
PROMISED = {
    "court": [RUNNING, ASKING, FAILED, "Release v2.4.0 today?", "reading the change", "$2.50 of $10.00", "king"],
    "tasks": [RUNNING, ASKING, FAILED, "github.pr.opened"],
    "task": [RUNNING, "gen-pr", "reading the change", "was started for"],
    "generals": ["gen-pr", "reviews", "github.pr.*", "$2.50"],
    "general": ["reviews", "github.pr.*", RUNNING, "0%", "$2.50", "claude"],
    "emit": ["gen-pr", "number", "title"],
    "events": ["github.pr.opened", RUNNING, "no general subscribes to it"],
    "event": [UNWANTED, "test.unwanted", "no general subscribes to it"],
    "messages": [MESSAGE, "It went wrong.", FAILED, "no such channel"],
    "message": [MESSAGE, "It went wrong.", "no such channel", FAILED],
    "settings": ["config/system.yaml", "budget.daily_usd", "10.0", "Chrome · Linux"],
    "people": ["ann@example.org", "bob"],
    "over-time": ["24", "–"],
    "logs": ["task.failed", "no such file", "gen-pr", RUNNING, "event.discarded"],
    "bus": ["NO_GENERAL", "nobody subscribes to it", f"evt-github-{FAILED}"],
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    """A court with one task of each kind, and a dead letter."""
    root = tmp_path_factory.mktemp("seen")
    court = SeenCourt(root)
    await court.fill("Release v2.4.0 today?")
    TokenStore(root).add("ann@example.org", "operate")
    TokenStore(root).add("bob", "look")
    async with open_queues(court.home.queue_url) as bus:
        (held,) = await bus.claim(EVENTS, worker="king", ids=[f"evt-github-{FAILED}"], lease=60)
        await bus.settle(dead=[(held, "NO_GENERAL", "nobody subscribes to it")])
        await _discard_an_event(bus)
        await _fail_to_send(bus)
    court.emit(
        "event.discarded", "king", event_id=UNWANTED, event_type="test.unwanted", reason="no general subscribes to it"
    )
    async with visiting(browser, root, court=False) as visitor:
        yield visitor


async def _discard_an_event(bus: EventBus) -> None:
    document = {"id": UNWANTED, "type": "test.unwanted", "source": "test", "created_at": timestamp(time.time())}
    await put_documents(bus, [Event.model_validate(document)])
    (held,) = await bus.claim(EVENTS, worker="king", ids=[UNWANTED], lease=60)
    await bus.settle(done=[held])


async def _fail_to_send(bus: EventBus) -> None:
    document = {
        "id": MESSAGE,
        "type": "notification",
        "content": "It went wrong.\nLook at it.",
        "context": {"task_id": FAILED},
        "created_at": timestamp(time.time()),
    }
    await put_documents(bus, [Message.model_validate(document)])
    (held,) = await bus.claim(MESSAGES, worker="envoy", ids=[MESSAGE], lease=60)
    await bus.settle(dead=[(held, "SLACK", "no such channel")])


async def test_axe_core_is_there() -> None:
    """Without it the other tests look for no barriers, and this one says so."""
    if (why := axe_is_missing()) is not None:
        pytest.skip(why)


@pytest.mark.parametrize(("theme", "locale"), LOOKS)
@pytest.mark.parametrize(("name", "path"), PAGES)
async def test_a_page_shows_what_there_is(visitor: Visitor, name: str, path: str, theme: Theme, locale: str) -> None:
    async with visitor.page(path, theme=theme, locale=locale, width=PHONE) as page:
        main = page.locator("#main")
        for promised in PROMISED[name]:
            await expect(main).to_contain_text(promised)
        assert await page.locator("html").get_attribute("lang") == {"en": "en-US", "ko": "ko-KR"}[locale]
        await expect(page.locator("body")).to_have_class(f"desktop no-touch body--{theme}")
        await expect(page.locator("[data-condition]")).to_have_text(TEXTS[locale]["condition.down"])
        for width in (PHONE, DESKTOP):
            await page.set_viewport_size({"width": width, "height": 800})
            await expect(page.locator(".k-nav")).to_be_visible(visible=width == DESKTOP)
            assert await overflow(page) == 0
            await shoot(page, f"{name}-{theme}-{locale}-{width}")
        assert await barriers(page) == []


@pytest.mark.parametrize(
    ("theme", "colour"),
    [("light", "rgb(255, 255, 255)"), pytest.param("dark", "rgb(22, 27, 33)", marks=pytest.mark.walk)],
)
async def test_the_header_is_there_before_the_scripts(visitor: Visitor, theme: Theme, colour: str) -> None:
    go_on = asyncio.Event()

    async def hold(route: Route) -> None:
        await go_on.wait()
        await route.continue_()

    async with visitor.page("/settings", theme=theme) as page:
        await page.route("**/quasar.umd*", hold)
        await page.goto(f"{visitor.web.url}/tasks", wait_until="commit")
        opening = page.locator(".k-opening")
        await expect(opening).to_contain_text("Workflows")
        await expect(opening).to_have_css("background-color", colour)
        await expect(page.locator("#main")).to_have_count(0)
        go_on.set()
        await connected(page)
        await expect(opening).to_have_count(0)
