"""One search finds ids, subjects, people and text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom.web.security.tokens import TokenStore
from tests.support.seen_court import ASKING, FAILED, RUNNING, SeenCourt
from tests.support.web import Web, web_app
from tests.support.web_work import Desk, scripted


async def search(web: Web, query: str, **more: Any) -> list[dict[str, Any]]:
    answer = await web.client.get("/api/search", params={"q": query, **more})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]["items"]
    return found


async def test_everything_in_a_court_is_found_with_the_way_to_it(tmp_path: Path) -> None:
    court = SeenCourt(tmp_path)
    await court.fill("Release v2.4.0 today?")
    TokenStore(tmp_path).add("ann@example.org", "operate")
    async with web_app(tmp_path, court=False) as web:
        desk = Desk(web)
        template = await desk.template(scripted("one"), name="mend-the-roof", description="Patches what leaks.")
        workflow = await desk.post("workflows", {"templateId": template, "issueKey": "WEB-42", "name": "The roof"})
        for query, kind, path in (
            (RUNNING, "task", f"/tasks/{RUNNING}"),
            ("v2.4.0 release", "question", f"/tasks/{ASKING}"),
            ("gen-pr", "general", "/generals/gen-pr"),
            ("ANN@", "person", "/logs?q=ann%40example.org"),
            ("web-42", "workflow", f"/workflows/{workflow['id']}"),
            (workflow["id"], "workflow", f"/workflows/{workflow['id']}"),
            ("mend-the", "template", f"/templates/{template}"),
            (f"evt-github-{FAILED}", "event", f"/events/evt-github-{FAILED}"),
        ):
            found = await search(web, query)
            assert (kind, path) in [(one["kind"], one["path"]) for one in found], (query, found)
        assert (await search(web, FAILED))[0]["id"] == FAILED, "what has the id comes first"
        assert await search(web, "nothing-has-this-word") == []
        assert await search(web, "   ") == []
        assert len([one for one in await search(web, "task", limit=1) if one["kind"] == "task"]) == 1


async def test_without_a_court_workflows_templates_and_people_are_found(tmp_path: Path) -> None:
    async with web_app(tmp_path, court=False) as web:
        web.context.tokens.add("bob", "look")
        await Desk(web).template(scripted("one"), name="bobsled")
        person, template = await search(web, "bob")
        assert (person["kind"], person["path"], template["kind"]) == ("person", "/people", "template")


@pytest.mark.parametrize("query", ["", "x" * 201])
async def test_a_query_that_is_none_is_refused(tmp_path: Path, query: str) -> None:
    async with web_app(tmp_path, court=False) as web:
        assert (await web.client.get("/api/search", params={"q": query})).status_code == 422
