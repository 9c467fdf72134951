"""A plan whose wrong fields are marked, a report with a diagram, and a pull request with what others say of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from kingdom.web.dashboard.words import TEXTS
from kingdom.workflow.domain.landing import LandAgain
from kingdom.workflow.domain.statuses import WorkflowStatus
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
from tests.support.git_server import trusted
from tests.support.github_server import GitHubServer
from tests.support.landed import land_in_store, use_token
from tests.support.web import Web
from tests.support.web_work import Desk
from tests.support.workflow_pages import post

pytestmark = pytest.mark.asyncio(loop_scope="session")
REPORT = """\
## Findings

```mermaid
flowchart LR
  ask[What is asked] --> do{"<img src=x onerror=alert(1)>"} --> done
  click ask href "javascript:alert(1)" "go"
  click done call alert(1)
```

```mermaid
this is <b>no</b> diagram
```
"""
WORK = {
    "name": "look",
    "engine": "scripted",
    "engineOptions": {
        "script": {
            "look/task-1": [{"result": {"summary": "done"}}],
            "look/task-1/report": [{"say": REPORT}],
        }
    },
    "tasks": [{"name": "task-1", "query": "Look.", "outline": ["Findings"]}],
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def landed(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Visitor, str]]:
    """A folder with workflows, one of which was landed: a visitor, and the address of that one."""
    folder: Path = tmp_path_factory.mktemp("landed")
    with (
        pytest.MonkeyPatch.context() as environment,
        GitHubServer(folder / "github") as github,
        trusted(github),
    ):
        use_token(github, folder / "home", environment)
        async with visiting(browser, folder / "home", court=False, engine=True) as visitor:
            web = Web(visitor.web.context, visitor.web.app, visitor.web.client)
            yield visitor, f"/workflows/{await land_in_store(web.context, Desk(web), github)}"


@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_what_is_wrong_in_a_plan_is_marked_and_the_first_field_has_the_focus(
    landed: tuple[Visitor, str], theme: Theme, locale: str
) -> None:
    words = TEXTS[locale]
    visitor, _ = landed
    async with visitor.page("/templates/new", theme=theme, locale=locale) as page:
        await page.get_by_label(words["plan.name"], exact=True).first.fill(f"fix it {locale}")
        await page.get_by_role("button", name=words["act.save"]).click()
        alert = page.locator(".k-problems")
        missing, work = words["plan.wrong.missing"], words["plan.work"].format(number=1)
        await expect(alert).to_contain_text(f"{work}, {words['plan.name']}: {missing}")
        task = words["plan.task"].format(number=1)
        await expect(alert).to_contain_text(f"{work}, {task}, {words['plan.query']}: {missing}")
        await expect(alert).not_to_contain_text("[0]")
        name = page.get_by_role("region", name=work).get_by_label(words["plan.name"], exact=True)
        query = page.get_by_label(words["plan.query"], exact=True)
        await expect(name).to_have_attribute("aria-invalid", "true")
        await expect(name).to_be_focused()
        await expect(query).to_have_attribute("aria-invalid", "true")
        await shoot(page, f"plan-wrong-{theme}-{locale}")
        assert await barriers(page) == []
        await name.fill("look")
        await page.get_by_role("button", name=words["act.save"]).click()
        await expect(query).to_be_focused()
        await expect(name).not_to_have_attribute("aria-invalid", "true")
        await query.fill("Look at it.")
        await page.get_by_role("button", name=words["act.save"]).click()
        await page.wait_for_url(re.compile("/templates/(?!new)"))


async def test_a_diagram_in_a_report_is_an_image_and_runs_nothing(landed: tuple[Visitor, str]) -> None:
    visitor, _ = landed
    template = await post(visitor, "/api/workflow-templates", {"name": "diagrams", "works": [WORK]})
    made = await post(visitor, "/api/workflows", {"templateId": template["id"]})
    await post(visitor, f"/api/workflows/{made['id']}/start", {})
    async with visitor.page(f"/workflows/{made['id']}") as page:
        await expect(page.locator(".k-workflow-head .k-badge")).to_have_text("completed")
        seen = (await visitor.web.client.get(f"/api/workflows/{made['id']}")).json()["data"]
        alerts: list[str] = []
        page.on("dialog", lambda dialog: alerts.append(dialog.message))
        report = seen["works"][0]["tasks"][0]["reportId"]
        await page.goto(f"{visitor.web.url}/workflows/{made['id']}/reports/{report}")
        image = page.locator(".k-diagram img")
        await expect(image).to_have_count(1)
        await page.wait_for_function("document.querySelector('.k-diagram img').naturalHeight > 100")
        shown = await image.evaluate("one => decodeURIComponent(one.src).match(/viewBox=.([^\"]*)/)[1].split(' ')")
        assert [round(float(side)) for side in shown[:2]] == [0, 0], "it is whole"
        await expect(image).to_have_attribute("alt", "Diagram; its source is below")
        await expect(page.locator(".k-diagram pre").last).to_have_text("this is <b>no</b> diagram\n")
        assert await page.locator(".k-report a, .k-report svg, .k-report script").count() == 0
        await page.locator(".k-diagram summary").click()
        await expect(page.locator(".k-diagram details pre")).to_contain_text("flowchart LR")
        await image.click()
        await shoot(page, "report-diagram")
        assert await barriers(page) == []
        assert alerts == []


@pytest.mark.walk
@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_the_pull_request_of_a_workflow_is_on_its_page_with_checks_and_comments(
    landed: tuple[Visitor, str], theme: Theme, locale: str
) -> None:
    words = TEXTS[locale]
    visitor, path = landed
    async with visitor.page(path, theme=theme, locale=locale) as page:
        pull = page.locator("[data-pull='app#1']")
        await expect(pull).to_contain_text("Please test the empty case.")
        await expect(pull).to_contain_text(words["pull.verdict.changes_requested"])
        await expect(pull).to_contain_text("<script>alert(1)</script> nice")
        await expect(pull).to_contain_text("ls.py:3")
        for state in ("passed", "failed", "running"):
            await expect(pull).to_contain_text(words[f"pull.check.{state}"])
        for width in (DESKTOP, PHONE):
            await page.set_viewport_size({"width": width, "height": 900})
            await pull.scroll_into_view_if_needed()
            assert await overflow(page) == 0
            await shoot(page, f"pull-request-{theme}-{locale}-{width}")
        assert await barriers(page) == []


@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_a_workflow_that_waits_for_its_git_host_says_so_and_can_be_given_up(
    landed: tuple[Visitor, str], theme: Theme, locale: str
) -> None:
    words = TEXTS[locale]
    visitor, path = landed
    store = visitor.web.context.parts.store
    async with store.transaction() as tx:
        workflow = await tx.workflows.get(path.rpartition("/")[2])
        workflow.status = WorkflowStatus.COMPLETED
        workflow.end_landing(
            LandAgain(datetime(2100, 1, 2, 3, 4, tzinfo=UTC), 3),
            "not landed yet, it is tried again: github.com cannot be reached",
        )
        await tx.workflows.save(workflow)
    async with visitor.page("/workflows", theme=theme, locale=locale) as page:
        await expect(page.get_by_text("github.com cannot be reached")).to_be_visible()
    async with visitor.page(path, theme=theme, locale=locale) as page:
        head = page.get_by_role("region", name=words["workflow.status"])
        await expect(head).to_contain_text("github.com cannot be reached")
        await expect(head).to_contain_text("2100-01-02")
        for width in (DESKTOP, PHONE):
            await page.set_viewport_size({"width": width, "height": 900})
            assert await overflow(page) == 0
            await shoot(page, f"waits-to-land-{theme}-{locale}-{width}")
        assert await barriers(page) == []
        await expect(page.get_by_role("button", name=words["act.land"], exact=True)).to_be_visible()
        await expect(page.get_by_role("button", name=words["act.cancel"], exact=True)).to_have_count(0)
        button = page.get_by_role("button", name=words["act.not_land"])
        await button.focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog")).to_contain_text(words["workflow.ask.not_land.detail"])
        await answer_dialog(page, words["act.not_land"])
        await expect(head).not_to_contain_text("github.com cannot be reached")
        await expect(head).not_to_contain_text("2100-01-02")
        await expect(button).to_have_count(0)
    async with store.reading() as tx:
        workflow = await tx.workflows.get(workflow.id)
        assert (workflow.status, workflow.land_again) == (WorkflowStatus.COMPLETED, None)
