"""Whether the server lives, can work, and how the court is."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from kingdom.bus import BusError
from kingdom.web.security import csrf_token
from tests.support.web import TOKEN, web_app


async def test_it_is_alive(tmp_path: Path) -> None:
    async with web_app(tmp_path, court=False) as web:
        answer = (await web.client.get("/healthz")).json()
        assert (answer["success"], answer["data"]) == (True, {"status": "alive"})


async def test_it_is_ready_when_stores_buses_and_the_feed_answer(tmp_path: Path) -> None:
    async with web_app(tmp_path) as web:
        answer = await web.client.get("/readyz")
        assert answer.status_code == 200
        checked = answer.json()["data"]["checked"]
        assert checked == ["workflow store", "court bus", "workflow bus", "live events"]


async def test_it_is_not_ready_and_says_why_when_something_does_not_answer(tmp_path: Path) -> None:
    async with web_app(tmp_path, court=False) as web:
        web.context.live.trouble = lambda: "OSError: no space"

        async def fail() -> None:
            raise BusError("password=hunter2 refused")

        web.context.parts.store.bus.depth = fail  # type: ignore[method-assign, assignment]
        answer = await web.client.get("/readyz")
        assert answer.status_code == 503
        error = answer.json()["error"]
        assert error["code"] == "SYS_NOT_READY"
        assert error["details"] == ["the workflow bus does not respond", "the live feed has stopped"]
        assert "hunter2" not in answer.text


async def test_prometheus_is_told_of_the_court_and_of_the_buses(tmp_path: Path) -> None:
    async with web_app(tmp_path) as web:
        for _ in range(2):
            answer = await web.client.get("/metrics")
            assert answer.headers["Content-Type"].startswith("text/plain")
            families = {family.name for family in text_string_to_metric_families(answer.text)}
            assert {"kingdom_role_up", "kingdom_health", "kingdom_outbox_pending"} <= families


async def test_without_a_court_the_metrics_are_those_of_the_workflows(tmp_path: Path) -> None:
    async with web_app(tmp_path, court=False) as web:
        text = (await web.client.get("/metrics")).text
        assert "kingdom_outbox_pending" in text
        assert "kingdom_role_up" not in text


async def test_a_page_is_told_what_it_needs_to_begin(tmp_path: Path) -> None:
    async with web_app(tmp_path) as web:
        data = (await web.client.get("/api/session")).json()["data"]
        assert data["csrfToken"] == csrf_token(TOKEN)
        assert (data["identity"], data["court"], data["root"]) == ("bearer", True, str(tmp_path))
        assert data["user"]
        assert TOKEN not in str(data)


async def test_health_tells_the_level_and_every_role(tmp_path: Path) -> None:
    async with web_app(tmp_path) as web:
        data = (await web.client.get("/api/health")).json()["data"]
        assert (data["level"], data["court"], data["running"]) == ("green", True, False)
        assert {"king", "sentinel", "envoy", "chamberlain"} <= {role["name"] for role in data["roles"]}


async def test_health_without_a_court_has_no_roles(tmp_path: Path) -> None:
    async with web_app(tmp_path, court=False, engine=False) as web:
        data = (await web.client.get("/api/health")).json()["data"]
        assert (data["court"], data["roles"], data["workflowEngine"]) == (False, [], False)
