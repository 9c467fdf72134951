"""The dashboard inside the application: what is a page and what is not, and what every page carries."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kingdom.web.dashboard import theme
from tests.support.web import Web, web_app


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    """A court with pages."""
    async with web_app(tmp_path, pages=True) as web, web.app.router.lifespan_context(web.app):
        yield web


@pytest.mark.parametrize("path", ["/api/nothing", "/api", "/ws/nothing", "/hooks/nothing/at/all"])
async def test_what_is_not_there_in_the_api_is_told_in_the_envelope_not_as_a_page(web: Web, path: str) -> None:
    answer = await web.client.get(path)
    assert answer.status_code == 404
    assert answer.json()["success"] is False


async def test_a_wrong_method_of_the_api_is_told_as_that(web: Web) -> None:
    answer = await web.client.delete("/api/health")
    assert answer.status_code == 405
    assert answer.json()["error"]["code"].startswith("SYS_")


async def test_an_address_without_a_page_is_answered_with_one_that_leads_on(web: Web) -> None:
    answer = await web.client.get("/no/such/page")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "Page not found" in answer.text


async def test_every_script_of_a_page_carries_the_number_of_its_answer_and_no_other(web: Web) -> None:
    numbers = set()
    for _ in range(2):
        answer = await web.client.get("/tasks")
        found = re.search(r"'nonce-([^']+)'", answer.headers["content-security-policy"])
        assert found is not None
        scripts = re.findall(r"<script[^>]*>", answer.text)
        assert scripts
        assert all(f'nonce="{found[1]}"' in script for script in scripts), scripts
        numbers.add(found[1])
    assert len(numbers) == 2


async def test_nothing_of_a_page_is_asked_for_elsewhere(web: Web) -> None:
    for path in ("/", "/tasks", "/bus", "/workflows", "/templates"):
        answer = await web.client.get(path)
        assert answer.status_code == 200, path
        assert not re.findall(r"(?:src|href|url\()\s*=?\s*[\"']?(?:https?:)?//", answer.text), path


async def test_the_style_sheet_may_be_kept_and_pages_may_not(web: Web) -> None:
    sheet = await web.client.get(theme.STYLESHEET_PATH)
    assert "immutable" in sheet.headers["cache-control"]
    assert "--k-accent" in sheet.text
    assert (await web.client.get("/")).headers["cache-control"] == "no-store"


async def test_a_choice_is_kept_in_a_cookie_and_leads_back(web: Web) -> None:
    chosen = await web.client.get("/preferences", params={"theme": "dark", "locale": "ko", "back": "/bus?bus=court"})
    assert (chosen.status_code, chosen.headers["location"]) == (303, "/bus?bus=court")
    answer = await web.client.get("/tasks")
    assert '<html lang="ko-KR">' in answer.text
    assert 'content="dark"' in answer.text
    away = await web.client.get("/preferences", params={"theme": "light", "back": "//evil.example/"})
    assert away.headers["location"] == "/"
    assert (await web.client.get("/preferences", params={"theme": "<b>"})).status_code == 422
