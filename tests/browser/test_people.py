"""People and roles in the browser: a token is given and revoked, and each sees only what they may do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from kingdom.web.security.roles import Role
from tests.support.browser import (
    LOOKS,
    PATIENCE,
    PHONE,
    Theme,
    Visitor,
    answer_dialog,
    barriers,
    overflow,
    shoot,
    visiting,
)
from tests.support.seen_court import ASKING, FAILED, RUNNING, SeenCourt

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visitor]:
    """A court with one task of each kind, visited by its owner."""
    court = SeenCourt(tmp_path_factory.mktemp("people"))
    await court.fill()
    async with visiting(browser, court.home.root, court=False) as visitor:
        yield visitor


@contextlib.asynccontextmanager
async def visited_by(browser: Browser, owner: Visitor, name: str, role: Role) -> AsyncIterator[Visitor]:
    """The same dashboard, in the browser of another person."""
    value = owner.web.context.tokens.add(name, role)
    context = await browser.new_context()
    context.set_default_timeout(PATIENCE)
    try:
        entered = await context.request.get(f"{owner.web.url}/login?token={value}", max_redirects=0)
        assert entered.status == 303, await entered.text()
        yield Visitor(context, owner.web)
    finally:
        await context.close()
        if any(person.name == name for person in owner.web.context.tokens.people()):
            owner.web.context.tokens.remove(name)


def acts(root: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (root / "logs" / "events.log").read_text().splitlines()]
    return [line["data"] for line in lines if line["type"] == "system.person_acted"]


@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_a_token_is_given_shown_once_and_revoked(visitor: Visitor, theme: Theme, locale: str) -> None:
    words = {"en": ("Create token", "copied", "Revoke"), "ko": ("토큰 만들기", "복사", "폐기")}[locale]
    name = f"cleo-{locale}"
    tokens = visitor.web.context.tokens
    async with visitor.page("/people", theme=theme, locale=locale) as page:
        main = page.locator("#main")
        await main.get_by_label({"en": "Name", "ko": "이름"}[locale]).fill(name)
        await main.get_by_role("button", name=words[0]).click()
        dialog = page.get_by_role("dialog")
        shown = dialog.locator("[data-secret]")
        await expect(shown).to_have_count(2)
        link, value = await shown.all_inner_texts()
        assert link == f"{visitor.web.url}/login?token={value}"
        person = tokens.find(value)
        assert person is not None
        assert (person.name, person.role) == (name, "answer")
        await shoot(page, f"people-new-{theme}")
        assert await barriers(page) == []
        await answer_dialog(page, words[1])
        line = main.locator(f'[data-token="{name}"]')
        await expect(line).to_be_visible()
        assert value not in await page.content()
        for width in (1280, PHONE):
            await page.set_viewport_size({"width": width, "height": 800})
            assert await overflow(page) == 0
            await shoot(page, f"people-{theme}-{width}")
        assert await barriers(page) == []
        await line.get_by_role("button", name=words[2]).click()
        await answer_dialog(page, words[2])
        await expect(line).to_have_count(0)
        assert tokens.find(value) is None
    done = [(one["user"], one["action"], one["subject"]) for one in acts(visitor.web.context.root)]
    assert done[-2:] == [("owner", "createToken", name), ("owner", "revokeToken", name)]


@pytest.mark.walk
async def test_a_wrong_name_is_told(visitor: Visitor) -> None:
    async with visitor.page("/people") as page:
        await page.locator("#main").get_by_label("Name").fill("a b")
        await page.locator("#main").get_by_role("button", name="Create token").click()
        await expect(page.get_by_role("alert").filter(has_text="is not a name")).to_be_visible()


@pytest.mark.walk
async def test_who_may_only_look_is_offered_nothing_to_change(browser: Browser, visitor: Visitor) -> None:
    async with visited_by(browser, visitor, "lou", "look") as lou:
        async with lou.page(f"/tasks/{FAILED}") as page:
            await expect(page.locator("[data-status]").first).to_be_visible()
            await expect(page.locator("#main").get_by_role("button", name="Retry")).to_have_count(0)
        async with lou.page(f"/tasks/{ASKING}") as page:
            await expect(page.locator("#main")).to_contain_text("needs the role answer")
            await expect(page.locator("#main").get_by_role("textbox")).to_have_count(0)
            await shoot(page, "look-only")
            assert await barriers(page) == []
        async with lou.page("/inbox") as page:
            await expect(page.locator("[data-item]").first).to_be_visible()
            await expect(page.locator("[data-item]").get_by_role("button")).to_have_count(0)
        async with lou.page("/generals") as page:
            await expect(page.locator("#main").get_by_role("link", name="gen-pr")).to_be_visible()
            await expect(page.locator("#main").get_by_role("button", name="Install a general")).to_have_count(0)
        async with lou.page("/people") as page:
            await expect(page.locator('[data-token="lou"]')).to_contain_text("you")
            await expect(page.locator("#main").get_by_role("button", name="Revoke")).to_have_count(0)
        for path in ("/events/new", "/workflows/new", "/templates/new"):
            async with lou.page(path, status=403) as page:
                await expect(page.get_by_role("alert")).to_contain_text("this needs the role operate; lou has")


@pytest.mark.walk
async def test_an_answer_is_signed_with_the_name(browser: Browser, visitor: Visitor) -> None:
    async with visited_by(browser, visitor, "ann", "answer") as ann, ann.page(f"/tasks/{ASKING}") as page:
        main = page.locator("#main")
        await expect(main.get_by_role("button", name="Cancel")).to_have_count(0)
        await main.get_by_role("textbox").fill("The second one.")
        await main.get_by_role("button", name="Answer").click()
        await expect(main).to_contain_text("ann")
        await expect(main).to_contain_text("The second one.")
        await shoot(page, "answered-by")
    assert acts(visitor.web.context.root)[-1] == {"user": "ann", "action": "answerQuestion", "subject": ASKING}


async def test_an_open_page_ends_with_the_token_and_can_do_nothing_more(browser: Browser, visitor: Visitor) -> None:
    async with visited_by(browser, visitor, "gus", "operate") as gus, gus.page(f"/tasks/{RUNNING}") as page:
        await expect(page.locator(".k-online")).to_be_visible()
        tokens = visitor.web.context.tokens
        await page.get_by_role("button", name="Cancel").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_be_visible()
        before = len(acts(visitor.web.context.root))
        tokens.remove("gus")
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(page.locator(".k-offline")).to_be_visible()
        assert len(acts(visitor.web.context.root)) == before
        answered = await page.request.get(f"{visitor.web.url}/api/session")
        assert answered.status == 401
        gus.errors.clear()  # the console tells of refused connections


@pytest.mark.walk
@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_devices_are_listed_and_one_is_logged_out(
    browser: Browser, visitor: Visitor, theme: Theme, locale: str
) -> None:
    this, out = {"en": ("this device", "Log out"), "ko": ("이 기기", "로그아웃")}[locale]
    async with visited_by(browser, visitor, "una", "look") as una, una.page("/settings") as theirs:
        await expect(theirs.locator("[data-session]")).to_have_count(1)
        await expect(theirs.locator("[data-session]")).to_contain_text("una")
        session = await theirs.locator("[data-session]").get_attribute("data-session")
        async with visitor.page("/settings", theme=theme, locale=locale) as page:
            await expect(page.locator("[data-session]").filter(has_text=this)).to_have_count(1)
            line = page.locator(f'[data-session="{session}"]')
            await expect(line).to_contain_text("Chrome · Linux")
            for width in (1440, PHONE):
                await page.set_viewport_size({"width": width, "height": 800})
                assert await overflow(page) == 0
                await shoot(page, f"devices-{theme}-{width}")
            assert await barriers(page) == []
            await line.get_by_role("button").click()
            await answer_dialog(page, out)
            await expect(line).to_have_count(0)
        await expect(theirs.locator(".k-offline")).to_be_visible()
        answered = await theirs.request.get(f"{visitor.web.url}/api/session")
        assert answered.status == 401
        una.errors.clear()  # the console tells of refused connections
    assert acts(visitor.web.context.root)[-1] == {"user": "owner", "action": "endSession", "subject": "una"}


@pytest.mark.walk
@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_another_role_counts_at_once_on_open_pages(
    browser: Browser, visitor: Visitor, theme: Theme, locale: str
) -> None:
    change, operate = {"en": ("Change role", "operate"), "ko": ("역할 변경", "운영")}[locale]
    async with visited_by(browser, visitor, "pia", "look") as pia, pia.page(f"/tasks/{RUNNING}") as theirs:
        await expect(theirs.locator("[data-status]").first).to_be_visible()
        await expect(theirs.get_by_role("button", name="Cancel")).to_have_count(0)
        async with visitor.page("/people", theme=theme, locale=locale) as page:
            line = page.locator('[data-token="pia"]')
            await line.get_by_role("button", name=change).click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_role("combobox").click()
            await page.get_by_role("option", name=operate).click()
            await expect(page.get_by_role("listbox")).to_have_count(0)  # it closes when the server has the choice
            assert await barriers(page) == []
            await shoot(page, f"people-role-{theme}")
            await answer_dialog(page, change)
            await expect(line.locator("[data-role]")).to_have_attribute("data-role", "operate")
        await expect(theirs.get_by_role("button", name="Cancel")).to_be_visible()
        pia.errors.clear()  # the console tells of the closed connection
    assert acts(visitor.web.context.root)[-1] == {"user": "owner", "action": "changeTokenRole", "subject": "pia"}
