"""The pages of workflows, used as people use them: scripted agents, a real repository, a real browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from kingdom.web.dashboard.words import TEXTS
from tests.support.browser import (
    DESKTOP,
    PHONE,
    Visitor,
    answer_dialog,
    barriers,
    connected,
    overflow,
    shoot,
    shoot_for_docs,
    visiting,
)
from tests.support.workflow_pages import BAD_LINK, EVIL, WORSE, Place

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.walk]

PLAN = {
    "plan": "Look into {{ issue.key }}: why does it hang?",
    "build": "Build what the plan says.",
    "check": "Run the tests.",
    "docs": "Bring the documentation up to date.",
}
LOOK = {"name": "look", "query": f"Look at {{{{ issue.key }}}}. {WORSE}", "report": ["Findings"]}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A repository, and a script for agents."""
    return Place(tmp_path_factory.mktemp("workflows"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser, place: Place) -> AsyncIterator[Visitor]:
    """A dashboard whose server runs workflows."""
    async with visiting(browser, place.home, court=False, engine=True) as visitor:
        await place.register(visitor)
        yield visitor


async def test_from_a_template_to_a_finished_workflow_and_back(visitor: Visitor, place: Place) -> None:
    """The whole of a user's work, without a reload where something is awaited."""
    async with visitor.page("/templates/new") as page:
        await _fill_in_the_template(page, place)
        await page.get_by_role("button", name="Save").click()
        await _arrive(page, "**/templates/tpl-*")
        await page.get_by_role("button", name="New workflow").click()
        await _arrive(page, "**/workflows/new?*")
        await page.get_by_label("Issue key").fill("WEB-42")
        await page.get_by_role("button", name="Create and start").click()
        await _arrive(page, "**/workflows/wf-*")
        workflow = page.url
        await _never_reloaded(page)
        await expect(page.locator(".k-reason")).to_have_text("review after build")
        await expect(_state(page)).to_have_text("paused")
        await expect(_work(page, "build")).to_contain_text("completed")
        await expect(_work(page, "check")).to_contain_text("pending")
        await expect(page.get_by_role("log", name="Agent output")).to_contain_text("The timeout is set.")
        await expect(page.locator(".k-workflow-head")).to_contain_text("$0.15")
        await expect(page.get_by_role("log", name="Events")).to_contain_text("WorkflowPaused")
        assert await _still_there(page)

        await _look_at_the_changes(page)
        await _go(page, workflow)
        await expect(page.get_by_role("log", name="Agent output")).to_contain_text("The timeout is set.")
        await shoot_for_docs(page, "dashboard-workflow")
        await _go_back_to_the_plan(page)
        await _restore_what_was_dropped(page)
        await _add_a_work(page, workflow)
        await page.get_by_role("button", name="Resume", exact=True).click()
        await expect(_state(page)).to_have_text("completed")
        await expect(page.locator(".k-workflow-head")).to_contain_text("5 of 5 works completed")
        await _land(page)
        await _follow_up(page)
        await _fork(page)


async def _land(page: Page) -> None:
    """A repository on this machine has no pull requests: that is said, and stays to be read."""
    await page.get_by_role("button", name="Land", exact=True).click()
    await answer_dialog(page, "Land")
    await expect(page.locator("[data-landing=web]")).to_contain_text("it has no pull requests: land with --push")
    await expect(page.locator("[data-landing=web]")).to_contain_text("kingdom/WEB-42-repair")


async def _follow_up(page: Page) -> None:
    """What the agent is to do next becomes a work in the conversation of the last one that ran alone."""
    field = page.get_by_label("What to do next, or differently")
    await field.fill("Tell the French users")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(_work(page, "tell-the-french-users")).to_contain_text("completed")
    await expect(_state(page)).to_have_text("completed")
    await expect(page.locator(".k-workflow-head")).to_contain_text("6 of 6 works completed")
    await expect(field).to_have_value("")


async def _fill_in_the_template(page: Page, place: Place) -> None:
    form = page.locator(".k-form").first
    await form.get_by_label("Name", exact=True).fill("repair")
    await _choose(page, form.get_by_label("Repositories"), "web")
    await expect(form.get_by_label("web: start branch")).to_be_visible()  # what is below it has moved by now
    for number, (name, query) in enumerate(PLAN.items(), 1):
        if number > 1:
            await page.get_by_role("button", name="Add work").click()
        work = page.get_by_role("region", name=f"Work {number}")
        if number == 1:  # the others begin with what plays this one
            await _choose(page, work.get_by_label("Engine"), "scripted")
            await work.get_by_text("Engine options").click()
            await work.get_by_label("YAML").fill(f"script: {place.script}")
        await work.get_by_label("Name", exact=True).fill(name)
        await work.get_by_label("Task name").fill("look" if name == "plan" else "do")
        await work.get_by_label("Query", exact=True).fill(query)
    await page.get_by_role("region", name="Work 1").get_by_label(re.compile("^Report")).fill("Findings")
    await page.get_by_role("region", name="Work 2").get_by_text("Pause for review").click()
    for number in (3, 4):
        await _choose(page, page.get_by_role("region", name=f"Work {number}").get_by_label("Waits for"), "build")


async def _look_at_the_changes(page: Page) -> None:
    points = page.locator(".k-point")
    await expect(points).to_have_count(2)
    await points.first.get_by_role("link", name="build").click()
    await _arrive(page, "**/checkpoints/cp-*")
    changed = page.get_by_role("table", name="net.py").locator("tr.k-diff-changed").first
    await expect(changed.locator(".k-diff-old")).to_have_text("timeout = None")
    await expect(changed.locator(".k-diff-new")).to_have_text("timeout = 30")
    await expect(changed.locator(".k-diff-old .k-code-word")).to_have_text("None")
    await expect(changed.locator(".k-diff-new .k-code-number")).to_have_text("30")
    await page.get_by_role("link", name="Inline").click()
    inline = page.locator(".k-diff-inline").first.locator("tr:not(.k-diff-hunk)")
    await expect(inline.nth(0).locator(".k-diff-old")).to_have_text("timeout = None")
    await expect(inline.nth(1).locator(".k-diff-new")).to_have_text("timeout = 30")
    await shoot(page, "workflow-diff-inline")
    await page.get_by_role("link", name="Side by side").click()
    await expect(page.get_by_role("navigation", name="Changed files")).not_to_contain_text("PLAN.md")
    await page.get_by_label("Compare with").click()
    await page.get_by_role("option", name="the start of the branch").click()
    await expect(page.get_by_role("navigation", name="Changed files")).to_contain_text("PLAN.md")


async def _go_back_to_the_plan(page: Page) -> None:
    await _never_reloaded(page)
    plan = page.locator(".k-point").filter(has=page.get_by_role("link", name="plan", exact=True))
    await plan.get_by_role("button", name="Resume from here").click()
    await answer_dialog(page, "Resume", exact=True)
    await expect(_work(page, "build")).to_contain_text("attempt 2")
    await expect(_work(page, "build")).to_contain_text("completed")
    await expect(_work(page, "plan")).not_to_contain_text("attempt 2")
    await expect(_state(page)).to_have_text("paused")
    await expect(page.locator(".k-point .k-badge:visible")).to_have_text(["left behind"])
    assert await _still_there(page)


async def _restore_what_was_dropped(page: Page) -> None:
    dropped = page.locator("[data-rescue]")
    await expect(dropped).to_have_count(1)
    await dropped.get_by_role("button", name="Restore").click()
    await answer_dialog(page, "Restore")
    await expect(page.get_by_text("The files are back in the worktree")).to_be_visible()


_MOVE_TYPE_AND_APPLY = """async () => {
    const query = document.querySelector('[aria-label="Work 3"] textarea[aria-label="Query"]')
    document.querySelector('[aria-label="Work 5"] header button[aria-label="Move up"]').click()
    query.value = "Run all tests."
    query.dispatchEvent(new Event("input", {bubbles: true}))
    await new Promise((sent) => setTimeout(sent));
    [...document.querySelectorAll("button")].find((one) => one.textContent.includes("Apply changes")).click()
}"""  # all before the answer to the first click is drawn, as on a slow line: the text is kept


async def _add_a_work(page: Page, workflow: str) -> None:
    await page.get_by_role("button", name="Edit plan").click()
    await _arrive(page, "**/plan")
    await expect(page.get_by_role("region", name="Work 1")).to_contain_text("started or completed: cannot be changed")
    await page.get_by_role("button", name="Add work").click()
    work = page.get_by_role("region", name="Work 5")
    await work.get_by_label("Name", exact=True).fill("news")
    await page.get_by_role("button", name="Apply changes").click()
    await expect(page.locator(".k-problems")).to_contain_text("Query: is missing")  # and nothing is changed
    await work.get_by_label("Query", exact=True).fill("Tell the users.")
    await page.evaluate(_MOVE_TYPE_AND_APPLY)
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text(re.compile("another query\\s+work news is added"))
    await answer_dialog(page, "Apply changes")
    await _arrive(page, workflow)
    await expect(page.locator(".k-work")).to_contain_text(["plan", "build", "check", "news", "docs"])
    await expect(page.locator(".k-graph .k-node-name")).to_have_text(["plan", "build", "check", "news", "docs"])


async def _fork(page: Page) -> None:
    built = page.locator(".k-point").filter(has_text="build").first
    await built.get_by_role("button", name="Fork from here").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("textbox").fill("another way")
    first = page.url
    await answer_dialog(page, "Fork", exact=True)
    await expect(page.get_by_role("heading", name="another way")).to_be_visible()
    assert page.url != first
    await expect(_state(page)).to_have_text("created")
    await expect(_work(page, "build")).to_contain_text("completed")
    await expect(_work(page, "check")).to_contain_text("pending")


async def test_a_workflow_is_paused_kept_as_a_template_cancelled_and_deleted(visitor: Visitor, place: Place) -> None:
    template = await place.template(visitor, "endless", [{"name": "long", "tasks": ["Take your time."]}])
    workflow = await place.started(visitor, template, name="endless one")
    async with visitor.page("/workflows") as listing, visitor.page(f"/workflows/{workflow}") as page:
        row = listing.locator(".k-workflows tbody tr").filter(has_text="endless one")
        await expect(row).to_contain_text("running")
        await expect(page.get_by_role("log", name="Agent output")).to_contain_text("This takes a while.")
        await expect(_state(page)).to_have_text("running")
        await expect(page.get_by_role("button", name="Edit plan")).to_be_disabled()
        await page.get_by_role("button", name="Pause").click()
        await expect(_state(page)).to_have_text("paused")
        await expect(row).to_contain_text("paused")
        await expect(page.get_by_role("button", name="Edit plan")).to_be_enabled()
        await page.locator("#main").get_by_role("button", name="More").click()
        await page.get_by_role("menuitem", name="Save as template").click()
        await page.get_by_role("dialog").get_by_role("textbox").fill("kept")
        await answer_dialog(page, "Save")
        await expect(page.get_by_role("heading", name="kept")).to_be_visible()
        await expect(page.get_by_label("Query", exact=True)).to_have_value("Take your time.")
        await _go(page, f"{visitor.web.url}/workflows/{workflow}")
        await page.get_by_role("button", name="Cancel").click()
        await answer_dialog(page, "Back")
        await expect(_state(page)).to_have_text("paused")
        await page.get_by_role("button", name="Cancel").click()
        await answer_dialog(page, "Cancel")
        await expect(_state(page)).to_have_text("cancelled")
        await page.locator("#main").get_by_role("button", name="More").click()
        await page.get_by_role("menuitem", name="Delete").click()
        await answer_dialog(page, "Delete")
        await _arrive(page, "**/workflows")
        await expect(page.locator("#main")).not_to_contain_text("endless one")
        await expect(row).to_have_count(0)


async def test_a_template_is_edited_as_yaml_and_its_mistakes_have_lines(visitor: Visitor, place: Place) -> None:
    template = await place.template(visitor, "in two forms", [{"name": "one", "tasks": ["Do it."]}])
    async with visitor.page(f"/templates/{template}") as page:
        await page.get_by_role("tab", name="YAML").click()
        yaml = page.get_by_role("textbox", name="YAML")
        text = await yaml.input_value()
        await yaml.fill(text.replace("works:", "workz:"))
        await page.get_by_role("tab", name="Form").click()
        await expect(page.get_by_role("alert")).to_contain_text("line 8: unknown key")
        await yaml.fill(text.replace("query: Do it.", "query: Do it twice."))
        await page.get_by_role("tab", name="Form").click()
        await expect(page.get_by_label("Query", exact=True)).to_have_value("Do it twice.")
        await page.get_by_label("Description").fill("Known from both sides.")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("alert").filter(has_text="Saved")).to_be_visible()
        await _go(page, f"{visitor.web.url}/templates?search=both+sides")
        await expect(page.locator("#main")).to_contain_text("in two forms")


async def test_repositories_and_mcp_servers_are_registered_and_removed(visitor: Visitor, place: Place) -> None:
    async with visitor.page("/repositories") as page:
        gits = page.get_by_role("region", name="Repositories", exact=True)
        await gits.get_by_label("URL, or a folder").fill("http://user:secret@localhost:1/x")
        await gits.get_by_role("button", name="Add").click()
        await expect(page.get_by_role("alert").last).to_be_visible()
        await gits.get_by_label("URL, or a folder").fill(str(place.repository))
        await gits.get_by_label("Name", exact=True).fill("twin")
        await gits.get_by_role("button", name="Add").click()
        await expect(gits.locator("li")).to_contain_text(["twin", "web"])
        await gits.get_by_role("button", name="Remove twin").click()
        await answer_dialog(page, "Remove")
        await expect(gits.locator("li")).to_have_count(1)
        servers = page.get_by_role("region", name="MCP servers")
        await servers.get_by_label("Name", exact=True).fill("tracker")
        await servers.get_by_label("Command", exact=True).fill("npx tracker-mcp")
        await servers.get_by_label(re.compile("^Variables")).fill("TOKEN=swordfish\nHOST=${HOST}")
        await servers.get_by_role("button", name="Add").click()
        await expect(servers.locator("li")).to_contain_text("HOST=${HOST}")
        await expect(servers.locator("li")).not_to_contain_text("swordfish")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pages(visitor: Visitor, place: Place) -> dict[str, str]:
    """The addresses of all pages, about a workflow in which everybody writes scripts wherever they can."""
    works = [
        {"name": "plan", "tasks": [LOOK]},
        {"name": "build", "tasks": [{"name": EVIL, "query": WORSE}], "pause_after": True},
        {"name": EVIL, "after": "build", "tasks": ["x"]},
    ]
    template = await place.template(visitor, EVIL, works, place.evil_script)
    workflow = await place.started(visitor, template, name=EVIL, issueKey="WEB-7", description=WORSE)
    async with visitor.page(f"/workflows/{workflow}") as page:
        await expect(_state(page)).to_have_text("paused")
    seen = (await visitor.web.client.get(f"/api/workflows/{workflow}")).json()["data"]
    report = seen["works"][0]["tasks"][0]["reportId"]
    point = next(one["id"] for one in seen["checkpoints"] if one["workName"] == "build")
    return {
        "list": "/workflows",
        "new": f"/workflows/new?template={template}",
        "workflow": f"/workflows/{workflow}",
        "checkpoint": f"/workflows/{workflow}/checkpoints/{point}",
        "report": f"/workflows/{workflow}/reports/{report}",
        "plan": f"/workflows/{workflow}/plan",
        "templates": "/templates",
        "template": f"/templates/{template}",
        "repositories": "/repositories",
    }


@pytest.mark.parametrize(("theme", "locale", "width"), [("light", "en", DESKTOP), ("dark", "ko", PHONE)])
async def test_every_page_is_whole_in_every_look_and_no_script_runs(
    visitor: Visitor, pages: dict[str, str], theme: str, locale: str, width: int
) -> None:
    async with visitor.page(pages["list"], theme=theme, locale=locale, width=width) as page:
        await expect(page.locator("#main")).to_contain_text(TEXTS[locale]["workflow.status.PAUSED"])
        for name, path in pages.items():
            await _go(page, visitor.web.url + path)
            await expect(page.locator("h1")).to_be_visible()
            await shoot(page, f"workflows-{name}-{theme}-{locale}-{width}")
            assert await barriers(page) == [], name
            assert await overflow(page) == 0, name
            assert await page.evaluate("window.owned ?? null") is None, name
            assert await page.locator("#main img, #main script, #main iframe").count() == 0, name


async def test_what_agents_and_people_write_is_shown_letter_by_letter(visitor: Visitor, pages: dict[str, str]) -> None:
    async with visitor.page(pages["workflow"]) as page:
        await expect(page.get_by_role("heading", name=EVIL)).to_be_visible()
        await expect(page.get_by_role("log", name="Agent output")).to_contain_text(WORSE)
        await page.locator(".k-task summary").first.click()
        await expect(page.locator(".k-words").first).to_contain_text(WORSE)
        await _go(page, visitor.web.url + pages["checkpoint"])
        await expect(page.get_by_role("table", name="net.py")).to_contain_text(WORSE)
        await _go(page, visitor.web.url + pages["report"])
        report = page.locator(".k-report")
        await expect(report.get_by_role("heading", name="Findings")).to_be_visible()
        await expect(report).to_contain_text(f"{BAD_LINK} {WORSE}")
        await expect(report.get_by_role("table")).to_contain_text("net.py")
        links = report.get_by_role("link")
        assert await links.all_inner_texts() == ["docs", "a picture"]
        assert await links.first.get_attribute("rel") == "noopener noreferrer nofollow"
    async with visitor.page("/workflows/%3Cimg%20src=x%20onerror=window.owned=1%3E", status=404) as page:
        await expect(page.get_by_role("alert")).to_contain_text("no workflow '<img src=x onerror=")
        assert await page.evaluate("window.owned ?? null") is None


async def test_the_list_is_searched_filtered_and_says_when_there_is_none(
    visitor: Visitor, pages: dict[str, str]
) -> None:
    async with visitor.page(pages["list"], width=DESKTOP) as page:
        field = page.get_by_label("Search names")
        await field.fill("WEB-7")
        await field.press("Enter")
        await _arrive(page, "**/workflows?*search=WEB-7*")
        await expect(page.locator(".k-workflows tbody tr")).to_have_count(1)
        await page.get_by_role("link", name="Failed").click()
        await _arrive(page, "**/workflows?show=failed*")
        await expect(page.locator("#main")).to_contain_text("No workflow matches")
        await page.get_by_role("link", name="All").first.click()
        await _arrive(page, re.compile("search=WEB-7$"))
        row = page.locator(".k-workflows tbody tr").first
        await row.get_by_role("link").focus()
        await page.keyboard.press("Enter")
        await _arrive(page, "**/workflows/wf-*")


def _state(page: Page) -> Locator:
    return page.locator(".k-workflow-head .k-badge").first


def _work(page: Page, name: str) -> Locator:
    return page.locator(".k-work").filter(has=page.locator(".k-work-head .k-strong", has_text=re.compile(f"^{name}$")))


async def _choose(page: Page, field: Locator, option: str) -> None:
    await field.click()
    await page.get_by_role("option", name=option).click()
    await page.keyboard.press("Escape")
    chosen = field.locator("xpath=ancestor-or-self::*[contains(@class, 'q-select')]").last
    await expect(chosen).to_contain_text(option)  # a click that missed leaves the list open: a person would see it


async def _go(page: Page, url: str) -> None:
    await page.goto(url)
    await connected(page)


async def _arrive(page: Page, url: str | re.Pattern[str]) -> None:
    await page.wait_for_url(url)
    await connected(page)


async def _never_reloaded(page: Page) -> None:
    await page.evaluate("window.stayed = true")


async def _still_there(page: Page) -> bool:
    return bool(await page.evaluate("window.stayed === true"))
